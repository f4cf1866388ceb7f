"""The loop: what a round does, and that an interrupted one goes on bit for bit."""

from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn

from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.dataset import DataSpec, make_dataset
from oneshot_fl.methods.co_boosting import BoostedWeights, Perturbation
from oneshot_fl.methods.fedmho import SelfDistillation
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.generators import ConvGenerator
from oneshot_fl.parts.ensembles import LogitAverage
from oneshot_fl.parts.inits import Average, Fresh
from oneshot_fl.parts.pools import Pool
from oneshot_fl.parts.slots import Loop, Method, WarmUp
from oneshot_fl.parts.sources import GeneratorSource
from oneshot_fl.parts.terms import Adversarial, BatchNormStatistics, CrossEntropy, Distillation, Objective
from oneshot_fl.parts.uploads import Uploads
from oneshot_fl.phases.checkpoint import RoundCheckpoint
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.distill import distill, frozen
from oneshot_fl.seeds import seeded
from oneshot_fl.store import Store

SPEC = DataSpec(1, 8, 3, (0.5,), (0.5,))
SETTINGS = {"rounds": 4, "batch_size": 8, "bank": "auto", "clients_at_once": 16, "images": 12, "seed": 5}
OPTIMIZERS = {
    "source": partial(torch.optim.Adam, lr=0.01),
    "student": partial(torch.optim.SGD, lr=0.05, momentum=0.9),
}


@pytest.fixture
def data():
    images = torch.randint(256, (30, 1, 8, 8), dtype=torch.uint8)
    labels = torch.arange(30) % 3
    return make_dataset(
        name="random", train=(images, labels), test=(images, labels), class_names=("a", "b", "c"), mean=[0.5], std=[0.5]
    )


@pytest.fixture
def uploads():
    models = [cnn2(SPEC, norm=True) for _ in range(2)]
    for model in models:
        model(torch.randn(64, 1, 8, 8))
    return Uploads(models, [10, 20])


def _student() -> nn.Module:
    with seeded(9, "student"):
        return cnn2(SPEC, norm=True)


def _method(uploads: Uploads, *, reset: bool = False, pool_rounds: int | None = None) -> Method:
    source = GeneratorSource(
        ConvGenerator(SPEC, noise=6, width=4), classes=3, batch_size=8, steps=2, reset=reset, keep="last"
    )
    objective = Objective(
        {
            "ce": CrossEntropy(1.0),
            "bn": BatchNormStatistics(1.0),
            "adv": Adversarial(1.0, temperature=1.0, only_disagreement=False),
        }
    )
    student = Objective({"kl": Distillation(1.0, temperature=1.0)})
    return Method(
        Fresh(), Loop(LogitAverage(uploads), source, objective, Pool(rounds=pool_rounds), student, OPTIMIZERS)
    )


def _distill(data, uploads, context, method, **options):
    test = ImageBatches(data.test_images, data.test_labels, spec=SPEC, batch_size=16)
    settings = SETTINGS | options
    return distill(
        data,
        test,
        uploads,
        method,
        student=_student,
        inputs={"uploads": "fixed"},
        settings=settings,
        context=context,
    )


def _same(first: nn.Module, second: nn.Module) -> bool:
    a, b = first.state_dict(), second.state_dict()
    return all(torch.equal(a[name], b[name]) for name in a)


def test_every_round_leaves_a_row_and_the_student_learns(data, uploads, context):
    server = _distill(data, uploads, context, _method(uploads))
    assert [row["round"] for row in server.history] == [1, 2, 3, 4]
    assert set(server.history[0]["generator"]) == {"ce", "bn", "adv"}
    assert server.history[0]["generator"]["bn"] > 0
    assert set(server.history[0]["student"]) == {"kl"}
    assert not _same(server.model, _student())


def test_some_of_the_newest_images_are_kept_as_bytes_and_choosing_them_draws_nothing(data, uploads, context):
    method = _method(uploads)
    kept = _distill(data, uploads, context, method)
    assert (kept.images.shape, kept.images.dtype) == ((12, 1, 8, 8), torch.uint8)
    assert kept.labels.tolist() == sorted(kept.labels.tolist())
    newest = torch.cat([entry.x for entry in list(method.loop.pool.entries)[2:]])  # 16 images in two rounds
    assert {tuple(image.tolist()) for image in kept.images.flatten(1)} <= {
        tuple(image.tolist()) for image in SPEC.to_bytes(newest).flatten(1)
    }
    fewer = _distill(data, uploads, context, _method(uploads), images=3)
    assert len(fewer.images) == 3
    assert fewer.history == kept.history
    assert _same(fewer.model, kept.model)


