"""Attacks do what they are called; what they are given stays as it is."""

from contextlib import nullcontext

import pytest
import torch
from torch import nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.parts.attacks import (
    Backdoor,
    ConstantVoter,
    Copycat,
    FreeRider,
    LabelFlip,
    NegativeVariance,
    Noisy,
    Scaled,
    check_trigger,
    plants_a_trigger,
    poisons,
)
from tests.composing import run_config
from tests.parts import SMALL, recipe_of, uploads_of


@pytest.fixture
def uploads():
    models = [cnn2(SMALL, norm=True) for _ in range(3)]
    for model in models:
        model(torch.randn(8, 1, 8, 8))
    return uploads_of([model.eval() for model in models], [1, 2, 3])


def _last(attack, uploads) -> nn.Module:
    after = attack(uploads)
    assert after.classifiers[:2] == uploads.classifiers[:2]
    return after.classifiers[2].model


def test_weights_are_scaled_and_running_statistics_are_not(uploads):
    before, after = uploads.models[2], _last(Scaled(factor=-2.0, clients=1), uploads)
    assert torch.equal(after[0].weight, -2 * before[0].weight)
    assert torch.equal(after[1].running_mean, before[1].running_mean)


def test_noise_is_drawn_from_a_seed_of_its_own(uploads):
    torch.manual_seed(0)
    first, again, other = (_last(Noisy(deviation=1.0, clients=1, seed=seed), uploads) for seed in (1, 1, 2))
    assert torch.equal(first[0].weight, again[0].weight)
    assert not torch.equal(first[0].weight, other[0].weight)


def test_noise_is_measured_by_the_weights_that_it_is_added_to(uploads):
    before = uploads.models[2]
    with torch.no_grad():
        before[0].weight.mul_(100.0)
    added = (_last(Noisy(deviation=0.5, clients=1), uploads)[0].weight - before[0].weight).detach()
    usual = before[0].weight.detach().square().mean().sqrt()
    assert float(added.std() / usual) == pytest.approx(0.5, rel=0.2)


def test_a_copycat_copies_the_first_client_of_its_architecture(uploads):
    plain, other = (cnn2(SMALL, norm=False).eval() for _ in range(2))
    mixed = uploads_of([uploads.models[0], plain, other], [1, 1, 1])
    for after in (
        Copycat(clients=1)(mixed).models[2],
        Copycat(clients=1)(uploads_of([plain, other], [1, 1])).models[1],
    ):
        assert all(torch.equal(one, copied) for one, copied in zip(plain.parameters(), after.parameters(), strict=True))
    assert not torch.equal(plain[0].weight, other[0].weight)


@pytest.mark.parametrize("hostile", [1, 2])
def test_copycats_without_an_honest_client_of_their_architecture_are_refused(uploads, hostile):
    plain = [cnn2(SMALL, norm=False).eval() for _ in range(hostile)]
    mixed = uploads_of([uploads.models[0], *plain], [1] * (1 + hostile))
    with pytest.raises(OneshotError, match=r"attack=copycat: no honest client has the architecture"):
        Copycat(clients=hostile)(mixed)


def test_a_constant_voter_says_one_class(uploads):
    answers = _last(ConstantVoter(spec=SMALL, chosen=1, logit=9.0, clients=1), uploads)(torch.randn(4, 1, 8, 8))
    assert answers.tolist() == [[0.0, 9.0, 0.0]] * 4
    with pytest.raises(OneshotError, match=r"attack\.chosen=7"):
        ConstantVoter(spec=SMALL, chosen=7, logit=9.0, clients=1).check(7)


class _HeadFirst(nn.Module):
    """Its head was defined before the layer that runs before it."""

    def __init__(self, classes: int) -> None:
        super().__init__()
        self.head, self.features = nn.Linear(64, classes), nn.Linear(64, 64)

    def forward(self, x):
        return self.head(self.features(x.flatten(1)))


def test_a_constant_voters_head_is_the_layer_that_runs_last():
    attack = ConstantVoter(spec=SMALL, chosen=2, logit=9.0, clients=1)
    (tampered,) = attack(uploads_of([_HeadFirst(3)], [1])).models
    assert tampered(torch.randn(4, 1, 8, 8)).tolist() == [[0.0, 0.0, 9.0]] * 4
    with pytest.raises(OneshotError, match=r"attack=constant_voter: .* whose outputs are the classes"):
        attack(uploads_of([nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Unflatten(1, (2, 2)))], [1]))


