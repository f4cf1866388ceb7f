from dataclasses import replace

import pytest
import torch
from torch import nn

from oneshot_fl.data.dataset import Dataset, make_dataset
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.classifiers import cnn2_torch
from oneshot_fl.parts.attacks import Backdoor, LabelFlip
from oneshot_fl.phases import privacy
from oneshot_fl.phases.clients.classifier import Classifier
from oneshot_fl.phases.clients.train import ClientPlan, train_clients
from oneshot_fl.phases.clients.training import Training
from oneshot_fl.phases.poisoned import poisoned
from oneshot_fl.phases.privacy import Attacked, Audit, Synthetic, measure_privacy
from tests.parts import SMALL, recipe_of

TRAINING = Training(epochs=1, batch_size=16, optimizer=recipe_of(torch.optim.SGD, lr=0.01), seed=0)
AUDIT = Audit(Architecture(recipe_of(cnn2_torch, name="small")), TRAINING, references=2, samples=100)


def _data(*, train=60, test=30, test_label=None):
    """Noise, every label equally often; the first pixel of a training image is white, of a test image black."""
    images = torch.randint(256, (train + test, 1, 8, 8), dtype=torch.uint8)
    images[:train, 0, 0, 0], images[train:, 0, 0, 0] = 255, 0
    labels = torch.arange(train + test) % 3
    theirs = labels[train:] if test_label is None else torch.full((test,), test_label)
    return Dataset("noise", SMALL, ("a", "b", "c"), images[:train], labels[:train], images[train:], theirs)


class KnowsMembers(nn.Module):
    """Sure of the true label of the training images that it was made with, and of nothing else."""

    def __init__(self, data, members):
        super().__init__()
        self.images, self.labels = data.spec.to_input(data.train_images[members]), data.train_labels[members]
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        same = (x[:, None] - self.images[None]).flatten(2).abs().sum(2) < 1e-6
        known = same.float() @ nn.functional.one_hot(self.labels, 3).float()
        return 20 * known + self.weight


def test_who_remembers_is_found_and_who_does_not_is_not(context):
    data = _data()
    first, second = torch.arange(0, 30), torch.arange(30, 60)
    knowing, ignorant = KnowsMembers(data, first), KnowsMembers(data, torch.tensor([0]))
    everybody = torch.arange(60)
    clients = [Attacked(knowing, first), Attacked(ignorant, second)]
    found = measure_privacy(AUDIT, data, ignorant, clients, everybody, {}, context=context)
    knows, ignores = found.clients
    assert knows.samples == ignores.samples == 30
    assert (knows.loss.auc, knows.loss.tpr) == (1.0, 1.0)
    assert knows.lira.auc == 1.0
    assert ignores.loss.auc == 0.5
    assert found.server.samples == 30  # as many as there are test images of the same labels
    assert found.server.loss.auc == pytest.approx(0.5, abs=0.05)


FLIP, PATCH = recipe_of(LabelFlip, clients=1), recipe_of(Backdoor, clients=1, target=0, side=0.2, share=0.5)


def _hostile(data, poison, model_of, context):
    """The last 30 of 60 images are a hostile client's; asked as if it were honest, and about what it trained on."""
    honest = ClientPlan(AUDIT.architecture, TRAINING, Classifier())
    halves = [torch.arange(0, 30), torch.arange(30, 60)]
    changed = poisoned(data, halves, [honest, replace(honest, poison=poison)])
    model = model_of(changed.data, halves[1])
    clients = [Attacked(model, halves[1], hostile=hostile) for hostile in (False, True)]
    server = KnowsMembers(data, torch.tensor([0]))
    found = measure_privacy(AUDIT, data, server, clients, torch.arange(60), {}, changed=changed, context=context)
    return found.clients


def test_a_client_that_trained_on_flipped_labels_is_asked_about_those(context):
    as_honest, as_trained = _hostile(_data(), FLIP, KnowsMembers, context)
    assert as_honest.loss.auc == pytest.approx(1 / 3)  # of three labels one stays; of the others it denies the true one
    assert (as_trained.loss.auc, as_trained.lira.auc) == (1.0, 1.0)


def test_a_client_that_trained_on_patched_images_is_asked_about_those(context):
    as_honest, as_trained = _hostile(_data(), PATCH, KnowsMembers, context)
    assert as_honest.loss.auc == 0.75  # half of the images it does not know without their patch, a draw
    assert as_trained.loss.auc == 1.0


class KnowsThePatch(nn.Module):
    """Says the patch's label of every image that has it, and nothing of all others: it knows no image."""

    def __init__(self, data, members):
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(()))

    def forward(self, x):
        patched = (x[:, 0, -1, -1] == x.max()).float()
        return patched[:, None] * torch.tensor([20.0, 0.0, 0.0]) + self.weight


