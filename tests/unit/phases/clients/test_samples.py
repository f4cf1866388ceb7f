import pickle

import torch

from oneshot_fl.data.dataset import make_dataset
from oneshot_fl.phases.clients.samples import own_samples


def _data():
    images, labels = torch.arange(4 * 64).view(4, 1, 8, 8).to(torch.uint8), torch.tensor([0, 1, 2, 1])
    names, pair = ("a", "b", "c"), (images, labels)
    return make_dataset(name="four", train=pair, test=pair, class_names=names, mean=[0.5], std=[0.5])


def test_a_client_owns_the_samples_of_its_index():
    data = _data()
    own = own_samples(data, torch.tensor([3, 1]))
    assert len(own) == 2
    assert torch.equal(own.images, data.train_images[[3, 1]])
    assert own.labels.tolist() == [1, 1]
    x, y = own.first(1)
    assert torch.equal(x, data.spec.to_input(data.train_images[[3]]))
    assert y.tolist() == [1]


def test_what_travels_to_a_worker_is_the_client_s_own():
    own = own_samples(_data(), torch.tensor([2]))
    there = pickle.loads(pickle.dumps(own))
    assert there.all_labels.tolist() == [2]
    assert torch.equal(there.images, own.images)
