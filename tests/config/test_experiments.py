"""The papers' tables as experiments: each names its own command, every value is sound, no printed row is forgotten."""

import csv
import shlex
from collections.abc import Callable, Iterable, Iterator
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import pytest
from hydra._internal.core_plugins.basic_sweeper import BasicSweeper
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import DictConfig, OmegaConf

from oneshot_fl.config.checks import check
from oneshot_fl.config.clients import client_models, client_nodes
from oneshot_fl.config.compose import choice, config_dir, plain
from tests.composing import compose_config

ROOT = config_dir() / "experiment"
ALL = sorted(path.relative_to(ROOT).with_suffix("").as_posix() for path in ROOT.rglob("*.yaml"))
OF_OURS = ("fedchorus/", "evidence/", "sensitivity/")
"""Experiments that are no paper's table: of our own method, of columns at a paper's budget, of what is left open."""
TABLES = [name for name in ALL if "/" in name and not name.startswith(OF_OURS)]
COMMAND = "# python -m oneshot_fl "
DIALS = {
    "dirichlet": "partition.alpha",
    "dirichlet_class_prior": "partition.alpha",
    "dirichlet_equal_chunks": "partition.alpha",
    "classes_per_client": "partition.classes",
    "lognormal": "partition.sigma",
    "leave_one_domain_out": "data.held_out",
}
ENSEMBLE_ROWS = {"fedens": "uniform", "dw_fedens": "size_weighted", "co_boosting": "boosted"}
PAPERS = ("fedhydra", "co_boosting", "fedmho")
ALIASES = {("co_boosting", "dense"): "dense_co_boosting", ("fedmho", "fedcvae"): "fedcvae_fedmho"}
"""What a paper, or its own code, means by the name of a method."""
SPLITS = {("fedmho", "dirichlet"): "dirichlet_equal_chunks"}
"""The same of a partition."""
OF_MODELS = ("data", "method", "model", "server_model", "partition.clients")
"""What a sweep may vary and the architectures depend on."""
VOTING = ("fedavg", "feddf")
"""Methods with a server model an architecture where none is named."""
MULTI_ROUND = [f"fedhydra/table{number}" for number in (5, 8, *range(11, 19))]


_composed = cache(compose_config)


