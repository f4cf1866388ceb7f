"""Every part that a YAML names obeys its slot's contract; a new part is tested by existing."""

from pathlib import Path

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from oneshot_fl.config.bind import make_ensembles, make_fidelity_reference
from oneshot_fl.config.compose import build, config_dir, plain, takes
from oneshot_fl.data.dataset import DataSpec, make_dataset
from oneshot_fl.data.partition import Partition
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.parts.terms import Objective
from oneshot_fl.parts.uploads import Uploads
from oneshot_fl.parts.view import View
from oneshot_fl.tracking.loggers import RunLog
from tests.conftest import compose_config


def choices(group: str, at_least: int, *, without: tuple[str, ...] = ()) -> list[str]:
    names = sorted({path.stem for path in (config_dir() / group).glob("*.yaml")} - set(without))
    assert len(names) >= at_least, f"{group}: only {names}"
    return names


MIXES = (
    *("mixed", "fedhydra_mixed", "co_boosting_mixed", "fedmho_various"),
    *("fedhydra", "co_boosting", "fedmho", "torchvision", "vgg9"),
)
"""Mixes and presets list others; torchvision stands for any; VGG-9's 69 million parameters are tested once (unit)."""
METHODS = choices("method", 3)
SPECS = [
    DataSpec(1, 8, 10, (0.5,), (0.5,)),
    DataSpec(1, 28, 47, (0.5,), (0.5,)),
    DataSpec(3, 32, 100, (0.5,) * 3, (0.5,) * 3),
    DataSpec(3, 64, 10, (0.5,) * 3, (0.5,) * 3),
]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.channels}x{spec.size}x{spec.classes}")
@pytest.mark.parametrize("name", choices("model", 15, without=MIXES))
def test_a_model_maps_images_of_any_data_set_to_logits_and_trains(name, spec):
    model = build(OmegaConf.load(config_dir() / "model" / f"{name}.yaml"), spec=spec)
    logits = model(torch.randn(2, spec.channels, spec.size, spec.size))
    assert logits.shape == (2, spec.classes)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    other = build(OmegaConf.load(config_dir() / "model" / f"{name}.yaml"), spec=spec)
    other.load_state_dict(model.state_dict())


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.channels}x{spec.size}x{spec.classes}")
@pytest.mark.parametrize("name", choices("generator", 1))
def test_a_generator_makes_images_of_the_spec(name, spec):
    cfg = compose_config(f"generator={name}", "generator.width=4")
    generator = build(cfg.generator, spec=spec)
    z = generator.sample_noise(3, torch.Generator().manual_seed(0))
    assert generator(z).shape == (3, spec.channels, spec.size, spec.size)
    assert not list(generator.buffers())


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.channels}x{spec.size}x{spec.classes}")
@pytest.mark.parametrize("name", choices("cvae", 6, without=("cvae_small", "fedmho")))
def test_a_cvae_trains_and_its_decoder_alone_draws_images_of_a_label(name, spec):
    model, other = (build(OmegaConf.load(config_dir() / "cvae" / f"{name}.yaml"), spec=spec) for _ in range(2))
    x, y = torch.rand(2, spec.channels, spec.size, spec.size), torch.tensor([0, spec.classes - 1])
    mu, logvar = model.encoder(x, y)
    assert mu.shape == logvar.shape == (2, model.latent)
    loss = model.loss(x, y, torch.randn(2, model.latent))
    assert loss.shape == ()
    assert torch.isfinite(loss)
    loss.backward()
    assert all(torch.isfinite(parameter.grad).all() for parameter in model.parameters())
    other.decoder.load_state_dict(model.decoder.state_dict())
    z = torch.randn(1, model.latent).expand(2, -1)
    with torch.no_grad():
        images, copies = (each.decoder.eval()(z, y) for each in (model, other))
    assert images.shape == x.shape
    assert images.min() >= 0
    assert images.max() <= 1
    assert torch.equal(images, copies)
    assert not torch.equal(images[0], images[1])


