"""Sources, pools and warm-ups in conf/ keep what the loop relies on."""

import pytest
import torch

from oneshot_fl.config import experiment_of
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.generators import Pixels
from oneshot_fl.parts.pools import Entry, joined
from oneshot_fl.parts.slots import Made, Source, Turn
from oneshot_fl.parts.uploads import Server
from oneshot_fl.phases.distill import DistillModule
from oneshot_fl.phases.trainer import trainer_of
from tests.composing import clients_of, composed
from tests.contract.choices import SLOTS, THEIRS, choices
from tests.contract.test_slots import recipe_at, server_with
from tests.parts import CPU, server_of


def _images(source: Source, seed: int) -> Made:
    """One round after another source, which has made three grey images."""
    rng = torch.Generator().manual_seed(seed)
    source.begin(rng)
    before = (torch.full((3, 1, 8, 8), 0.5) * torch.arange(3).view(3, 1, 1, 1),)
    answers = torch.arange(10.0)
    score = lambda x, y, teacher=None: x.square().mean()  # noqa: E731
    return source.make(Turn(score, lambda loss: None, lambda x, y: answers.expand(len(x), -1), rng, before))


def _states(server: Server) -> list[torch.Tensor]:
    uploads = (*server.uploads.classifiers, *server.uploads.decoders)
    return [tensor.clone() for upload in uploads for tensor in upload.model.state_dict().values()]


@pytest.mark.parametrize("name", choices("method/source", 11))
def test_a_source_makes_labelled_images_from_its_seed_and_leaves_the_uploads_alone(name):
    found = recipe_at("method/source", name)
    server = server_with(*found.needs)
    before, source = _states(server), found(server)
    (x, y, _), (again, *_), (other, *_) = (_images(source, seed) for seed in (0, 0, 1))
    assert x.shape[1:] == (1, 8, 8)
    assert not x.requires_grad
    assert x.min() >= -1.001 or isinstance(getattr(source, "generator", None), Pixels)  # free pixels have no range
    assert torch.equal(x, again)
    given = {"proxy", "recitals"} & found.needs  # images that are there before the first round are what they are
    assert torch.equal(x, other) is bool(given)
    assert (y is None) is getattr(found.target, "unlabelled", False)
    if counted := getattr(found.target, "counted_by", None):
        assert len(x) <= found.settings[counted]
    if y is not None:
        assert len(y) == len(x)
        assert 0 <= y.min() <= y.max() <= 9
    assert (source.optimizer is None) is not any(True for _ in source.parameters())
    assert all(torch.equal(old, new) for old, new in zip(before, _states(server), strict=True))


@pytest.mark.parametrize("name", choices("method/pool", 4))
def test_a_pool_hands_out_what_entered_it_shuffled_by_its_seed_or_in_order(name):
    pool = recipe_at("method/pool", name)(server_of())
    x, y = torch.rand(30, 1, 8, 8), torch.arange(30) % 3
    for _ in range(2):
        if not pool.closed:
            pool.add(Entry(pool.pack(x), y, x.flatten(1), torch.ones(30)))
    passes = [list(pool.batches(7, torch.Generator().manual_seed(seed))) for seed in (0, 0, 1)]
    assert all(torch.equal(entry.x.flatten(1), entry.answers) for entry in passes[0])
    assert all(torch.equal(one.y, other.y) for one, other in zip(*passes[:2], strict=True))
    assert torch.equal(passes[0][0].x, passes[2][0].x) is not pool.shuffle
    assert sum(len(entry.y) for entry in passes[0]) == sum(len(entry.y) for entry in pool.entries)


WITH_WARM_UP = sorted(name for name, slots in SLOTS.items() if slots.get("warm_up"))


@pytest.mark.parametrize("method", WITH_WARM_UP)
@pytest.mark.parametrize("name", choices("method/warm_up", 1))
def test_a_warm_up_is_made_where_architectures_differ_only(name, method):
    overrides = (f"method={method}", f"method/warm_up={name}", "distill.rounds=7", *clients_of(method))
    recipes = experiment_of(composed(*overrides)).method
    server = server_with(*recipes.needs, "classifiers")
    assert recipes.loop(server, warm_up=False).warm_up is None
    made = recipes.loop(server, warm_up=True).warm_up
    assert made.passes == 7
    assert made.objective.terms
    assert isinstance(made.optimizer(cnn2(server.spec, norm=True).parameters()), torch.optim.Optimizer)


def test_the_glob_sees_methods_with_a_warm_up():
    assert len(WITH_WARM_UP) >= 3


def test_named_sources_fill_one_pool():
    """Two sources of somebody else's method: 60 images by the clients' labels, 40 evenly over the classes."""
    (name,) = [name for name in THEIRS if "_target_" not in SLOTS[name]["source"]]
    experiment = experiment_of(composed(f"method={name}", *clients_of(name)))
    server = server_with(*experiment.method.needs)
    loop = experiment.method.loop(server, warm_up=False)
    made = {own: _images(source, 0) for own, source in loop.sources.items()}
    assert set(made) == {"often", "evenly"}
    module = DistillModule(
        cnn2(server.spec, norm=True), ClientBank([]), loop, spec=server.spec, settings=experiment.distillation
    )
    with trainer_of(module, CPU) as trainer:
        trainer.fit(module, train_dataloaders=range(1))
    (entry,) = loop.pool.entries
    sizes = [len(each.x) for each in made.values()]
    assert len(entry.y) == sum(sizes)
    assert sizes == [2 * sum(30 * label // 55 for label in range(1, 11)), 40]  # each decoder half; counts 1 to 10


def test_what_several_sources_made_is_one_batch_in_their_order():
    entries = [
        Entry(torch.full((n, 1), float(n)), torch.full((n,), n), torch.full((n, 2), float(n)), torch.ones(n))
        for n in (1, 2)
    ]
    whole = joined(entries)
    assert whole.y.tolist() == [1, 2, 2]
    assert whole.x.flatten().tolist() == [1.0, 2.0, 2.0]
    assert whole.answers[:, 1].tolist() == [1.0, 2.0, 2.0]
    assert joined(entries[:1]) is entries[0]
