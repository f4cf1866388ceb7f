import sys
from copy import deepcopy
from dataclasses import replace
from functools import partial

import pytest
import torch
from opacus.accountants import RDPAccountant
from torch import nn
from torch.nn import functional as F

from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.group_norm import cnn2_group
from oneshot_fl.phases.clients.classifier import Classifier
from oneshot_fl.phases.clients.private import PoissonBatches, PrivateModule, check_private
from oneshot_fl.phases.clients.secret import uniform
from oneshot_fl.phases.clients.training import Training
from oneshot_fl.phases.trainer import trainer_of
from oneshot_fl.seeds import torch_generator
from tests.parts import CPU, SMALL, recipe_of

cnn2_plain = partial(cnn2, norm=False)
PIXELS = DataSpec(1, 1, 2, (0.0,), (1.0,))
TRAINING = Training(
    epochs=3, batch_size=25, optimizer=recipe_of(torch.optim.SGD, lr=0.1), seed=0, epsilon=4.0, delta=0.001, clip=1.0
)
SGD = partial(torch.optim.SGD, lr=1.0)


def _batches(samples, *, spec=PIXELS, batch_size=25):
    images = torch.full((samples, 1, spec.size, spec.size), 255, dtype=torch.uint8)
    rng = torch_generator(0)
    return ImageBatches(images, torch.zeros(samples, dtype=torch.long), spec=spec, batch_size=batch_size, rng=rng)


def _linear():
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 2, bias=False))
    nn.init.zeros_(model[1].weight)
    return model


def test_no_more_is_spent_than_was_allowed_and_not_much_less():
    module = PrivateModule(_linear(), SGD, _batches(100), training=TRAINING)
    assert (module.rate, module.steps) == (0.25, 4)
    module.epoch_losses = [1.0, 1.0, 1.0]
    again = RDPAccountant()
    for _ in range(12):
        again.step(noise_multiplier=module.noise, sample_rate=0.25)
    spent = module.facts()["epsilon"]
    assert spent == pytest.approx(again.get_epsilon(delta=0.001), abs=1e-3)
    assert 3.5 < spent <= 4.0
    assert PrivateModule(_linear(), SGD, _batches(100), training=TRAINING).facts()["epsilon"] == 0.0


def test_communication_rounds_share_what_may_be_spent():
    alone = PrivateModule(_linear(), SGD, _batches(100), training=TRAINING)
    module = PrivateModule(_linear(), SGD, _batches(100), training=replace(TRAINING, communication_rounds=3))
    again, reported = RDPAccountant(), []
    for communication_round in range(3):
        module.epoch_losses = [1.0, 1.0, 1.0]
        for _ in range(12):
            again.step(noise_multiplier=module.noise, sample_rate=0.25)
        reported.append(module.facts(communication_round)["epsilon"])
        assert reported[-1] == pytest.approx(again.get_epsilon(delta=0.001), abs=1e-3)
    assert module.noise > alone.noise
    assert reported[0] < reported[1] < 3.5 < reported[2] <= 4.0


def test_one_sample_moves_the_weights_by_no_more_than_the_clip():
    """At zero weights the gradient is (-1/2, 1/2) x: of length 0.707 a sample, and here 0.1 at most."""
    training = replace(TRAINING, epochs=1, batch_size=2, clip=0.1)
    module = PrivateModule(_linear(), SGD, _batches(2, batch_size=2), training=training)
    module.noise = 0.0
    with trainer_of(module, CPU) as trainer:
        trainer.fit(module, train_dataloaders=range(1))
    moved = module.model[1].weight.detach().flatten()
    assert moved.norm() == pytest.approx(0.1, rel=1e-4)  # mean of two equal gradients
    assert moved.tolist() == pytest.approx([0.0707, -0.0707], abs=1e-3)


