import json
import sys
from pathlib import Path

import pytest

from oneshot_fl.config import experiment_of
from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.about import about
from oneshot_fl.reporting.tables.differences import at
from tests.composing import compose_config
from tests.wandb_promised import KEYS

pytest.importorskip("wandb_workspaces")

from oneshot_fl.tracking.dashboard import ROW, SPREAD, parts, report, save, specification


@pytest.fixture(autouse=True)
def no_network(monkeypatch):
    """Whatever would ask W&B fails the test."""
    import wandb

    def refuse(*args, **named):
        raise AssertionError("asked W&B")

    monkeypatch.setattr(wandb, "Api", refuse)


def _walk(node):
    if isinstance(node, dict):
        yield from node.items()
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from _walk(inner)


def _shown(spec):
    """The keys that panels read, without W&B's own marks of where they lie."""
    lists = [each for key, value in _walk(spec) if key in ("metrics", "mediaKeys") for each in value]
    axes = [value for key, value in _walk(spec) if key in ("xAxis", "yAxis") and value != "_step"]
    tables = [value for key, value in _walk(spec) if key == "val" and "/" in str(value)]
    return {name.removeprefix("summary_metrics.").removeprefix("summary:") for name in (*lists, *axes, *tables)}


def test_the_specification_is_built_offline_and_shows_only_what_runs_log():
    spec = specification("p", "e")
    shown = _shown(spec["report"])
    assert {"server/accuracy_last", "distill/accuracy", "distill/images", "guidance/matrix"} <= shown <= KEYS
    assert _shown(spec["workspace"]) == shown


def _logged(*overrides):
    """The configuration that W&B is told of a run."""
    return about(experiment_of(compose_config(*overrides)), Path("run"), of="").config


def _backend(key):
    """A key of the configuration as W&B writes it."""
    return key.replace(".", ".value.", 1)


def test_every_key_that_runs_are_grouped_by_is_one_of_the_configuration():
    config = _logged("partition=dirichlet")
    keys = {key for part in parts() for key in part.groups} | set(SPREAD)
    assert [key for key in keys if at(config, key) is None] == []
    grouping = [each["name"] for key, value in _walk(specification("p", "e")) if key == "grouping" for each in value]
    assert set(grouping) == {_backend(key) for key in keys}


def test_means_are_taken_over_runs_that_differ_in_their_seed_alone():
    means = [value for key, value in _walk(specification("p", "e")) if key == "groupBy" and value]
    assert len(means) == 2 * 3
    assert set(means) == {_backend(ROW)}
    assert all(part.groups == (*SPREAD, ROW) for part in parts() if part.groups)
    assert at(_logged("seed=0"), ROW) == at(_logged("seed=1", "study=s", "store=/elsewhere"), ROW)


PARTITIONED = "partition=classes_per_client"
UNLIKE = [
    (),
    *[("method=dense",), ("method=fedhydra", "method.objective.adv.weight=0"), ("model=lenet5",), ("budget=reduced",)],
    *[("partition.alpha=0.1",), (PARTITIONED,), (PARTITIONED, "partition.classes=5"), ("proxy=holdout",)],
    *[("partition=lognormal",), ("partition=lognormal", "partition.sigma=0.9"), ("development=true",)],
    *[("clients=dp",), ("clients=dp", "clients.epsilon=3"), ("attack=label_flip",)],
    *[("method=feddf",), ("method=feddf", "proxy.samples=70")],
]


def test_runs_that_differ_in_more_than_their_seed_are_told_apart():
    logged = [_logged(*each) for each in UNLIKE]
    assert len({at(config, ROW) for config in logged}) == len(UNLIKE)
    protocols = {at(config, "comparison.protocol") for config in logged}
    assert len(protocols) == len(UNLIKE) - 4  # methods, their settings and images that only they use share one
    assert at(logged[1], ROW).startswith("dense, digits, dirichlet 0.5, ")
    assert at(logged[2], ROW).startswith("fedhydra (objective.adv.weight=0), digits, ")
    assert at(logged[6], "comparison.partition") == "classes_per_client 2"


def test_only_failures_are_among_the_failures():
    (failures,) = [part for part in parts() if part.states]
    spec = specification("p", "e")["report"]
    states = [
        each["value"] for key, value in _walk(spec) if key == "filters" and isinstance(value, list) for each in value
    ]
    assert states == [failures.states] == [["failed", "crashed", "killed"]]


def test_two_builds_say_the_same_but_for_drawn_ids():
    def plain(view):
        return [(key, value) for key, value in _walk(view) if key in ("chartTitle", "viewType", "metrics", "text")]

    assert plain(specification("p", "e")) == plain(specification("q", "f"))
    assert json.dumps(specification("p", "e"))
    assert report("p", "e").title


def test_without_the_extra_one_line_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb_workspaces.reports", None)
    for needing in (parts, lambda: save("p", None)):  # before anybody is asked to log in
        with pytest.raises(OneshotError, match=r"oneshot-fl\[dashboard\]"):
            needing()


def test_what_weights_and_biases_refuses_is_one_line():
    with pytest.raises(OneshotError, match=r"^dashboard: .*asked W&B.*--out$") as caught:
        save("p", None)
    assert "\n" not in str(caught.value)