def test_a_patch_alone_tells_no_member(context):
    """As many of the others are patched, of each class: what the model says of both is the same."""
    data = _data()
    data.train_images[..., -1, -1], data.test_images[..., -1, -1] = 7, 7
    as_honest, as_trained = _hostile(data, PATCH, KnowsThePatch, context)
    assert (as_honest.loss.auc, as_trained.loss.auc) == (0.5, 0.5)
    assert as_trained.samples > 20


def test_lira_asks_how_much_surer_a_model_is_than_references_that_never_saw_the_image(monkeypatch):
    """Of images as hard as these the loss alone tells nothing: members 0 and 2 are harder than all others."""
    hard = torch.tensor([0.0, 10.0, 0.0, 10.0, 6.0, 6.0, 6.0, 6.0])
    member = torch.tensor([True] * 4 + [False] * 4)
    seen = torch.tensor([[True, True, False, False] * 2, [False, False, True, True] * 2])
    remembered = hard + 5 * (seen & member)  # by references too, of which each has seen half of the images
    data = replace(_data(train=8), train_labels=torch.zeros(8, dtype=torch.long))
    pool = privacy._Pool(data, torch.tensor([0, 1, 2, 3, -1, -1, -1, -1]), remembered, seen, data.train_labels)
    monkeypatch.setattr(privacy, "_confidences", lambda model, data, index: (hard + member.float())[index])
    found = privacy._membership(AUDIT, pool, nn.Identity(), torch.arange(4), 0)
    assert (found.loss.auc, found.lira.auc) == (0.5, 1.0)


def test_reference_models_begin_and_draw_as_no_client_does_and_each_otherwise(context, monkeypatch):
    data, asked = _data(), []

    def watched(data, halves, plans, **settings):
        asked.extend(plans)
        return train_clients(data, halves, plans, **settings)

    monkeypatch.setattr("oneshot_fl.phases.privacy.train_clients", watched)
    model = KnowsMembers(data, torch.tensor([0]))
    measure_privacy(replace(AUDIT, references=4), data, model, [], torch.arange(60), {}, context=context)
    seeds = [plan.training.seed for plan in asked]
    assert len({AUDIT.seed, *seeds}) == 5
    starts = [AUDIT.architecture.as_clients_begin(SMALL, seed) for seed in (AUDIT.seed, *seeds)]
    assert len({float(start.state_dict()["1.weight"].sum()) for start in starts}) == 5


def test_copies_of_training_images_are_found(context):
    data = _data()
    model = KnowsMembers(data, torch.tensor([0]))
    copies, other = data.train_images[:20], torch.randint(256, (20, 1, 8, 8), dtype=torch.uint8)
    made = {name: Synthetic(images, torch.arange(20)) for name, images in (("copies", copies), ("noise", other))}
    audit = Audit(AUDIT.architecture, TRAINING, references=2, samples=100)
    found = measure_privacy(audit, data, model, [], torch.arange(20), made, context=context).synthetic
    assert (found["copies"].nearer_to_training, found["copies"].copies) == (1.0, 1.0)
    assert found["noise"].copies < 0.3


def test_copies_are_found_of_whatever_training_image_and_of_those_of_their_clients_alone():
    """However few images are audited: 2 of 60 are drawn for all that needs equally many of both sets."""
    data, audit = _data(), replace(AUDIT, samples=1)
    data.train_images[:20] = 0  # further from all noise than noise is
    copies = data.train_images[:40]

    def found(learned):
        return privacy._memorised(audit, data, Synthetic(copies, learned))

    assert found(torch.arange(60)).copies == 1.0
    assert found(torch.arange(20, 60)).copies == 0.5  # 20 of the 40 are theirs


def test_copies_of_hostile_clients_images_are_of_what_they_trained_on():
    data = _data()
    honest = ClientPlan(AUDIT.architecture, TRAINING, Classifier())
    every = replace(PATCH, make=lambda: Backdoor(clients=1, target=0, side=1.0, share=1.0))  # all white
    changed = poisoned(data, [torch.arange(30), torch.arange(30, 60)], [honest, replace(honest, poison=every)])
    white = Synthetic(torch.full((4, 1, 8, 8), 255, dtype=torch.uint8), torch.arange(60))
    assert privacy._memorised(AUDIT, data, white, changed).copies == 1.0
    assert privacy._memorised(AUDIT, data, replace(white, learned=torch.arange(30)), changed).copies == 0.0


def test_what_a_trigger_makes_alike_is_as_near_to_test_images_as_to_those_of_hostile_clients():
    data = _data()
    plan = ClientPlan(AUDIT.architecture, TRAINING, Classifier())
    every = replace(PATCH, make=lambda: Backdoor(clients=1, target=0, side=1.0, share=1.0))
    changed = poisoned(data, [torch.arange(60)], [replace(plan, poison=every)])
    white = Synthetic(torch.full((4, 1, 8, 8), 255, dtype=torch.uint8), torch.arange(60))
    assert privacy._memorised(AUDIT, data, white, changed).nearer_to_training == 0.5