def test_without_clipping_and_noise_a_step_is_that_of_the_plain_optimiser():
    """In any memory layout: Opacus unfolds what enters a convolution, behind the first one too, as contiguous."""
    torch.manual_seed(0)
    spec = DataSpec(2, 2, 4, (0.5,) * 2, (0.5,) * 2)
    batches = ImageBatches(
        torch.randint(256, (3, 2, 4, 4), dtype=torch.uint8),
        torch.tensor([0, 1, 1]),
        spec=spec,
        batch_size=3,
        rng=torch_generator(0),
    )
    model = nn.Sequential(nn.Conv2d(2, 3, 2), nn.Tanh(), nn.Conv2d(3, 4, 2), nn.Flatten(), nn.Linear(16, 2))
    plain = deepcopy(model)
    F.cross_entropy(plain(spec.to_input(batches.images)), batches.labels).backward()
    expected = [parameter.detach() - 0.5 * parameter.grad for parameter in plain.parameters()]
    training = replace(TRAINING, epochs=1, batch_size=3, clip=1e6, optimizer=recipe_of(torch.optim.SGD, lr=0.5))
    module = Classifier().module(model, training, batches, spec)
    module.noise = 0.0
    with trainer_of(module, replace(CPU, channels_last=True)) as trainer:
        trainer.fit(module, train_dataloaders=range(1))
    for parameter, wanted in zip(model.parameters(), expected, strict=True):
        torch.testing.assert_close(parameter.detach(), wanted, rtol=1e-4, atol=1e-6)


def test_mixed_precision_changes_nothing():
    """Clipping and noise are as precise as without it: neither is what autocast would compute in bf16."""
    trained = []
    for precision in ("32-true", "bf16-mixed"):
        torch.manual_seed(0)
        module = PrivateModule(cnn2_plain(SMALL), SGD, _batches(8, spec=SMALL), training=replace(TRAINING, epochs=1))
        with trainer_of(module, replace(CPU, precision=precision)) as trainer:
            trainer.fit(module, train_dataloaders=range(1))
        trained.append([parameter.detach() for parameter in module.model.parameters()])
    assert all(map(torch.equal, *trained))


