"""Algorithm 2: stacked generators equal the sequential algorithm, written here as the paper writes it."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.methods.fedhydra import normalised_columns, normalised_rows
from oneshot_fl.models.aligned import AlignedClassifier
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.generators import ConvGenerator
from oneshot_fl.parts.uploads import ClassifierUpload, Uploads
from oneshot_fl.phases import stratify as phase
from oneshot_fl.phases.stratify import Stratification, stratify
from oneshot_fl.seeds import torch_generator
from tests.parts import CPU, recipe_of, uploads_of

SPEC = DataSpec(1, 8, 4, (0.5,), (0.5,))
ADAM = recipe_of(torch.optim.Adam, lr=0.001, betas=(0.5, 0.999))
GENERATOR = recipe_of(ConvGenerator, noise=6, width=4)
SETTINGS = Stratification(steps=4, batch_size=8, classes_at_once="auto", min_loss=1e-8, optimizer=ADAM, seed=3)


@pytest.fixture
def clients() -> Uploads:
    models = [cnn2(SPEC, norm=True) for _ in range(2)]
    for model in models:
        model(torch.randn(64, 1, 8, 8))
        model.eval()
    return uploads_of(models, [10, 10])


def _run(clients, context, **options):
    settings = replace(SETTINGS, **options)
    return stratify(clients, spec=SPEC, generator=GENERATOR, settings=settings, context=context)


def _algorithm_2(clients: Uploads, optimizer_of=ADAM) -> torch.Tensor:
    U = torch.zeros(4, len(clients.models))
    for k, client in enumerate(clients.models):
        for j in range(4):
            rng = torch_generator(SETTINGS.seed, "stratify")
            generator = GENERATOR(spec=SPEC)
            generator.reset(rng)
            z = torch.randn(SETTINGS.batch_size, 6, generator=rng)
            y = torch.full((SETTINGS.batch_size,), j)
            optimizer = optimizer_of(generator.parameters())
            losses = []
            for _ in range(SETTINGS.steps):
                loss = F.cross_entropy(client(generator(z)), y)
                losses.append(loss.item())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            U[j, k] = (max(losses) - min(losses)) / min(losses)
    return U


def test_stacked_classes_compute_in_mixed_precision_too(clients, context):
    """Autocast does not reach through vmap: the generators' products would be in single precision."""
    apart = replace(context.store, context={"precision": "bf16-mixed"})
    mixed = replace(context, trainer=replace(CPU, precision="bf16-mixed"), store=apart)
    single, one_by_one, stacked = (
        _run(clients, where, classes_at_once=at_once).U for where, at_once in ((context, 4), (mixed, 1), (mixed, 4))
    )
    assert not torch.equal(stacked, single)
    assert (stacked - one_by_one).abs().max() < 0.1 * one_by_one.abs().max()


def test_stacked_equals_sequential_where_the_size_of_a_gradient_counts(clients, context):
    """Adam's steps are the same for a mean over classes as for a sum."""
    sgd = recipe_of(torch.optim.SGD, lr=0.1)
    expected = _algorithm_2(clients, sgd)
    assert expected.min() > 0
    assert_close(_run(clients, context, classes_at_once=4, optimizer=sgd).U, expected, rtol=1e-3, atol=1e-5)


@pytest.mark.parametrize("at_once", [1, 3, 4, "auto"])
def test_stacked_equals_sequential(clients, context, at_once):
    expected = _algorithm_2(clients)
    assert expected.min() > 0
    assert_close(_run(clients, context, classes_at_once=at_once).U, expected, rtol=1e-3, atol=1e-5)


def test_finished_groups_of_classes_are_not_measured_again_and_counted_once(clients, context, monkeypatch, clock):
    again = replace(context, store=replace(context.store, root=context.store.root / "other"))
    whole, calls, real = _run(clients, context, classes_at_once=1), [], phase._measure

    def dies_on_the_third(*args):
        calls.append(args[-1].tolist())
        if len(calls) == 3:
            raise KeyboardInterrupt
        clock.tick()
        return real(*args)

    monkeypatch.setattr(phase, "_measure", dies_on_the_third)
    with pytest.raises(KeyboardInterrupt):
        _run(clients, again, classes_at_once=1)
    resumed = _run(clients, again, classes_at_once=1)
    assert calls[:5] == [[0], [1], [2], [2], [3]]
    assert torch.equal(resumed.U, whole.U)
    assert resumed.spent.cost.macs == whole.spent.cost.macs > 0
    assert resumed.spent.cost.seconds == 8  # a group of one class takes one


OF_TWO = DataSpec(1, 8, 2, (0.5,), (0.5,))


def _naming_two(model: nn.Module, key: str) -> ClassifierUpload:
    """A client of the classes 3 and 1, in this order, as the server has it."""
    aligned = AlignedClassifier(model, OF_TWO, SPEC, [None, 1, None, 0]).eval()
    return ClassifierUpload(aligned, 10, key, name=key, unknown=(0, 2))


def _of_two() -> nn.Module:
    model = cnn2(OF_TWO, norm=True)
    model(torch.randn(64, 1, 8, 8))
    return model.eval()


def test_a_client_is_measured_on_its_own_classes_as_if_there_were_no_others(context):
    model = _of_two()
    named = _run(Uploads((_naming_two(model, "named"),)), context).U
    alone = stratify(uploads_of([model], [10]), spec=OF_TWO, generator=GENERATOR, settings=SETTINGS, context=context).U
    assert named[[0, 2]].tolist() == [[0.0], [0.0]]
    assert_close(named[[3, 1]], alone, rtol=1e-4, atol=0)


def test_a_class_that_nobody_shows_is_left_to_those_who_have_an_output_for_it(clients, context):
    uploads = Uploads((*clients.classifiers, _naming_two(_of_two(), "third")))
    still = _run(uploads, context, steps=1).U  # no loss moves in one step
    thirds = [1 / 3, 1 / 3, 1 / 3]
    assert_close(normalised_rows(still), torch.tensor([[0.5, 0.5, 0.0], thirds, [0.5, 0.5, 0.0], thirds]))
    assert_close(normalised_columns(still)[:, 2], torch.tensor([0.0, 0.5, 0.0, 0.5]))


def test_the_client_is_not_changed(clients, context):
    before = {name: tensor.clone() for name, tensor in clients.models[0].state_dict().items()}
    _run(clients, context)
    after = clients.models[0].state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)


def test_a_diverged_generator_names_the_learning_rate_and_is_not_stored(clients, context):
    with pytest.raises(OneshotError, match=r"^stratification diverged: .*lower stratify\.optimizer\.lr=1e\+30$"):
        _run(clients, context, optimizer=recipe_of(torch.optim.Adam, lr=1e30))
    assert not list(context.store.root.glob("stratify/*/manifest.json"))


@pytest.mark.parametrize("steps", [1, 2])
def test_a_matrix_that_tells_nothing_apart_is_told_of(clients, context, monkeypatch, steps):
    told = []
    monkeypatch.setattr(context.progress, "note", told.append)
    assert bool(_run(clients, context, steps=steps).U.any()) == (not told) == (steps > 1)


def test_a_column_depends_on_its_own_client_only(clients, context):
    both = _run(clients, context)
    first = _run(Uploads(clients.classifiers[:1]), context)
    assert first.keys == both.keys[:1]
    assert torch.equal(first.U[:, 0], both.U[:, 0])