def test_the_cvae_of_each_data_set_is_one_of_the_choices():
    preset = OmegaConf.load(config_dir() / "cvae/cvae_small.yaml")
    assert set(preset.of) - {"other"} <= set(choices("data", 12))
    assert set(preset.of.values()) <= set(choices("cvae", 6))
    assert list(OmegaConf.create({"cvae": preset, "data": {"name": "svhn"}}).cvae.names) == ["cvae_conv3"]


@pytest.mark.parametrize("name", choices("partition", 6))
def test_a_partition_is_disjoint_covering_seeded_and_typed(name):
    def split(seed: int) -> Partition:
        node = compose_config(f"partition={name}", f"seed={seed}", "partition.clients=6").partition
        domains = {"domains": np.tile(np.arange(3), 200)} if takes(node, "domains") else {}
        return Partition(name, build(node, labels=np.repeat(np.arange(10), 60), **domains))

    splits = [split(seed) for seed in (0, 0, 1)]
    assert sorted(np.concatenate(splits[0].indices).tolist()) == list(range(600))
    assert len(splits[0].indices) == 6
    assert all(index.dtype == np.int64 and (np.diff(index) > 0).all() for index in splits[0].indices)
    assert splits[0].sha256 == splits[1].sha256 != splits[2].sha256


@pytest.mark.parametrize("name", choices("method/ensemble", 4))
def test_an_ensemble_maps_client_logits_and_labels_to_logits(name):
    part = build(OmegaConf.load(config_dir() / "method/ensemble" / f"{name}.yaml"))
    assert isinstance(part.func.needs, frozenset)
    ensemble = part(Uploads([], [3, 1], guidance=torch.rand(10, 2)))
    P, y = torch.randn(2, 6, 10, requires_grad=True), torch.randint(10, (6,))
    logits = ensemble(P, y)
    assert logits.shape == (6, 10)
    logits.square().sum().backward()
    assert torch.isfinite(P.grad).all()
    assert P.grad.abs().sum() > 0
    kept = ensemble.keep(P, y)
    assert kept.shape[0] == 6
    torch.testing.assert_close(ensemble.recall(kept), logits)
    pool = Pool(rounds=None)
    for _ in range(2):
        pool.add(Entry(torch.zeros(6, 1), y, kept.detach()))
    ensemble.refit(pool, 4, torch.Generator().manual_seed(0))
    logits = ensemble(P, y)
    assert torch.isfinite(logits).all()
    permutation = torch.randperm(6)
    torch.testing.assert_close(ensemble(P[:, permutation], y[permutation]), logits[permutation])
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ensemble(P, y), logits)


@pytest.mark.parametrize("name", choices("evaluate", 2))
def test_an_evaluation_builds_its_ensembles_and_measures_images_only_where_it_says_so(name):
    cfg, images = compose_config(f"evaluate={name}"), torch.zeros(2000, 1, 8, 8, dtype=torch.uint8)
    both = images, torch.arange(2000) % 10
    data = make_dataset(name="d", train=both, test=both, class_names=tuple("0123456789"), mean=[0.5], std=[0.5])
    uploads = Uploads([cnn2(data.spec, norm=True)], [1], guidance=torch.rand(10, 1))
    assert set(make_ensembles(cfg, uploads, {})) == {"uniform", "size_weighted", "probability", "stratified"}
    fidelity_reference = make_fidelity_reference(cfg, data)
    assert (fidelity_reference is None) is (cfg.evaluate.fidelity is None)
    if fidelity_reference is not None:
        assert fidelity_reference.samples <= cfg.distill.images
        assert isinstance(
            fidelity_reference.training.optimizer(torch.nn.Linear(1, 1).parameters()), torch.optim.Optimizer
        )