class _Attends(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.place, self.attention = nn.Parameter(torch.full((1, 1, 8), 3.0)), nn.MultiheadAttention(8, 2)


def test_a_free_rider_keeps_nothing_that_was_trained():
    model = _Attends()
    for parameter in model.parameters():
        nn.init.constant_(parameter, 3.0)
    (rider,) = FreeRider(clients=1)(uploads_of([model], [1])).models
    assert not [name for name, each in rider.named_parameters() if bool((each == 3.0).all())]
    assert 1.0 < float(rider.place.detach().square().mean().sqrt()) < 6.0


def test_a_model_without_running_variances_is_refused_where_they_are_attacked():
    plain = uploads_of([cnn2(SMALL, norm=False)], [1])
    with pytest.raises(OneshotError, match=r"attack=negative_variance: .*no running variances"):
        NegativeVariance(clients=1)(plain)


def test_variances_free_riders_and_copies(uploads):
    assert float(_last(NegativeVariance(clients=1), uploads)[1].running_var.max()) < 0
    rider = _last(FreeRider(clients=1), uploads)
    assert rider[1].running_mean.tolist() == [0.0] * 16
    assert not torch.equal(rider[0].weight, uploads.models[2][0].weight)
    assert torch.equal(_last(Copycat(clients=1), uploads)[0].weight, uploads.models[0][0].weight)


def test_more_hostile_clients_than_there_are_are_all_of_them(uploads):
    after = Scaled(factor=2.0, clients=9)(uploads)
    assert [len(after.classifiers), after.classifiers[0].model is uploads.models[0]] == [3, False]


def test_labels_are_turned_around():
    images = torch.zeros(3, 1, 8, 8, dtype=torch.uint8)
    assert LabelFlip(clients=1)(images, torch.tensor([0, 1, 4]), 5)[1].tolist() == [4, 3, 0]


def test_a_backdoor_marks_a_share_of_the_images_and_gives_them_its_label():
    backdoor = Backdoor(clients=1, target=2, side=0.25, share=0.5)
    images, labels = torch.zeros(8, 1, 8, 8, dtype=torch.uint8), torch.ones(8, dtype=torch.long)
    x, y = backdoor(images, labels, 3)
    marked = y == 2
    assert int(marked.sum()) == 4
    assert (x[marked][..., -2:, -2:] == 255).all()
    assert int(x[marked].sum()) == 4 * 4 * 255
    assert int(x[~marked].sum()) == 0


@pytest.mark.parametrize("share", [0.01, 0.05, 0.1, 0.2, 0.3, 0.5, 1])
def test_a_backdoor_marks_as_many_images_as_its_share_says(share):
    backdoor = Backdoor(clients=1, target=2, side=0.25, share=share)
    _, y = backdoor(torch.zeros(1000, 1, 8, 8, dtype=torch.uint8), torch.ones(1000, dtype=torch.long), 3)
    assert int((y == 2).sum()) == round(1000 * share)
    assert int((y[:500] == 2).sum()) == round(500 * share)


@pytest.mark.parametrize(("attack", "key"), [("backdoor", "target"), ("constant_voter", "chosen")])
def test_a_label_that_there_is_not_is_refused_before_anybody_trains(attack, key, tiny, tmp_path):
    with pytest.raises(OneshotError, match=rf"^attack\.{key}=10: the data have 10 classes; choose one of 0 to 9$"):
        run_config(tiny("method=fedavg", f"attack={attack}", f"attack.{key}=10"), tmp_path / "run")
    assert not list(tmp_path.glob("store/client*"))


class Striped(LabelFlip):
    """Somebody else's: the first row of every image is white."""

    def triggered(self, images):
        return torch.cat([torch.full_like(images[..., :1, :], 255), images[..., 1:, :]], dim=-2)


@pytest.mark.parametrize(("attack", "plants"), [(Backdoor, True), (Striped, True), (LabelFlip, False)])
def test_whatever_marks_images_plants_a_trigger(attack, plants):
    assert plants_a_trigger(recipe_of(attack)) is plants
    assert poisons(recipe_of(attack))


@pytest.mark.parametrize(
    ("target", "line"),
    [(3, r"the data have 3 classes; choose one of 0 to 2$"), (2, r"all test images are of that class"), (1, None)],
)
def test_a_trigger_needs_a_class_of_the_data_and_test_images_of_another(target, line):
    trigger = Backdoor(clients=1, target=target, side=0.2, share=0.5)
    with nullcontext() if line is None else pytest.raises(OneshotError, match=rf"^attack\.target={target}: {line}"):
        check_trigger(trigger, 3, torch.tensor([2, 2]))


def test_noise_is_measured_by_the_size_of_the_weights_and_not_by_their_spread():
    model = nn.Linear(2, 3)
    for parameter in model.parameters():
        nn.init.constant_(parameter, 5.0)
    torch.manual_seed(0)
    with torch.no_grad():
        Noisy(deviation=0.1, clients=1).tamper(model, None)
    assert 0.1 < (model.weight - 5).abs().mean() < 1  # of weights that are all alike the deviation is 0


def test_the_smallest_patch_is_a_pixel():
    patched = Backdoor(clients=1, target=0, side=0.01, share=1.0).triggered(torch.zeros(1, 1, 8, 8, dtype=torch.uint8))
    assert (patched == 255).sum() == 1
    assert patched[0, 0, -1, -1] == 255