def test_clients_are_left_as_they_were_uploaded(data, uploads, context):
    before = [{name: t.clone() for name, t in model.state_dict().items()} for model in uploads.models]
    _distill(data, uploads, context, _method(uploads))
    for state, model in zip(before, uploads.models, strict=True):
        assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())


def _broken(data, uploads, context, method, folder, after: int):
    """A run that dies after some rounds, and the run that goes on from there in the same store."""
    broken = Context(Store(folder), context.trainer, context.progress, context.log)
    save = RoundCheckpoint.on_train_epoch_end

    def die(self, trainer, module):
        save(self, trainer, module)
        if len(module.history) == after:
            raise RuntimeError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoundCheckpoint, "on_train_epoch_end", die)
        with pytest.raises(RuntimeError, match="killed"):
            _distill(data, uploads, broken, method())
    return _distill(data, uploads, broken, method())


@pytest.mark.parametrize("after", [2, SETTINGS["rounds"]])
@pytest.mark.parametrize(("reset", "pool_rounds"), [(False, None), (True, 2)])
def test_a_broken_run_goes_on_bit_for_bit(data, uploads, context, tmp_path, reset, pool_rounds, after):
    def method() -> Method:
        return _method(uploads, reset=reset, pool_rounds=pool_rounds)

    unbroken = _distill(data, uploads, context, method())
    resumed = _broken(data, uploads, context, method, tmp_path / "other", after)
    assert resumed.history == unbroken.history
    assert _same(resumed.model, unbroken.model)
    assert torch.equal(resumed.images, unbroken.images)


def test_an_ensemble_that_learns_goes_on_bit_for_bit_and_is_handed_over(data, uploads, context, tmp_path):
    def method() -> Method:
        loop = _method(uploads).loop
        ensemble = BoostedWeights(uploads, step=0.05, decay=0.9, per="batch", include_newest=False, normalise=True)
        return Method(
            Fresh(), replace(loop, ensemble=ensemble, perturb=Perturbation(SPEC, epsilon=0.02, direction="sign"))
        )

    unbroken = _distill(data, uploads, context, method())
    resumed = _broken(data, uploads, context, method, tmp_path / "other", 3)
    assert unbroken.ensemble["weights"].tolist() != [0.5, 0.5]
    assert resumed.history == unbroken.history
    assert _same(resumed.model, unbroken.model)
    assert torch.equal(resumed.ensemble["weights"], unbroken.ensemble["weights"])


def test_what_a_warm_up_made_of_the_student_is_what_it_began_as_also_after_a_break(data, uploads, context, tmp_path):
    def method() -> Method:
        loop = _method(uploads, pool_rounds=1).loop
        held = Objective({"kl": Distillation(1.0, temperature=1.0), "sd": SelfDistillation(1.0, per_class=False)})
        warm_up = WarmUp(3, Objective({"kl": Distillation(1.0, temperature=1.0)}))
        optimizers = {**OPTIMIZERS, "warm_up": partial(torch.optim.Adam, lr=0.01)}
        return Method(Fresh(), replace(loop, student=held, warm_up=warm_up, optimizers=optimizers))

    unbroken = _distill(data, uploads, context, method())
    resumed = _broken(data, uploads, context, method, tmp_path / "other", 2)
    assert [len(row["warm_up"]) for row in unbroken.history] == [1, 0, 0, 0]
    assert unbroken.history[0]["student"]["sd"] < unbroken.history[0]["warm_up"]["kl"]
    assert resumed.history == unbroken.history
    assert _same(resumed.model, unbroken.model)


def test_a_method_without_a_loop_is_its_init(data, uploads, context):
    server = _distill(data, uploads, context, Method(Average(), loop=None))
    assert _same(server.model, Average()(_student(), uploads))
    assert (server.history, server.images) == ([], None)


def test_frozen_blocks_gradients_and_running_statistics_and_then_lets_go():
    model = cnn2(SPEC, norm=True)
    before = model[1].running_mean.clone()
    with frozen(model):
        x = torch.randn(4, 1, 8, 8, requires_grad=True)
        model(x).sum().backward()
    assert x.grad is not None
    assert all(parameter.grad is None and parameter.requires_grad for parameter in model.parameters())
    assert torch.equal(model[1].running_mean, before)
    assert model.training