@cache
def _printed() -> dict[str, list[dict[str, str]]]:
    """The accuracies of the three papers by the name of the experiment."""
    found: dict[str, list[dict[str, str]]] = {}
    with (files("oneshot_fl.reporting.tables.papers") / "paper_results.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            if row["paper"] in PAPERS and row["metric"].endswith("accuracy_percent"):
                found.setdefault(f"{row['paper']}/{row['table'].replace('T', 'table')}", []).append(row)
    return found


def _commands(name: str) -> list[list[str]]:
    """The arguments of every command in an experiment's head."""
    lines = (ROOT / f"{name}.yaml").read_text().splitlines()
    return [shlex.split(line.removeprefix(COMMAND)) for line in lines if line.startswith(COMMAND)]


@cache
def _sweeps(name: str) -> list[list[list[str]]]:
    """For every command the overrides of all its jobs, as Hydra's sweeper multiplies them out."""
    params = OmegaConf.load(ROOT / f"{name}.yaml").hydra.sweeper.params
    own = [f"{key}={value}" for key, value in params.items()]
    parser = OverridesParser.create()
    sweeps = [parser.parse_overrides([*own, *arguments[1:]]) for arguments in _commands(name)]
    return [BasicSweeper.split_arguments(overrides, None)[0] for overrides in sweeps]


def _columns(jobs: list[list[str]]) -> list[list[str]]:
    return [list(dict.fromkeys(column)) for column in zip(*jobs, strict=True)]


def _each_value_once(jobs: list[list[str]]) -> list[list[str]]:
    columns = _columns(jobs)
    return [[column[row % len(column)] for column in columns] for row in range(max(map(len, columns)))]


@cache
def _worth_checking() -> dict[str, list[list[str]]]:
    """By experiment, the first job of every command, and jobs with values that no earlier experiment beside it has.

    What a value changes depends on the paper's protocol; each is composed with each once.
    """
    chosen: dict[str, list[list[str]]] = {}
    seen: set[tuple[str, str]] = set()
    for name in ALL:
        chosen[name] = [jobs[0] for jobs in _sweeps(name)]
        for job in (*chosen[name], *_each_value_once(_sweeps(name)[0])):
            new = _values([job], name) - seen
            if new and job not in chosen[name]:
                chosen[name].append(job)
            seen |= new
    return chosen


@dataclass(frozen=True)
class Job:
    """What a row of a table is found by."""

    data: str
    partition: str
    value: str
    clients: str
    rounds: int
    client_model: str
    server_model: str
    method: str


def _models(cfg: DictConfig, chosen: dict[str, str]) -> tuple[str, str]:
    """Architectures of clients and server under other choices; `cfg` is changed."""
    for group in {"data", "method"} & set(chosen):
        cfg[group].name = chosen[group]  # all that architectures depend on
    if "model" in chosen:
        cfg.model = choice("model", chosen["model"])
    cfg.partition.clients = int(chosen.get("partition.clients", cfg.partition.clients))
    clients = "+".join(dict.fromkeys(node.name for node in client_nodes(cfg)))
    server = chosen.get("server_model", cfg.server_model)
    if server not in (None, "null"):
        return clients, server
    return clients, clients if cfg.method.name in VOTING else client_models(cfg)[0].name


def _sweep_jobs(jobs: list[list[str]]) -> Iterator[Job]:
    cfg = deepcopy(_composed(*jobs[0]))
    models: dict[tuple[str | None, ...], tuple[str, str]] = {}
    for job in jobs:
        chosen = dict(override.split("=", 1) for override in job)
        key = tuple(map(chosen.get, OF_MODELS))
        if key not in models:
            models[key] = _models(cfg, chosen)
        yield Job(
            chosen.get("data", cfg.data.name),
            cfg.partition.name,
            chosen.get(DIALS[cfg.partition.name], str(OmegaConf.select(cfg, DIALS[cfg.partition.name]))),
            chosen.get("partition.clients", str(cfg.partition.clients)),
            cfg.communication_rounds,
            *models[key],
            chosen.get("method", cfg.method.name),
        )


@cache
def _jobs(name: str) -> set[Job]:
    return {job for jobs in _sweeps(name) for job in _sweep_jobs(jobs)}


def _covers(job: Job, row: dict[str, str]) -> bool:
    alone = row["method"] == "local" or row["method"].startswith("client_")  # a client of any method's run
    split = SPLITS.get((row["paper"], row["partition"]), row["partition"])
    named = ALIASES.get((row["paper"], row["method"]), row["method"])
    method = "co_boosting" if row["metric"].startswith("ensemble") else named
    return (
        (job.data, job.partition, job.clients) == (row["data"], split, row["clients"])
        and row["partition_value"] in (job.value, "avg")
        and int(row["rounds"]) <= job.rounds
        and row["client_model"] in (job.client_model.split("+") if alone else [job.client_model])
        and row["server_model"] in (job.server_model, "")
        and (alone or method == job.method)
    )


def test_there_is_an_experiment_for_every_table_that_holds_results():
    assert len([name for name in TABLES if name.startswith("fedhydra/")]) >= 18
    assert len([name for name in TABLES if name.startswith("co_boosting/")]) >= 18
    assert len([name for name in TABLES if name.startswith("fedmho/")]) >= 8
    assert set(TABLES) == set(_printed())


@pytest.mark.parametrize("name", ALL)
def test_an_experiment_begins_with_its_command_and_is_named_alike(name):
    text = (ROOT / f"{name}.yaml").read_text()
    assert text.startswith(f"# @package _global_\n{COMMAND}-m experiment={name}")
    assert all(arguments[:2] == ["-m", f"experiment={name}"] for arguments in _commands(name))
    assert f"\nstudy: {name}\n" in text


def _values(jobs: Iterable[list[str]], name: str) -> set[tuple[str, str]]:
    return {(name.rpartition("/")[0], value) for job in jobs for value in job}


def test_no_value_of_a_paper_goes_unchecked():
    checked = set().union(*(_values(jobs, name) for name, jobs in _worth_checking().items()))
    assert checked >= set().union(*(_values(_each_value_once(_sweeps(name)[0]), name) for name in ALL))


@pytest.mark.parametrize("name", ALL)
def test_every_commands_first_job_composes_and_passes_the_checks(name):
    for jobs in _sweeps(name):
        _require_sound(jobs[0])


@pytest.mark.slow  # hundreds of them, of few kinds
@pytest.mark.parametrize("name", ALL)
def test_every_value_of_every_sweep_composes_and_passes_the_checks(name):
    for overrides in _worth_checking()[name]:
        _require_sound(overrides)


def _require_sound(overrides: list[str]) -> None:
    cfg = _composed(*overrides)
    OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    check(cfg)


@pytest.mark.parametrize("name", TABLES)
def test_every_printed_row_has_a_job(name):
    jobs = _jobs(name)
    assert [row for row in _printed()[name] if not any(_covers(job, row) for job in jobs)] == []


@pytest.mark.parametrize("name", TABLES)
def test_a_table_sweeps_what_is_printed_and_three_seeds(name):
    jobs, rows = _jobs(name), _printed()[name]
    assert {job.data for job in jobs} == {row["data"] for row in rows}
    assert {job.value for job in jobs} == {row["partition_value"] for row in rows} - {"avg"}
    assert {job.clients for job in jobs} == {row["clients"] for row in rows}
    assert {job.rounds for job in jobs} == {max(int(row["rounds"]) for row in rows)}
    assert all(["seed=0", "seed=1", "seed=2"] in _columns(sweep) for sweep in _sweeps(name))


@pytest.mark.parametrize("name", TABLES)
def test_ensembles_that_a_table_prints_are_rows_of_its_runs(name):
    printed = {row["method"] for row in _printed()[name] if row["metric"] == "ensemble_accuracy_percent"}
    if printed:
        cfg = _composed(*_sweeps(name)[0][0])
        assert {ENSEMBLE_ROWS[method] for method in printed} <= {*cfg.evaluate.ensembles, cfg.method.ensemble.name}


def _lambdas(cfg: DictConfig) -> str:
    return f"lambda1={cfg.method.objective.bn.weight} lambda2={cfg.method.objective.adv.weight}"


def _components(cfg: DictConfig) -> str:
    on = {
        "GHS": cfg.method.objective.hard_ce.power == 1,
        "DHS": cfg.method.get("perturb") is not None,
        "EE": cfg.method.ensemble.step > 0,
    }
    return "+".join(name for name, is_on in on.items() if is_on) or "no_GHS_no_DHS_no_EE"


def _mu(cfg: DictConfig) -> str:
    return f"mu={cfg.method.ensemble.step}"


def _epsilon(cfg: DictConfig) -> str:
    return f"epsilon={round(cfg.method.perturb.epsilon * 510)}/255"  # of a range that is 2 wide


def _betas(cfg: DictConfig) -> str:
    return f"beta1={2 * cfg.method.student.kl.weight:g} beta2={2 * cfg.method.student.ce.weight:g}"


def _filter(cfg: DictConfig) -> str:
    """Without the filter as many images as it would leave of the data set's own number."""
    of_all = {"mnist": 6000, "fashion_mnist": 6000, "svhn": 6000, "emnist": 12000}[cfg.data.name]
    off = cfg.method.pool.nearest == 1 and cfg.method.source.samples == 0.8 * of_all
    return "without_kmeans" if off else f"R_th={cfg.method.pool.nearest}"


def _cvae_epochs(cfg: DictConfig) -> str:
    return f"cvae_local_epochs={cfg.clients.cvae.epochs}"


def _sam(cfg: DictConfig) -> str:
    return "sam_local_training" if cfg.clients.sam else ""


@pytest.mark.parametrize(
    ("name", "variant", "lost"),
    [
        ("fedhydra/table6", _lambdas, set()),
        ("co_boosting/table7", _components, set()),
        ("co_boosting/table16", _sam, set()),
        ("co_boosting/table18", _mu, {"mu=0.01"}),
        ("co_boosting/table19", _epsilon, set()),
        ("fedmho/table5", _betas, {"beta1=learnable beta2=learnable"}),
        ("fedmho/table6", _filter, set()),
        ("fedmho/table8", _filter, set()),
        ("fedmho/table11", _cvae_epochs, set()),
    ],
)
def test_an_ablation_sweeps_the_printed_settings(name: str, variant: Callable[[DictConfig], str], lost: set[str]):
    """`lost` is run but not legible in our text of the paper, or printed and nothing that we can run."""
    first = _sweeps(name)[0][0]
    same = [override for override in first if override.startswith(("seed=", "data=", "method=", "partition."))]
    jobs = [job for job in _sweeps(name)[0] if set(same) <= set(job)]
    found = [variant(_composed(*job)) for job in jobs]
    assert len(found) == len(set(found))
    assert set(found) ^ {row["variant"] for row in _printed()[name]} == lost


def test_emnist_without_the_filter_has_its_own_number_of_images():
    (job, *_) = _sweeps("fedmho/table6")[1]
    assert _filter(_composed(*job)) == "without_kmeans"


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_its_papers_protocol(name):
    paper, (first, *_) = name.split("/")[0], _sweeps(name)[0]
    assert {"override /protocol": paper} in OmegaConf.load(ROOT / f"{name}.yaml").defaults
    assert _composed(*first).budget.name == ("paper" if paper == "fedhydra" else paper)


FIRST = {name.split("/")[0]: name for name in reversed(TABLES)}.values()
"""One table of each paper."""


@pytest.mark.parametrize(
    "name", [name if name in FIRST else pytest.param(name, marks=pytest.mark.slow) for name in TABLES]
)
def test_a_table_takes_any_budget(name):
    assert compose_config(*_sweeps(name)[0][0], "budget=reduced").budget.name == "reduced"


COMMON = {"clients.augmentation": "none", "distill.generator_steps": 30, "generator.width": 64}
OF_DENSE = {**COMMON, "clients.batch_size": 128, "clients.optimizer.lr": 0.01, "distill.batch_size": 128}
STATED: dict[str, dict[str, Any]] = {
    "fedhydra": {**OF_DENSE, "clients.epochs": (200, 50), "distill.rounds": 200, "clients.sam": None},
    "co_boosting": {**OF_DENSE, "clients.epochs": 300, "distill.rounds": 500, "clients.sam": (None, 0.05)},
    "fedmho": {
        **COMMON,
        "clients.epochs": 200,
        "clients.batch_size": 64,
        "clients.cvae.batch_size": 64,
        "distill.batch_size": 64,
        "clients.sam": None,
        "partition.name": "dirichlet_equal_chunks",
        "data.mean": [0.0],
        "data.std": [1.0],
    },
}
"""What holds for all tables of a paper, with the alternatives of a few tables in brackets (FedHydra, Sec. 4.1.5 and
4.4; Co-Boosting, appendix; FedMHO, Table 3, and its code)."""
CVAE_RATES = {"mnist": 0.05, "fashion_mnist": 0.05, "svhn": 0.001, "emnist": 0.003}
GLOBAL_RATES = {"mnist": 0.00001, "fashion_mnist": 0.0005, "svhn": 0.00005, "emnist": 0.00005}
CVAE_EPOCHS = {"mnist": 30, "fashion_mnist": 40, "svhn": 40, "emnist": 50}
GLOBAL_EPOCHS = {"mnist": 10, "fashion_mnist": 20, "svhn": 20, "emnist": 30}
HALF = {"classifier": 1, "cvae": 1}


@pytest.mark.parametrize("name", TABLES)
def test_a_tables_own_command_sets_what_the_paper_states(name):
    _require_stated(name, [jobs[0] for jobs in _sweeps(name)])


@pytest.mark.slow
@pytest.mark.parametrize("name", TABLES)
def test_every_value_of_a_table_leaves_what_the_paper_states(name):
    _require_stated(name, _worth_checking()[name])


def _require_stated(name: str, jobs: list[list[str]]) -> None:
    stated = STATED[name.split("/", maxsplit=1)[0]]
    for cfg in (_composed(*overrides) for overrides in jobs):
        for key, value in stated.items():
            allowed = value if isinstance(value, tuple) else (value,)
            assert plain(OmegaConf.select(cfg, key)) in allowed, key


@pytest.mark.parametrize("data", sorted(CVAE_RATES))
def test_fedmhos_own_settings_by_data_set(data):
    cfg = _composed("experiment=fedmho/table4", f"data={data}", "method=fedmho_md")
    assert (cfg.clients.cvae.optimizer.lr, cfg.clients.cvae.epochs) == (CVAE_RATES[data], CVAE_EPOCHS[data])
    assert (cfg.method.student_optimizer.lr, cfg.distill.rounds) == (GLOBAL_RATES[data], GLOBAL_EPOCHS[data])
    assert cfg.clients.optimizer.lr == (0.001 if data == "emnist" else 0.005)


@pytest.mark.parametrize(
    ("method", "kinds", "rounds"),
    [("fedavg", None, 200), ("feddf", None, 38), ("dense", None, 200), ("fedcvae_fedmho", ["cvae"], 10)]
    + [(method, HALF, 10) for method in ("fedmho", "fedmho_md", "fedmho_sd")],
)
def test_fedmhos_own_settings_by_method(method, kinds, rounds):
    cfg = _composed("experiment=fedmho/table4", "data=mnist", f"method={method}")
    assert (plain(cfg.clients.kinds), cfg.distill.rounds) == (kinds, rounds)


@pytest.mark.parametrize("name", [name for name in TABLES if name.startswith("co_boosting/")])
def test_co_boosting_distils_feddf_on_a_fifth_of_the_training_set(name):
    """Beside noise: wherever FedDF runs, a command of its own holds images out."""
    commands = [dict(argument.partition("=")[::2] for argument in arguments) for arguments in _commands(name)]
    held_out = [command for command in commands if command.get("proxy") == "holdout"]
    assert [command["method"] for command in held_out] == ["feddf"] * any(job.method == "feddf" for job in _jobs(name))
    if held_out:
        assert _composed(*_sweeps(name)[-1][0]).proxy.fraction == 0.2


@pytest.mark.parametrize(
    ("overrides", "rounds", "vae_epochs"),
    [([], 30, 50), (["budget=reduced"], 25, 10), (["distill.rounds=2"], 2, 50)],
)
def test_fedmhos_tables_run_under_any_budget(overrides, rounds, vae_epochs):
    cfg = compose_config("experiment=fedmho/table7", "method=fedmho", *overrides)
    assert (cfg.distill.rounds, cfg.clients.cvae.epochs) == (rounds, vae_epochs)
    assert (cfg.clients.optimizer.lr, cfg.clients.cvae.optimizer.lr) == (0.001, 0.003)


@pytest.mark.parametrize("name", MULTI_ROUND)
def test_several_rounds_take_the_budgets_own_number_of_local_epochs(name):
    assert {row["variant"] for row in _printed()[name]} == {"local_epochs=50"}
    assert OmegaConf.load(ROOT / f"{name}.yaml").clients == {"epochs": "${budget.local_epochs_multi_round}"}


@pytest.mark.parametrize(
    ("overrides", "epochs"), [([], 50), (["budget=reduced"], 8), (["budget=demo"], 40), (["clients.epochs=3"], 3)]
)
def test_a_budget_scales_several_rounds_too(overrides, epochs):
    assert compose_config("experiment=fedhydra/table5", *overrides).clients.epochs == epochs


def test_co_boostings_own_budget():
    cfg = _composed(*_sweeps("co_boosting/table1")[0][0])
    assert (cfg.clients.epochs, cfg.distill.rounds, cfg.distill.generator_steps) == (300, 500, 30)
