"""A method's recipes become a loop."""

from functools import partial

import pytest
import torch
from torch import nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.methods.fedhydra import StratifiedAggregation
from oneshot_fl.parts.decoders import DecoderSource
from oneshot_fl.parts.ensembles import Fixed, LogitAverage, NoTeacher
from oneshot_fl.parts.inits import AsClientsBegan, Average, AverageWhereAlike, Fresh
from oneshot_fl.parts.method import Method, WarmUpRecipe
from oneshot_fl.parts.perturbation import Perturbation
from oneshot_fl.parts.pools import Pool
from oneshot_fl.parts.sources import ProxySource
from oneshot_fl.parts.terms import CrossEntropy, Distillation, LabelCrossEntropy
from tests.parts import recipe_of, server_of

SGD = partial(recipe_of, torch.optim.SGD)
STRATIFIED = recipe_of(StratifiedAggregation, scale=1.0, in_model=True, space="logits")
HARD = recipe_of(Perturbation, epsilon=0.1, direction="sign")


def _method(**slots) -> Method:
    """FedDF's bones: proxy images, the mean of the clients' logits, one term."""
    settings = {
        "init": recipe_of(Fresh),
        "ensemble": recipe_of(LogitAverage),
        "sources": {"images": recipe_of(ProxySource)},
        "pool": recipe_of(Pool, rounds=1, refill=False),
        "student": {"kl": recipe_of(Distillation, weight=1.0, temperature=1.0)},
        "optimizer": SGD(lr=0.1),
    } | slots
    return Method("bones", **settings)


def _server():
    return server_of([nn.Linear(1, 1)], proxy=torch.zeros(2, 1, 8, 8, dtype=torch.uint8), guidance=torch.ones(3, 1))


def test_a_method_needs_what_any_of_its_slots_needs():
    assert Method("m", recipe_of(Fresh)).needs == frozenset()
    assert _method().needs == {"classifiers", "proxy"}
    assert _method(ensemble=STRATIFIED).needs == {"classifiers", "proxy", "guidance", "labels"}
    assert _method(ensemble=None, init=recipe_of(AsClientsBegan)).needs == {"proxy", "clients_start"}
    assert _method(ensemble=None).needs == {"proxy"}
    assert _method(ensemble=None, perturb=HARD).needs == {"proxy", "classifiers"}


def test_a_method_also_uses_classifiers_that_it_begins_at_or_is_warmed_up_by():
    decoders = {"images": recipe_of(DecoderSource, samples=6, split="categorical", bound=None)}
    warm_up = WarmUpRecipe(1, {}, SGD(lr=0.1))
    plain, begins = (Method("m", recipe_of(init), sources=decoders) for init in (Fresh, AverageWhereAlike))
    warmed = Method("m", recipe_of(Fresh), sources=decoders, warm_up=warm_up)
    assert plain.needs == begins.needs == {"decoders"}
    assert [each.uses for each in (plain, begins, warmed)] == [
        {"decoders"}, {"classifiers", "decoders"}, {"classifiers", "decoders"},
    ]  # fmt: skip


def test_a_method_without_a_source_has_no_loop():
    assert Method("average", recipe_of(Average)).loop(_server(), warm_up=True) is None


def test_a_methods_recipes_become_the_parts_of_its_loop():
    slots = {"objective": {"ce": recipe_of(CrossEntropy, weight=2.0)}, "schedule": "cosine"}
    loop = _method(ensemble=STRATIFIED, perturb=HARD, **slots).loop(_server(), warm_up=False)
    assert isinstance(loop.ensemble, StratifiedAggregation)
    assert isinstance(loop.perturb, Perturbation)
    assert [type(source) for source in loop.sources.values()] == [ProxySource]
    assert (loop.pool.refill, loop.schedule, loop.warm_up) == (False, "cosine", None)
    assert (loop.objective.terms["ce"].weight, set(loop.student.terms)) == (2.0, {"kl"})
    weight = nn.Parameter(torch.ones(1))
    assert loop.optimizer([weight]).param_groups[0]["lr"] == 0.1


class _Weighted(Fixed):
    """Clients weighed by what nobody trains."""

    def __init__(self, server):
        super().__init__(server)
        self.weights = nn.Parameter(torch.ones(1))


class _Learning(_Weighted):
    def refit(self, pool, batch_size, rng):
        """Train the weights."""


class _Idle(ProxySource):
    """Has an optimiser and nothing to train."""

    optimizer = torch.optim.SGD


def test_parameters_that_nobody_trains_are_told(capsys):
    for ensemble, told in ((LogitAverage, 0), (_Learning, 0), (_Weighted, 1)):
        _method(ensemble=recipe_of(ensemble)).loop(_server(), warm_up=False)
        assert capsys.readouterr().err.count("oneshot_fl: method.ensemble: has parameters, and nobody trains") == told


def test_a_source_with_an_optimiser_and_nothing_to_train_is_refused():
    with pytest.raises(OneshotError, match=r"^method\.source: images has an optimizer and no parameter .* = None$"):
        _method(sources={"images": recipe_of(_Idle)}).loop(_server(), warm_up=False)


def test_two_servers_share_no_part():
    first, second = (_method().loop(_server(), warm_up=False) for _ in range(2))
    assert first.pool is not second.pool
    assert first.ensemble is not second.ensemble
    assert first.sources["images"] is not second.sources["images"]


def test_without_an_ensemble_nobody_teaches():
    assert isinstance(_method(ensemble=None).loop(_server(), warm_up=False).ensemble, NoTeacher)


def test_a_warm_up_is_made_where_it_is_wanted_and_there_is_one():
    terms = {"ce": recipe_of(LabelCrossEntropy, weight=0.5)}
    method = _method(warm_up=WarmUpRecipe(7, terms, SGD(lr=0.3)))
    assert method.loop(_server(), warm_up=False).warm_up is None
    assert _method().loop(_server(), warm_up=True).warm_up is None
    made = method.loop(_server(), warm_up=True).warm_up
    assert (made.passes, made.objective.terms["ce"].weight) == (7, 0.5)
    assert made.optimizer([nn.Parameter(torch.ones(1))]).param_groups[0]["lr"] == 0.3