def test_layers_that_overwrite_their_input_train_and_give_the_same():
    """A ReLU right behind a convolution or a linear layer overwrites what Opacus has its hook on."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Flatten(), nn.Linear(1, 4), nn.ReLU(inplace=True), nn.Linear(4, 2))
    x = torch.ones(3, 1, 1, 1)
    expected = model(x).detach()
    module = PrivateModule(model, SGD, _batches(100), training=replace(TRAINING, epochs=1))
    with torch.no_grad():
        assert torch.equal(module.per_sample(x), expected)
    with trainer_of(module, CPU) as trainer:
        trainer.fit(module, train_dataloaders=range(1))
    assert not torch.equal(model(x), expected)


@pytest.mark.parametrize("build", [_linear, partial(cnn2_group, SMALL)])
def test_a_draw_without_a_sample_is_a_step_of_noise_alone(build):
    module = PrivateModule(build(), SGD, _batches(100), training=TRAINING)
    optimizer, before = module.configure_optimizers(), deepcopy(module.model.state_dict())
    empty = (torch.zeros(0, 1, 8, 8), torch.zeros(0, dtype=torch.long))
    loss = module.step(empty, optimizer)
    assert loss == 0
    moved = [(tensor - before[name]).flatten() for name, tensor in module.model.state_dict().items()]
    assert all(each.abs().max() > 0 for each in moved)
    length = module.noise * TRAINING.clip / 25  # of a mean over the 25 samples that a draw is expected to have
    assert torch.cat(moved).square().mean().sqrt() == pytest.approx(length, rel=0.05 if len(moved) > 1 else 2)


def _one_step_of(randomness, *, clip):
    torch.manual_seed(0)
    model, batches = nn.Sequential(nn.Flatten(), nn.Linear(64, 40)), _batches(25, spec=SMALL)
    training = replace(TRAINING, epochs=1, batch_size=25, clip=clip, randomness=randomness, delta=0.01)
    module = PrivateModule(model, SGD, batches, training=training)
    module.noise = 0.0 if clip > 1 else 2.0
    with trainer_of(module, CPU) as trainer:
        trainer.fit(module, train_dataloaders=range(1))
    return model[1].weight.detach()


def test_noise_of_the_systems_is_as_long_as_seeded_noise_and_never_the_same():
    seeded = _one_step_of("seeded", clip=1.0)
    assert torch.equal(seeded, _one_step_of("seeded", clip=1.0))
    one, other = (_one_step_of("system", clip=1.0) for _ in range(2))
    plain = _one_step_of("seeded", clip=1e6)
    torch.testing.assert_close(_one_step_of("system", clip=1e6), plain)  # without noise they are the same
    assert not torch.equal(one, other)
    # of 2 times the clip on the sum, and 2 / 25 on the mean of the 25 samples of a draw
    assert (one - other).std() == pytest.approx(2**0.5 * 2 / 25, rel=0.1)


def test_draws_without_a_sample_end_no_training_of_convolutions():
    """One of 40 samples is expected in each of 40 draws: one draw in three has none."""
    training = replace(TRAINING, epochs=1, batch_size=1)
    module = PrivateModule(cnn2_group(SMALL), SGD, _batches(40, spec=SMALL), training=training)
    drawn = [len(y) for _, y in _drawn(_batches(40, spec=SMALL), module.rate, module.steps)]
    assert 0 in drawn  # of the same generator
    with trainer_of(module, CPU) as trainer:
        trainer.fit(module, train_dataloaders=range(1))
    assert all(tensor.isfinite().all() for tensor in module.model.state_dict().values())


def _drawn(whole, rate, steps):
    return PoissonBatches(whole, rate, steps, draw=partial(torch.rand, generator=whole.rng))


@pytest.mark.parametrize("draw", [None, uniform])
def test_every_sample_is_drawn_with_the_same_probability(draw):
    whole = _batches(1000)
    drawn = [len(y) for _, y in (PoissonBatches(whole, 0.1, 50, draw=draw) if draw else _drawn(whole, 0.1, 50))]
    assert len(set(drawn)) > 10
    assert sum(drawn) / 50 == pytest.approx(100, abs=6)


@pytest.mark.parametrize(("samples", "steps"), [(1, 1), (24, 1), (25, 1), (26, 2), (49 * 25, 49), (98 * 25, 98)])
def test_an_epoch_is_as_many_draws_as_batches_of_all_samples(samples, steps):
    training = replace(TRAINING, epochs=0, delta=1e-4)
    assert PrivateModule(_linear(), SGD, _batches(samples), training=training).steps == steps


@pytest.mark.parametrize(
    ("model", "delta", "says"),
    [
        (partial(cnn2, SMALL, norm=True), 0.001, r"^clients\.epsilon=4: .*batch normalisation.*model=cnn2_group"),
        (_linear, 0.01, r"^clients\.delta=0\.01: a client has 100 samples, .*; set it to 0\.009 or less$"),
    ],
)
def test_what_gives_no_guarantee_is_refused(model, delta, says):
    with pytest.raises(OneshotError, match=says):
        PrivateModule(model(), SGD, _batches(100), training=replace(TRAINING, delta=delta))


@pytest.mark.parametrize("samples", [2, 7, 100, 999, 1437, 60000])
def test_the_delta_that_is_told_is_one_that_says_something(samples):
    with pytest.raises(OneshotError, match=r"^clients\.delta=0\.9: .*set it to [0-9.e-]+ or less$") as told:
        PrivateModule(_linear(), SGD, _batches(samples), training=replace(TRAINING, delta=0.9, epochs=0))
    enough = float(str(told.value).split("set it to ")[1].split()[0])
    assert PrivateModule(_linear(), SGD, _batches(samples), training=replace(TRAINING, delta=enough, epochs=0))


@pytest.mark.parametrize("epsilon", [1e-9, 1e-4, 0.01])
def test_a_guarantee_that_no_noise_gives_is_refused_and_the_line_tells_one_that_some_gives(epsilon):
    with pytest.raises(OneshotError, match=r"^clients\.epsilon=.*delta=0\.001; set it to [0-9.]+ or more") as told:
        PrivateModule(_linear(), SGD, _batches(100), training=replace(TRAINING, epsilon=epsilon))
    enough = float(str(told.value).split("set it to ")[1].split()[0])
    assert PrivateModule(_linear(), SGD, _batches(100), training=replace(TRAINING, epsilon=enough)).noise > 0


def _from(build):
    return Architecture(recipe_of(build, name="theirs"))


class Apart(nn.Module):
    """What is left of each answer without the mean of all."""

    def forward(self, x):
        return x - x.mean(dim=0)


def _with(layer):
    return lambda spec: nn.Sequential(layer(), nn.Flatten(), nn.Linear(spec.size**2, 2))


@pytest.mark.parametrize(
    "mixing",
    [
        partial(nn.BatchNorm2d, 1, track_running_stats=False),
        partial(nn.BatchNorm2d, 1, affine=False, track_running_stats=False),
        partial(nn.InstanceNorm2d, 1, affine=False, track_running_stats=True),
        Apart,
    ],
)
def test_what_mixes_samples_is_refused_however_it_is_written(mixing):
    with pytest.raises(OneshotError, match=r"^model=theirs: .*depends on the other images.*cnn2_group"):
        check_private(_from(_with(mixing)), TRAINING, [100], SMALL)


def test_chance_and_single_samples_statistics_mix_nothing():
    for fine in (partial(nn.Dropout, 0.5), partial(nn.InstanceNorm2d, 1)):
        check_private(_from(_with(fine)), TRAINING, [100], SMALL)


@pytest.mark.parametrize(("channels", "size"), [(1, 28), (3, 32), (3, 64)])
def test_a_gradient_that_is_nothing_but_rounding_is_no_other_one(channels, size):
    """A group of one channel takes a convolution's bias out: what its gradient has is rounding."""
    spec = DataSpec(channels, size, 10, (0.5,) * channels, (0.5,) * channels)
    for seed in range(4):
        check_private(_from(cnn2_group), replace(TRAINING, seed=seed), [100], spec)