@pytest.mark.parametrize("name", choices("method/init", 2))
def test_an_init_returns_a_student_of_the_same_shape(name):
    spec = SPECS[0]
    clients = [cnn2(spec, norm=True) for _ in range(2)]
    before = [{key: value.clone() for key, value in client.state_dict().items()} for client in clients]
    student = build(OmegaConf.load(config_dir() / "method/init" / f"{name}.yaml"))(
        cnn2(spec, norm=True), Uploads(clients, [1, 2])
    )
    assert student(torch.randn(2, 1, 8, 8)).shape == (2, 10)
    assert all(parameter.requires_grad for parameter in student.parameters())
    for client, state in zip(clients, before, strict=True):
        assert all(torch.equal(value, state[key]) for key, value in client.state_dict().items())


@pytest.mark.parametrize("name", choices("method/perturb", 1))
def test_a_perturbation_keeps_shape_and_is_seeded_and_detached(name):
    perturb = build(OmegaConf.load(config_dir() / "method/perturb" / f"{name}.yaml"))(SPECS[0])
    x, teacher = torch.randn(3, 1, 8, 8), cnn2(SPECS[0], norm=True).eval()
    first, again, other = (perturb(x, teacher, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1))
    assert first.shape == x.shape
    assert not first.requires_grad
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, x)


def _terms() -> list[tuple[str, str, str]]:
    found = []
    for method in METHODS:
        cfg = OmegaConf.load(config_dir() / "method" / f"{method}.yaml")
        found += [
            (method, slot, term)
            for slot in ("objective", "student")
            for term, settings in (cfg.get(slot) or {}).items()
            if settings.get("weight") != 0  # switched off: never computed
        ]
    assert len(found) >= 9
    return found


@pytest.mark.parametrize(("method", "slot", "term"), _terms())
def test_a_term_is_a_finite_scalar_with_a_gradient(method, slot, term):
    spec = SPECS[0]
    part = Objective({term: build(compose_config(f"method={method}").method[slot][term])})
    clients, student = [cnn2(spec, norm=True) for _ in range(2)], cnn2(spec, norm=True)
    x = torch.randn(8, 1, 8, 8, requires_grad=True)
    view = View(
        x,
        torch.randint(10, (8,)),
        student=student,
        bank=ClientBank(clients),
        ensemble=lambda P, y: P.mean(0),
        needs=part.needs,
        start=ClientBank([cnn2(spec, norm=True)]),
    )
    total, values = part(view)
    assert total.shape == ()
    assert torch.isfinite(total)
    assert set(values) == {term}
    total.backward()
    wanted = x.grad if slot == "objective" else student[0].weight.grad
    assert wanted is not None
    assert torch.isfinite(wanted).all()


@pytest.mark.parametrize("name", choices("data", 12))
def test_a_data_set_takes_exactly_the_keys_of_its_yaml(name):
    import inspect

    from hydra.utils import get_method

    settings = plain(compose_config(f"data={name}").data)
    function = get_method(settings.pop("_target_"))
    assert settings.pop("name") == name
    assert set(inspect.signature(function).parameters) == set(settings)


@pytest.mark.parametrize("name", choices("logger", 4))
def test_a_logger_takes_metrics_and_pictures_and_closes(name, tmp_path, monkeypatch):
    monkeypatch.setenv("WANDB_MODE", "offline")
    cfg = compose_config(f"logger={name}")
    extras = {"wandb": {"config": {"seed": 0}}}
    loggers = [build(node, folder=tmp_path, **extras.get(key, {})) for key, node in cfg.logger.items()]
    figure = tmp_path / "p.png"
    from matplotlib.figure import Figure

    Figure().savefig(figure)
    with RunLog(loggers) as log:
        log.log({"distill/accuracy": 0.5}, 1)
        log.figures({"p": figure})
    assert (tmp_path / "metrics.csv").exists() is (name != "none")
    if name != "none":
        assert (tmp_path / "metrics.csv").read_text().splitlines() == ["metric,step,value", "distill/accuracy,1,0.5"]
    if name == "wandb":
        assert list(Path(tmp_path).rglob("run-*.wandb"))
    if name == "tensorboard":
        assert list(Path(tmp_path).rglob("events.out.tfevents.*"))
