"""Every YAML composes and instantiates; budgets and contract keys are what the design promises."""

from itertools import chain, zip_longest

import pytest
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException
from omegaconf import OmegaConf

from oneshot_fl.config.checks import check
from oneshot_fl.config.compose import build, choices, config_dir, plain
from oneshot_fl.config.record import without
from oneshot_fl.data.dataset import DataSpec
from tests.composing import clients_of, compose_config

SPEC = DataSpec(1, 8, 10, (0.5,), (0.5,))
FILES = sorted(str(path.relative_to(config_dir()).with_suffix("")) for path in config_dir().rglob("*.yaml"))
ALL = [path for path in FILES if not path.startswith(("local/", "hydra/")) and "/_" not in path]
"""Every choice; a name that begins with `_` is what several share, `local` is one's own, `hydra` where jobs run."""
GROUPS = [path.rsplit("/", 1) for path in ALL if "/" in path and not path.startswith("experiment/")]
CHOSEN = {key for entry in OmegaConf.load(config_dir() / "config.yaml").defaults if entry != "_self_" for key in entry}
EXTRAS = {
    ("method/perturb", "hard"): ["method=co_boosting"],
    ("method/perturb", "moved"): ["method=fedchorus"],
    ("clients", "all_cvae"): ["method=fedcvae_ens"],
    **{("method", path.stem): list(clients_of(path.stem)) for path in (config_dir() / "method").glob("fed[cm]*.yaml")},
    ("method/warm_up", "ensemble_distillation"): ["method=fedmho", "clients=half_cvae"],
    ("method/source", "decoders"): ["clients=half_cvae"],
    ("method/source", "own_decoder"): ["clients=half_cvae"],
    ("proxy", "dataset"): ["proxy.data=fashion_mnist"],
    ("model", "fedhydra"): ["data=mnist"],
    ("model", "co_boosting"): ["data=mnist"],
    **{
        ("data", name): ["data.root=somewhere"]
        for name in ("image_folder", "tiny_imagenet", "image_domains", "pacs", "digit_domains")
    },
    ("model", "mixed"): ["model.names=[cnn2,cnn3,lenet5,resnet18,cnn2]", "method=dense"],
    ("model", "fedhydra_mixed"): ["method=dense"],
    ("model", "co_boosting_mixed"): ["method=dense"],
    ("protocol", "fedhydra"): ["data=mnist"],
    ("protocol", "co_boosting"): ["data=mnist"],
    ("protocol/method", "fedmho_dense"): ["method=dense"],
    ("protocol/method", "fedmho_feddf"): ["method=feddf"],
    ("protocol/method", "co_boosting_feddf"): ["method=feddf"],
    ("model", "torchvision"): ["model.architecture=densenet121"],
}

SIDE_BY_SIDE = (
    (
        *("method/ensemble", "attack", "cvae", "partition", "method/init", "budget", "logger"),
        *("trainer", "evaluate", "gate", "clients/optimizer", "distill", "generator", "recite", "stratify"),
    ),
    ("method", "data"),
)
"""Groups whose choices do not depend on each other."""


def test_the_glob_sees_the_configuration():
    assert len(ALL) >= 40


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["seed=3", "method=dense", "method.source.keep=best", "clients.lr_of={cnn2: 0.02}"],
        ["protocol=fedmho", "distill.rounds=2", "data=mnist", "+data.anything=1", "method=fedmho", "clients=half_cvae"],
        ["clients/optimizer=adam", "clients.optimizer.lr=0.5", "++partition.alpha=7", "method/ensemble=uniform"],
        ["method=co_boosting", "~method/perturb", "~communication_rounds"],
    ],
)
def test_what_tests_compose_is_what_hydra_composes(overrides):
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        whole = compose("config", overrides=overrides)
    assert compose_config(*overrides) == whole
    assert compose_config(*overrides) is not compose_config(*overrides)


@pytest.mark.parametrize(
    "wrong", ["sede=1", "seed=1,2", "method=nothing", "data.colour=3", "clients.epochs=[1,2", "~x"]
)
def test_what_hydra_does_not_compose_tests_do_not_either(wrong):
    with pytest.raises(HydraException) as ours:
        compose_config(wrong)
    with pytest.raises(HydraException) as own, initialize_config_dir(str(config_dir()), version_base="1.3"):
        compose("config", overrides=[wrong])
    assert str(ours.value) == str(own.value)