def test_a_client_may_have_a_single_class():
    check_private(_from(cnn2_group), TRAINING, [100], replace(SMALL, classes=1))


def test_every_client_is_checked_before_one_trains():
    check_private(_from(cnn2_group), TRAINING, [40, 100], SMALL)
    for samples in ([40, 1000], [1000, 40]):
        with pytest.raises(OneshotError, match=r"^clients\.delta=0\.001: a client has 1000 samples"):
            check_private(_from(cnn2_group), TRAINING, samples, SMALL)


class TooMuch(nn.Module):
    """Has a layer that nothing goes through, or draws or a buffer beside a parameter."""

    def __init__(self, spec: DataSpec, *, what: str) -> None:
        super().__init__()
        self.head = nn.Linear(spec.size**2, spec.classes)
        if what == "layer":
            self.idle = nn.Linear(1, 1)
        else:
            self.scale = nn.Parameter(torch.ones(()))
        if what == "buffer":
            self.register_buffer("seen", torch.zeros(()))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(F.dropout(x).flatten(1))


@pytest.mark.parametrize("what", ["layer", "draws", "buffer"])
def test_a_model_that_opacus_cannot_train_is_named(what):
    architecture = Architecture(recipe_of(TooMuch, what=what, name="theirs"))
    with pytest.raises(OneshotError, match=r"^model=theirs: Opacus cannot train it privately \(.*cnn2_group"):
        check_private(architecture, TRAINING, [100], SMALL)


class ChannelsLastInside(nn.Module):
    """Turns its images itself, so that Opacus unfolds them by the wrong strides."""

    def __init__(self, spec: DataSpec) -> None:
        super().__init__()
        self.body = nn.Sequential(nn.Conv2d(spec.channels, 4, 3), nn.Conv2d(4, 4, 3), nn.Flatten())
        self.head = nn.Linear(4 * (spec.size - 4) ** 2, spec.classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.head(self.body(x.to(memory_format=torch.channels_last)))


def test_a_model_whose_gradient_opacus_gets_wrong_is_named_with_the_layer():
    architecture = Architecture(recipe_of(ChannelsLastInside, name="theirs"))
    line = r"^model=theirs: Opacus cannot train it privately \(the gradient of body\.0\.weight that it adds up"
    with pytest.raises(OneshotError, match=line):
        check_private(architecture, TRAINING, [100], replace(SMALL, channels=2, mean=(0.5,) * 2, std=(0.5,) * 2))


def test_without_opacus_there_is_a_line(monkeypatch):
    monkeypatch.setitem(sys.modules, "opacus", None)
    monkeypatch.delitem(sys.modules, "oneshot_fl.phases.clients.private")
    with pytest.raises(OneshotError, match=r"^clients\.epsilon=4: opacus is missing; pip install"):
        Classifier().module(_linear(), TRAINING, _batches(100), PIXELS)
    with pytest.raises(OneshotError, match=r"^clients\.epsilon=4: opacus is missing; pip install"):
        Classifier().check(_from(cnn2_group), TRAINING, [100], PIXELS)
