"""Every YAML composes and instantiates; budgets and contract keys are what the design promises."""

import pytest
from omegaconf import OmegaConf

from oneshot_fl.config.checks import check
from oneshot_fl.config.compose import build, config_dir
from oneshot_fl.data.dataset import DataSpec
from tests.conftest import clients_of, compose_config

SPEC = DataSpec(1, 8, 10, (0.5,), (0.5,))
ALL = sorted(str(path.relative_to(config_dir()).with_suffix("")) for path in config_dir().rglob("*.yaml"))
GROUPS = [path.rsplit("/", 1) for path in ALL if "/" in path and not path.startswith("experiment/")]
CHOSEN = {key for entry in OmegaConf.load(config_dir() / "config.yaml").defaults if entry != "_self_" for key in entry}
EXTRAS = {
    ("method/perturb", "hard"): ["method=co_boosting"],
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
    ("model", "torchvision"): ["model.architecture=densenet121"],
}


def test_the_glob_sees_the_configuration():
    assert len(ALL) >= 40


@pytest.mark.parametrize(("group", "name"), GROUPS)
def test_every_choice_composes_resolves_and_passes_the_checks(group, name):
    added = "" if group.split("/")[0] in CHOSEN else "+"  # a group that config.yaml does not choose from
    cfg = compose_config(f"{added}{group}={name}", *EXTRAS.get((group, name), []))
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


def test_methods_are_short():
    lengths = {path.stem: len(path.read_text().splitlines()) for path in (config_dir() / "method").glob("*.yaml")}
    assert len(lengths) >= 3
    assert max(lengths.values()) <= 22, lengths