def _together() -> list[list[str]]:
    """Every choice once: those that may be made side by side in one row, which is composed once, the others alone."""
    alone = [_line(group, name) for group, name in GROUPS if group not in {*chain(*SIDE_BY_SIDE)}]
    return [*alone, *(row for groups in SIDE_BY_SIDE for row in _rows(groups))]


def _rows(groups: tuple[str, ...]) -> list[list[str]]:
    columns = [[_line(group, name) for group, name in GROUPS if group == each] for each in groups]
    return [[*chain(*row)] for row in zip_longest(*columns, fillvalue=[])]


def _line(group: str, name: str) -> list[str]:
    added = "" if group.split("/", maxsplit=1)[0] in CHOSEN else "+"  # a group that config.yaml does not choose from
    return [f"{added}{group}={name}", *EXTRAS.get((group, name), [])]


def test_all_choices_are_made():
    made = {word.lstrip("+") for row in _together() for word in row}
    assert made >= {f"{group}={name}" for group, name in GROUPS}


@pytest.mark.parametrize("overrides", _together(), ids=" ".join)
def test_every_choice_composes_resolves_and_passes_the_checks(overrides):
    cfg = compose_config(*overrides)
    OmegaConf.to_container(cfg, resolve=True, throw_on_missing=True)
    check(cfg)


@pytest.mark.parametrize(
    ("group", "choice"),
    [
        ("clients", "clients/optimizer=adam"),
        ("clients", "clients=fedmho"),
        ("stratify", ""),
        ("distill", ""),
        ("evaluate.fidelity", "evaluate=fidelity"),
    ],
)
def test_optimisers_instantiate(group, choice):
    import torch

    cfg = OmegaConf.select(compose_config(*filter(None, [choice])), group)
    names = [key for key in cfg if str(key).endswith("optimizer")]
    assert names
    for name in names:
        optimizer = build(cfg[name])([torch.nn.Parameter(torch.zeros(1))])
        assert isinstance(optimizer, torch.optim.Optimizer)


def test_contract_keys_exist_with_the_papers_values():
    cfg = compose_config("method=fedhydra", "data=svhn", "partition.alpha=0.01")
    assert (cfg.seed, cfg.communication_rounds, cfg.server_model) == (0, 1, None)
    assert (cfg.partition.clients, cfg.partition.alpha) == (5, 0.01)
    assert (cfg.clients.epochs, cfg.clients.batch_size, cfg.clients.optimizer.lr) == (200, 128, 0.01)
    assert (cfg.distill.rounds, cfg.distill.generator_steps, cfg.stratify.steps) == (200, 30, 30)
    assert (cfg.method.objective.bn.weight, cfg.method.objective.adv.weight) == (1.0, 1.0)
    assert cfg.distill.generator_optimizer.lr == 0.001
    assert cfg.distill.student_optimizer.lr == 0.01


@pytest.mark.parametrize(
    ("overrides", "budget"),
    [
        ([], "demo"),
        (["data=digits"], "demo"),
        (["data=mnist"], "paper"),
        (["data=digits", "budget=paper"], "paper"),
        (["data=mnist", "budget=reduced"], "reduced"),
    ],
)
def test_digits_bring_the_demo_budget_and_others_the_papers(overrides, budget):
    assert compose_config(*overrides).budget.name == budget


@pytest.mark.parametrize("budget", choices("budget"))
@pytest.mark.parametrize(("overrides", "rounds"), [([], 10), (["budget.rounds=3"], 3), (["distill.rounds=4"], 4)])
def test_a_method_that_knows_how_many_rounds_it_needs_has_them_in_every_budget(budget, overrides, rounds):
    cfg = compose_config("method=fedchorus", f"budget={budget}", *overrides)
    assert cfg.distill.rounds == rounds


def test_the_quick_fedchorus_is_fedchorus_with_the_numbers_that_its_measurements_name():
    numbers = ["recite.images=256", "recite.steps=30", "distill.rounds=5"]
    samples = {"variations": 2500, "textures": 2500, "dead_leaves": 1500, "strokes": 1000, "mixtures": 1500}
    numbers += [f"method.source.{name}.samples={count}" for name, count in samples.items()]
    quick, by_hand = compose_config("method=fedchorus_quick"), compose_config("method=fedchorus", *numbers)
    own = ("method.name", "method.of", "study", "budget.rounds")
    assert without(plain(quick), own) == without(plain(by_hand), own)


