from functools import partial

import numpy as np
import pytest
import torch

from oneshot_fl.data.dataset import make_dataset
from oneshot_fl.data.partition import Partition
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.cvae import mlp
from oneshot_fl.models.zoo import resnet
from oneshot_fl.phases.clients.train import ClientPlan, Training, train_clients

SGD = partial(torch.optim.SGD, lr=0.05, momentum=0.9)


@pytest.fixture
def data():
    labels = torch.arange(66) % 3
    images = (labels.view(-1, 1, 1, 1) * 100 + torch.randint(50, (66, 1, 8, 8))).to(torch.uint8)
    return make_dataset(
        name="stripes",
        train=(images, labels),
        test=(images, labels),
        class_names=("a", "b", "c"),
        mean=[0.5],
        std=[0.5],
    )


def _train(data, context, indices, build=cnn2, **settings):
    options = {"norm": True} if build is cnn2 else {"depth": 18}
    plans = [ClientPlan(build.__name__, options, partial(build, data.spec, **options)) for _ in indices]
    partition = Partition("given", [np.array(index) for index in indices])
    return train_clients(
        data,
        partition,
        plans,
        trainings={"classifier": Training({"epochs": 3, "batch_size": 16, "seed": 0} | settings, SGD)},
        context=context,
    )


def test_training_lowers_the_loss_and_counts_samples(data, context):
    logged = []
    context.log.log = lambda metrics, step: logged.append((metrics, step))
    clients = _train(data, context, [range(33), range(33, 66)])
    assert [client.samples for client in clients] == [33, 33]
    losses = [metrics["clients/00/loss"] for metrics, _ in logged if "clients/00/loss" in metrics]
    assert len(losses) == 3
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("build", [cnn2, resnet])
@pytest.mark.parametrize("count", [1, 17])
def test_a_last_batch_of_one_and_a_single_sample_train(data, context, build, count):
    (client,) = _train(data, context, [range(count)], build, epochs=1)
    assert client.samples == count


def test_a_client_with_a_single_class_trains(data, context):
    (client,) = _train(data, context, [range(0, 66, 3)])
    logits = client.model.eval()(data.spec.to_input(data.train_images[:3]))
    assert logits.argmax(1).tolist()[0] == 0


def test_no_epochs_gives_the_common_initial_weights(data, context):
    clients = _train(data, context, [range(33), range(33, 66)], epochs=0)
    states = [client.model.state_dict() for client in clients]
    assert all(torch.equal(states[0][name], states[1][name]) for name in states[0])


def test_results_do_not_depend_on_the_other_clients(data, context):
    alone = _train(data, context, [range(20)])
    together = _train(data, context, [range(20), range(20, 66)])
    assert alone[0].key == together[0].key


def test_an_option_that_is_off_leaves_the_key_as_it_was_and_one_that_is_on_does_not(data, context):
    keys = [
        _train(data, context, [range(20)], epochs=1, **options)[0].key
        for options in (
            {},
            {"augmentation": "none", "sam": None},
            {"augmentation": "flip"},
            {"augmentation": "crop"},
            {"sam": 0.1},
        )
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 4


def test_augmentation_changes_what_is_learned(data, context):
    plain, augmented = (
        _train(data, context, [range(20)], epochs=1, augmentation=name)[0].model.state_dict()["0.weight"]
        for name in ("none", "crop")
    )
    assert not torch.equal(plain, augmented)


def test_a_vae_learns_and_its_client_uploads_decoder_and_label_counts(data, context):
    logged = []
    context.log.log = lambda metrics, step: logged.append(metrics["clients/00/loss"])
    plan = ClientPlan("mlp", {"latent": 2}, partial(mlp, data.spec, latent=2, hidden=16), kind="cvae")
    adam = partial(torch.optim.Adam, lr=0.01)
    (client,) = train_clients(
        data,
        Partition("given", [np.arange(0, 44)]),
        [plan],
        trainings={"cvae": Training({"epochs": 8, "batch_size": 16, "seed": 0}, adam)},
        context=context,
    )
    assert logged[-1] < logged[0]
    assert client.label_counts == [15, 15, 14]  # labels 0, 1, 2 in turn
    assert client.kind == "cvae"
    images = client.model(torch.zeros(2, 2), torch.tensor([0, 2]))
    assert images.shape == (2, 1, 8, 8)
    assert images.min() >= 0
    assert images[1].mean() > images[0].mean()  # class 2 is brighter


def test_an_architecture_is_trained_its_own_way_where_there_is_one(data, context):
    def key(**rates: float) -> str:
        settings = {"epochs": 1, "batch_size": 16, "seed": 0}
        trainings = {
            name: Training(settings | {"lr": lr}, partial(torch.optim.SGD, lr=lr)) for name, lr in rates.items()
        }
        plan = ClientPlan("cnn2", {"norm": True}, partial(cnn2, data.spec, norm=True))
        partition = Partition("given", [np.arange(20)])
        (client,) = train_clients(data, partition, [plan], trainings=trainings, context=context)
        return client.key

    assert key(classifier=0.1, cnn2=0.01) == key(classifier=0.01) != key(classifier=0.1)
    assert key(classifier=0.1, lenet5=0.01) == key(classifier=0.1)