def test_test_images_are_no_copies_however_many_training_images_there_are():
    """A hundredth of 800 is nearer than the threshold: it lies between the eighth and the ninth of their distances."""
    data, audit = _data(train=3000, test=800), replace(AUDIT, samples=400)
    images = data.test_images.clone()
    images[:, 0, 0, 0] = 255  # as training images have it
    made = Synthetic(images, torch.arange(3000))
    assert privacy._memorised(audit, replace(data, test_images=images), made).copies == 0.01


def test_images_of_clients_without_a_label_of_the_test_set_are_not_compared():
    data = _data(test_label=0)
    ones = (data.train_labels == 1).nonzero().flatten()
    assert privacy._memorised(AUDIT, data, Synthetic(data.train_images[ones], ones)) is None


def test_labels_alone_make_no_copies(context):
    labels = torch.arange(1200) % 2
    noise = torch.randint(64, (1200, 1, 8, 8), dtype=torch.uint8)
    images = noise + 128 * labels.to(torch.uint8).view(-1, 1, 1, 1)
    dark, bright = (labels == 0).nonzero().flatten(), (labels == 1).nonzero().flatten()
    own, others = torch.cat([dark[:300], bright[:100]]), torch.cat([dark[300:400], bright[100:400]])
    data = Dataset("two", SMALL, ("a", "b", "c"), images[own], labels[own], images[others], labels[others])
    model = KnowsMembers(data, torch.tensor([0]))
    made = {
        "bright": Synthetic(images[bright[400:]], torch.arange(400))
    }  # of the class that training images show less often
    found = measure_privacy(AUDIT, data, model, [], torch.arange(400), made, context=context)
    assert found.synthetic["bright"].nearer_to_training == pytest.approx(0.5, abs=0.1)


def test_members_of_another_domain_than_the_test_set_are_not_audited():
    with pytest.raises(OneshotError, match=r"evaluate=privacy: data=noise is tested on a domain"):
        AUDIT.check(replace(_data(), train_domains=torch.zeros(60)))
    AUDIT.check(_data())


def test_a_client_without_a_label_of_the_test_set_cannot_be_audited(context):
    data = _data(test_label=0)
    model = KnowsMembers(data, torch.tensor([0]))
    ones = (data.train_labels == 1).nonzero().flatten()
    found = measure_privacy(AUDIT, data, model, [Attacked(model, ones)], torch.arange(60), {}, context=context)
    assert found.clients == [None]
    with pytest.raises(OneshotError, match=r"^evaluate=privacy: no training image .*samples=100"):
        measure_privacy(AUDIT, data, model, [], ones, {}, context=context)


def test_a_model_that_answers_with_no_numbers_tells_nothing_of_its_members(context):
    data, everybody = _data(), torch.arange(60)
    broken, sound = KnowsMembers(data, torch.tensor([0])), KnowsMembers(data, torch.tensor([0]))
    broken.weight.data.fill_(torch.nan)
    found = measure_privacy(
        AUDIT, data, sound, [Attacked(broken, everybody), Attacked(sound, everybody)], everybody, {}, context=context
    )
    assert found.clients[0] is None
    assert found.clients[1] is not None


def test_a_client_without_an_audited_image_cannot_be_audited(context):
    data, audit = _data(), replace(AUDIT, samples=15)  # 30 of 60 training images are, and all test images
    model = KnowsMembers(data, torch.tensor([0]))
    of_one_image = [Attacked(model, torch.tensor([place])) for place in range(60)]
    found = measure_privacy(audit, data, model, of_one_image, torch.arange(60), {}, context=context).clients
    assert sorted(0 if one is None else one.samples for one in found) == [0] * 30 + [1] * 30


def test_every_pair_of_reference_models_has_halves_of_its_own():
    first, second = (privacy._halves(100, 0, pair) for pair in (0, 1))
    assert sorted(torch.cat(first).tolist()) == list(range(100))
    assert not torch.equal(first[0], second[0])


def test_members_are_matched_by_what_they_show_what_they_were_called_and_whether_they_were_changed(spec):
    images, labels = torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 1, 1])
    true = make_dataset(
        name="true", train=(images, labels), test=(images, labels), class_names=("a", "b"), mean=[0.5], std=[0.5]
    )
    changed = images.clone()
    changed[3] = 255
    trained_on = replace(true, train_images=changed, train_labels=torch.tensor([0, 1, 0, 1]))
    assert privacy._kinds(true, trained_on).tolist() == [0, 2 * 3, 2 * 2, 2 * 3 + 1]