@pytest.mark.parametrize(
    ("protocol", "expected"),
    [
        ("fedhydra", ("paper", "dirichlet", 5, "fedhydra", 200, 200, 128, [0.5])),
        ("co_boosting", ("co_boosting", "dirichlet_class_prior", 10, "co_boosting", 300, 500, 128, [0.5])),
        ("fedmho", ("fedmho", "dirichlet_equal_chunks", 10, "mixed", 200, 10, 64, [0.0])),
    ],
)
def test_a_protocol_is_all_that_a_paper_fixes(protocol, expected):
    cfg = compose_config(f"protocol={protocol}", "data=mnist", "method=fedmho")
    chosen = (cfg.budget.name, cfg.partition.name, cfg.partition.clients, cfg.model.name, cfg.clients.epochs)
    assert (*chosen, cfg.distill.rounds, cfg.distill.batch_size, cfg.data.mean) == expected


def test_whatever_a_protocol_fixes_can_be_chosen_otherwise():
    overrides = ["partition=iid", "budget=reduced", "model=cnn2", "clients=default", "data.mean=[0.5]"]
    cfg = compose_config("protocol=fedmho", "data=digits", *overrides, "distill.batch_size=32")
    chosen = (cfg.partition.name, cfg.budget.name, cfg.model.name, cfg.clients.batch_size, cfg.distill.batch_size)
    assert chosen == ("iid", "reduced", "cnn2", 128, 32)
    assert (cfg.partition.clients, cfg.data.mean) == (10, [0.5])


def _student(protocol: str, method: str) -> tuple[dict, str]:
    """The optimiser and schedule of a method's student: its own, or those that all share."""
    cfg = compose_config(f"protocol={protocol}", "data=mnist", f"method={method}")
    optimizer = cfg.method.get("student_optimizer") or cfg.distill.student_optimizer
    return OmegaConf.to_container(optimizer, resolve=True), cfg.method.get(
        "student_schedule"
    ) or cfg.distill.student_schedule


def test_co_boostings_students_learn_alike():
    sgd = {"_target_": "torch.optim.SGD", "_partial_": True, "lr": 0.01, "momentum": 0.9, "weight_decay": 1e-4}
    for method in ("feddf", "f_adi", "f_dafl", "dense_co_boosting", "co_boosting"):
        assert _student("co_boosting", method) == (sgd, "cosine"), method


@pytest.mark.parametrize(("method", "rate"), [("feddf", 0.0002), ("dense", 0.001), ("co_boosting", 0.01)])
def test_fedmhos_baselines_have_the_rates_of_its_code(method, rate):
    assert _student("fedmho", method)[0]["lr"] == rate


def test_fedmho_on_cifar10_as_its_code():
    cfg = compose_config("protocol=fedmho", "data=cifar10", "method=fedcvae_fedmho")
    assert (cfg.clients.cvae.epochs, cfg.distill.rounds, cfg.method.student_optimizer.lr) == (30, 30, 0.00001)
    assert compose_config("protocol=fedmho", "data=cifar10", "method=fedmho").method.student_optimizer.lr == 0.0001


def test_ones_own_paths_are_read_where_there_are_some(tmp_path):
    (tmp_path / "local").mkdir()
    (tmp_path / "local" / "default.yaml").write_text("# @package _global_\ndata_root: elsewhere\nstore: mine\n")
    mine = f"hydra.searchpath=[file://{tmp_path}]"
    for data in ("mnist", "svhn"):
        assert compose_config(mine, f"data={data}").data.root == "elsewhere"
    assert compose_config(mine, "data=mnist", "data.root=here").data.root == "here"
    assert compose_config(mine).store == "mine"
    assert "root" not in compose_config(mine).data  # the digits have none
    assert compose_config("data=mnist").data.root == "data"


def test_shared_files_are_no_choices():
    assert [path for path in FILES if "/_" in path]
    assert not [name for group in ("data", "trainer") for name in choices(group) if name.startswith("_")]


def test_methods_are_short():
    lengths = {path.stem: len(path.read_text().splitlines()) for path in (config_dir() / "method").glob("*.yaml")}
    assert len(lengths) >= 3
    assert max(lengths.values()) <= 22, lengths


class Keeps:
    def __init__(self, options: dict) -> None:
        self.options = options


def test_a_name_is_a_label_of_parts_and_a_setting_elsewhere():
    part = build({"_target_": f"{__name__}.Keeps", "name": "label", "options": {"name": "own", "parts": [{"name": 1}]}})
    assert part.options == {"name": "own", "parts": [{"name": 1}]}
    both = build({"name": "label", "one": {"_target_": f"{__name__}.Keeps", "options": {}}})
    assert list(both) == ["one"]
