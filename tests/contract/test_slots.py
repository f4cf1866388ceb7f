"""Every part that a YAML names obeys its slot's contract; a new part is tested by existing."""

from copy import deepcopy
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from omegaconf import OmegaConf

from oneshot_fl.config import experiment_of
from oneshot_fl.config.compose import build, config_dir, plain, recipe
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.partition import Partition
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.cvae import mlp
from oneshot_fl.parts.objective import Objective
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.parts.slots import step_for
from oneshot_fl.parts.uploads import Recital, Server, Uploads
from oneshot_fl.parts.view import View, Votes
from oneshot_fl.phases import evaluate
from oneshot_fl.phases.prepare import PartitionPlan
from oneshot_fl.recipe import (
    NEEDS_OF_POOL,
    NEEDS_OF_RUN,
    NEEDS_OF_SERVER,
    NEEDS_OF_VIEW,
    NEEDS_OF_VOTES,
    Recipe,
    described,
)
from oneshot_fl.seeds import seeded
from oneshot_fl.tracking.loggers import RunLog, opened
from oneshot_fl.tracking.told import About
from tests.composing import compose_config, few_images, run_config
from tests.contract.choices import SLOTS, choices
from tests.parts import SMALL, FixedLogits, decoder_of, server_of

MIXES = (
    *("mixed", "fedhydra_mixed", "co_boosting_mixed", "fedmho_various"),
    *("fedhydra", "co_boosting", "fedmho", "torchvision", "vgg9"),
)
"""Mixes and presets list others; torchvision stands for any; VGG-9's 69 million parameters are tested once (unit)."""
SPECS = [
    DataSpec(1, 8, 10, (0.5,), (0.5,)),
    DataSpec(1, 28, 47, (0.5,), (0.5,)),
    DataSpec(3, 32, 100, (0.5,) * 3, (0.5,) * 3),
    DataSpec(3, 64, 10, (0.5,) * 3, (0.5,) * 3),
]


def server_with(*needs: str, spec: DataSpec = SPECS[0], guidance: torch.Tensor | None = None) -> Server:
    """Exactly what a part declares: two clients of a kind, a guidance matrix, proxy images, recitals and so on."""
    guidance = torch.rand(spec.classes, 2) if guidance is None else guidance
    models = [cnn2(spec, norm=True) for _ in range(2 if "classifiers" in needs else 0)]
    vaes = [mlp(spec, latent=2, hidden=8) for _ in range(2 if "decoders" in needs else 0)]
    shape = (20, spec.channels, spec.size, spec.size)
    return server_of(
        models,
        [3, 1][: len(models)],
        spec=spec,
        decoders=[decoder_of(vae, range(1, spec.classes + 1), key=f"decoder {k}") for k, vae in enumerate(vaes)],
        guidance=guidance if "guidance" in needs else None,
        proxy=torch.randint(256, shape, dtype=torch.uint8) if "proxy" in needs else None,
        recitals=[torch.randint(256, shape, dtype=torch.uint8) for _ in models if "recitals" in needs],
        label_counts=torch.randint(1, 9, (2, spec.classes)) if "label_counts" in needs else None,
        student=cnn2(spec, norm=True).eval() if "student" in needs else None,
    )


def recipe_at(group: str, name: str) -> Recipe[Any]:
    """The recipe of one choice of a slot, which says what it needs in known words."""
    slot, family = group.rpartition("/")[::2]
    settings = compose_config("method=fedhydra", "generator.width=2", f"+{slot}/{family}@probe={name}").probe
    found = recipe(settings)
    assert isinstance(found.needs, frozenset)
    assert found.needs <= NEEDS_OF_SERVER | NEEDS_OF_RUN | NEEDS_OF_VOTES | NEEDS_OF_POOL
    return found


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: f"{spec.channels}x{spec.size}x{spec.classes}")
@pytest.mark.parametrize("name", choices("model", 15, without=MIXES))
def test_a_model_maps_images_of_any_data_set_to_logits_and_trains(name, spec):
    with torch.device("meta"):  # names and shapes, without drawing a hundred million weights
        model, other = (build(OmegaConf.load(config_dir() / "model" / f"{name}.yaml"), spec=spec) for _ in range(2))
    model.to_empty(device="cpu")
    logits = model(torch.randn(2, spec.channels, spec.size, spec.size))
    assert logits.shape == (2, spec.classes)
    logits.sum().backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
    other.load_state_dict(model.state_dict(), assign=True)


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
        domains = {"domains": np.tile(np.arange(3), 200)} if PartitionPlan(name, recipe(node)).by_domain else {}
        return Partition(name, build(node, labels=np.repeat(np.arange(10), 60), **domains))

    splits = [split(seed) for seed in (0, 0, 1)]
    assert sorted(np.concatenate(splits[0].indices).tolist()) == list(range(600))
    assert len(splits[0].indices) == 6
    assert all(index.dtype == np.int64 and (np.diff(index) > 0).all() for index in splits[0].indices)
    assert splits[0].sha256 == splits[1].sha256 != splits[2].sha256


@pytest.mark.parametrize("name", choices("method/ensemble", 12))
def test_an_ensemble_maps_client_logits_and_labels_to_logits(name):
    found = recipe_at("method/ensemble", name)
    ensemble = found(server_with(*found.needs))
    P, y = torch.randn(2, 6, 10, requires_grad=True), torch.randint(10, (6,))
    votes = Votes(torch.rand(6, 1, 8, 8), y, P, [torch.rand(6, 5) + 0.1 for _ in P])
    logits = ensemble(votes)
    assert logits.shape == (6, 10)
    logits.square().sum().backward()
    assert torch.isfinite(P.grad).all()
    assert P.grad.abs().sum() > 0
    kept = ensemble.remember(votes)
    assert kept.shape[0] == 6
    entry = Entry(votes.x, y, kept.detach(), torch.ones(6))
    torch.testing.assert_close(ensemble.recall(entry), logits)
    pool = Pool(server_of(), rounds=None)
    for _ in range(2):
        pool.add(entry)
    ensemble.refit(pool, 4, torch.Generator().manual_seed(0))
    logits = ensemble(votes)
    assert torch.isfinite(logits).all()
    if "labels" not in found.needs:
        torch.testing.assert_close(ensemble(votes._replace(y=(y + 1) % 10)), logits)
    order = torch.randperm(6)
    other = Votes(votes.x[order], y[order], P[:, order], [features[order] for features in votes.features])
    torch.testing.assert_close(ensemble(other), logits[order])
    with torch.autocast("cpu", torch.bfloat16):
        assert torch.equal(ensemble(votes), logits)


@pytest.mark.parametrize("name", choices("method/ensemble", 12))
def test_what_stands_for_a_class_that_a_client_has_no_output_for_moves_no_ensemble(name):
    found = recipe_at("method/ensemble", name)
    server = server_with(*found.needs, spec=SMALL, guidance=torch.tensor([[0.5, 0.5], [0.5, 0.5], [0.0, 1.0]]))
    x, features = torch.rand(6, 1, 8, 8), [torch.rand(6, 5) + 0.1 for _ in range(2)]

    def answers(stand_in: float) -> torch.Tensor:
        said = [[0.75, 0.25, stand_in], [0.5, 0.25, 0.25]]
        models = [FixedLogits(torch.tensor(each).log().tolist()) for each in said]
        sent = zip(server.uploads.classifiers, models, [(2,), ()], strict=True)
        uploads = tuple(replace(one, model=model, unknown=lacks) for one, model, lacks in sent)
        with seeded(0):
            ensemble = found(replace(server, uploads=replace(server.uploads, classifiers=uploads)))
        votes = Votes(x, torch.zeros(6, dtype=torch.long), torch.stack([model(x) for model in models]), features)
        return ensemble(votes).softmax(dim=1)

    torch.testing.assert_close(answers(1e-9), answers(1e-3), rtol=0, atol=5e-3)


@pytest.mark.parametrize("name", choices("evaluate", 2))
def test_an_evaluation_builds_its_ensembles_and_measures_images_only_where_it_says_so(name):
    cfg = compose_config(f"evaluate={name}")
    experiment = experiment_of(cfg)
    rows, fidelity_reference = experiment.evaluation.ensembles, experiment.evaluation.fidelity
    assert set(rows) == {"uniform", "size_weighted", "probability", "entropy", "stratified", "self_gated"}
    for needs in (("classifiers", "guidance"), ("classifiers",), ()):
        server = server_with(*needs)
        possible = {name for name, row in rows.items() if row.needs - {"labels"} <= set(needs)}
        assert set(evaluate.tested_ensembles(rows, None, server, {})) == possible
    assert (fidelity_reference is None) is (cfg.evaluate.fidelity is None)
    if fidelity_reference is not None:
        assert fidelity_reference.samples <= cfg.distill.images
        optimizer = fidelity_reference.training.optimizer(torch.nn.Linear(1, 1).parameters())
        assert isinstance(optimizer, torch.optim.Optimizer)


@pytest.mark.parametrize("name", choices("method/init", 5))
def test_an_init_returns_a_student_of_the_same_shape(name):
    found, spec = recipe_at("method/init", name), SPECS[0]
    server = server_with("classifiers")
    clients = server.uploads.models
    before = [{key: value.clone() for key, value in client.state_dict().items()} for client in clients]
    student = found(server)(cnn2(spec, norm=True))
    assert student(torch.randn(2, 1, 8, 8)).shape == (2, 10)
    assert all(parameter.requires_grad for parameter in student.parameters())
    for client, state in zip(clients, before, strict=True):
        assert all(torch.equal(value, state[key]) for key, value in client.state_dict().items())
    if "classifiers" not in found.needs:  # then it does not ask for any
        assert found(server_of())(cnn2(spec, norm=True))(torch.randn(2, 1, 8, 8)).shape == (2, 10)


@pytest.mark.parametrize("name", choices("method/perturb", 1))
def test_a_perturbation_keeps_shape_and_is_seeded_and_detached(name):
    found = recipe_at("method/perturb", name)
    perturb = found(server_with(*found.needs))
    x, teacher = torch.randn(16, 1, 8, 8), cnn2(SPECS[0], norm=True).eval()
    drawn = [perturb.draw(16, torch.Generator().manual_seed(seed)) for seed in (0, 0, 1)]
    first, again, other = (perturb(x, teacher, each) for each in drawn)
    assert first.shape == x.shape
    assert not first.requires_grad
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert not torch.equal(first, x)


def _terms() -> list[tuple[str, str, str]]:
    """Every term of every method once, by what it is and how it is set, with the first method that has it."""
    found: dict[str, tuple[str, str, str]] = {}
    for method, slots in SLOTS.items():
        for slot in ("objective", "student"):
            for term, settings in (slots.get(slot) or {}).items():
                if settings["weight"] != 0:  # switched off: never computed
                    found.setdefault(f"{slot} {settings}", (method, slot, term))
    assert len(found) >= 20
    return list(found.values())


@pytest.mark.parametrize(("method", "slot", "term"), _terms())
def test_a_term_is_a_finite_scalar_with_a_gradient(method, slot, term):
    spec = SPECS[0]
    made = build(SLOTS[method][slot][term])
    assert made.needs <= NEEDS_OF_VIEW
    part = Objective({term: made})
    clients, student = [cnn2(spec, norm=True) for _ in range(2)], cnn2(spec, norm=True)
    x = torch.randn(8, 1, 8, 8, requires_grad=True)
    asked: list[Votes] = []

    def ensemble(votes: Votes) -> torch.Tensor:
        asked.append(votes)
        return votes.P.mean(0)

    view = View(
        x,
        torch.randint(10, (8,)),
        student=student,
        bank=ClientBank(clients),
        ensemble=ensemble,
        needs=part.needs,
        start=ClientBank([cnn2(spec, norm=True)]),
    )
    total, values = part(view)
    assert total.shape == ()
    assert torch.isfinite(total)
    assert set(values) == {term}
    assert bool(asked) is ("teacher" in made.needs)
    total.backward()
    wanted = x.grad if slot == "objective" else student[0].weight.grad
    assert wanted is not None
    assert torch.isfinite(wanted).all()


class Negated:
    """An attack: one client turns the signs of its last layer; what it was handed stays as it is."""

    def __init__(self, *, client: int) -> None:
        self.client = client

    def __call__(self, uploads: Uploads) -> Uploads:
        chosen = uploads.classifiers[self.client]
        model = deepcopy(chosen.model)
        with torch.no_grad():
            model[-1].weight.neg_()
        classifiers = list(uploads.classifiers)
        classifiers[self.client] = replace(chosen, model=model)
        return replace(uploads, classifiers=tuple(classifiers))


class Smallest:
    """A gate: the clients with fewer samples than so many stay out."""

    def __init__(self, *, samples: int) -> None:
        self.samples = samples

    def __call__(self, uploads: Uploads) -> Uploads:
        return replace(uploads, classifiers=tuple(one for one in uploads.classifiers if one.samples >= self.samples))


ATTACK = (f"+attack._target_={__name__}.Negated", "+attack.client=1")
GATE = (f"+gate._target_={__name__}.Smallest", "+gate.samples=2")
STEPS = [
    *((f"{slot}={name}",) for slot, least in (("attack", 13), ("gate", 2)) for name in choices(slot, least)),
    *(ATTACK, GATE),
]


@pytest.mark.parametrize("overrides", STEPS, ids=lambda overrides: overrides[0].rpartition(".")[2])
def test_an_attack_or_gate_hands_over_uploads_and_rekeys_those_alone_that_it_replaced(overrides):
    experiment = experiment_of(compose_config(*overrides))
    steps = [step for step in (experiment.attack_on_uploads, experiment.gate) if step is not None]
    if overrides in (ATTACK, GATE):
        assert len(steps) == 1
    uploads = server_with("classifiers", "decoders").uploads
    before = [upload.key for upload in (*uploads.classifiers, *uploads.decoders)]
    states = [{name: tensor.clone() for name, tensor in model.state_dict().items()} for model in uploads.models]
    for step in steps:
        after, again = (uploads.through(step_for(step, SPECS[0]), described(step)) for _ in range(2))
        assert isinstance(after, Uploads)
        assert after.key == again.key  # the same uploads and the same settings
        known = {id(upload): upload.key for upload in (*uploads.classifiers, *uploads.decoders)}
        for upload in (*after.classifiers, *after.decoders):
            assert upload.key == known[id(upload)] if id(upload) in known else upload.key not in before
    for model, state in zip(uploads.models, states, strict=True):
        assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())
    assert [upload.key for upload in (*uploads.classifiers, *uploads.decoders)] == before


class Third:
    """A hearing: the third client stays out."""

    needs = frozenset({"classifiers", "recitals"})

    def __call__(self, uploads: Uploads, recitals: tuple[Recital, ...]) -> Uploads:
        assert len(recitals) == len(uploads.classifiers)
        return uploads.without({uploads.classifiers[2].name: "was third"})


HEARING = (f"+hearing._target_={__name__}.Third",)


@pytest.mark.parametrize("overrides", [*((f"hearing={name}",) for name in choices("hearing", 2)), HEARING])
def test_a_hearing_leaves_uploads_as_they_came_and_names_those_that_are_missing(overrides):
    hearing = experiment_of(compose_config(*overrides)).hearing
    assert (hearing is None) is (overrides == ("hearing=none",))
    if hearing is not None:
        assert hearing.needs <= {"classifiers", "recitals", "label_counts"}
        models = [cnn2(SPECS[0], norm=True) for _ in range(4)]
        images = [torch.randint(256, (20, 1, 8, 8), dtype=torch.uint8) for _ in models]
        server = server_of(models, [1] * 4, spec=SPECS[0], recitals=images)
        after, again = (step_for(hearing, SPECS[0])(server.uploads, server.recitals) for _ in range(2))
        assert after == again
        assert {id(one) for one in after.classifiers} <= {id(one) for one in server.uploads.classifiers}
        gone = {one.name for one in server.uploads.classifiers} - set(after.named())
        assert {one.name for one in after.quarantined} == gone


@pytest.mark.parametrize("method", ["fedchorus", "fedhydra"])
def test_what_a_hearing_turned_away_nobody_learns_from(tiny, tmp_path, method):
    chosen = (f"method={method}", "partition.clients=4", *HEARING)
    summary = run_config(tiny(*chosen, "distill.rounds=1", *few_images(method)), tmp_path / "run")
    assert [one["quarantined"] for one in summary["clients"]] == [None, None, "was third", None]
    assert [one["accuracy"] is None for one in summary["clients"]] == [False, False, True, False]
    assert summary["cost"]["recite"]["results"] == 4
    assert (summary["guidance"] is None) is ("guidance" not in experiment_of(compose_config(*chosen)).needs)
    assert all(len(row) == 3 for row in summary["guidance"] or ())


@pytest.mark.parametrize("name", choices("attack", 12, without=("none",)))
def test_an_attack_touches_the_last_client_alone_either_its_upload_or_its_samples(name):
    experiment = experiment_of(compose_config(f"attack={name}", "attack.clients=1", "partition.clients=3"))
    poisoned = [plan.poison is not None for plan in experiment.clients]
    uploads = server_with("classifiers", "decoders").uploads
    step = experiment.attack_on_uploads
    after = uploads if step is None else step_for(step, SPECS[0])(uploads)
    changed = [one is not other for one, other in zip(after.classifiers, uploads.classifiers, strict=True)]
    assert (poisoned, changed) in (([False] * 3, [False, True]), ([False, False, True], [False, False]))


@pytest.mark.parametrize("name", choices("attack", 13))
def test_poisoned_samples_keep_their_number_and_shape_and_the_clean_ones_stay_as_they_are(name):
    poison = experiment_of(compose_config(f"attack={name}")).clients[-1].poison
    images, labels = torch.randint(255, (8, 1, 8, 8), dtype=torch.uint8), torch.arange(8) + 1
    before = images.clone(), labels.clone()
    x, y = (images, labels) if poison is None else poison()(images, labels, 10)
    assert (x.shape, x.dtype, y.shape, y.dtype) == (images.shape, images.dtype, labels.shape, labels.dtype)
    assert torch.equal(images, before[0])
    assert torch.equal(labels, before[1])
    assert poison is None or not (torch.equal(x, images) and torch.equal(y, labels))
    assert (y >= 0).all()
    assert (y < 10).all()


def test_nothing_happens_to_uploads_unless_asked_for():
    experiment = experiment_of(compose_config())
    assert (experiment.attack, experiment.gate, experiment.hearing) == (None, None, None)


def test_an_attacked_client_is_not_trained_again_and_the_server_makes_another_model(tiny, tmp_path):
    chosen = ("method=fedavg", "partition=iid", "partition.clients=3", "clients.epochs=1")
    honest, attacked = (
        run_config(tiny(*chosen, *more), tmp_path / name) for name, more in (("honest", ()), ("attacked", ATTACK))
    )
    assert len(list((tmp_path / "store" / "clients").glob("*/manifest.json"))) == 3
    assert len(list((tmp_path / "store" / "distill").glob("*/manifest.json"))) == 2
    same = [
        one["accuracy"] == other["accuracy"] for one, other in zip(honest["clients"], attacked["clients"], strict=True)
    ]
    assert same == [True, False, True]


@pytest.mark.parametrize("name", choices("data", 12))
def test_a_data_set_takes_exactly_the_keys_of_its_yaml(name):
    import inspect

    from hydra.utils import get_method

    settings = plain(compose_config(f"data={name}").data)
    function = get_method(settings.pop("_target_"))
    assert settings.pop("name") == name
    assert set(inspect.signature(function).parameters) == set(settings)


@pytest.mark.parametrize("name", choices("logger", 5))
def test_a_logger_takes_metrics_and_pictures_and_closes(name, tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("WANDB_MODE", "offline")
    nodes = compose_config(f"logger={name}", "study=s").logger.values()
    if any("MLFlow" in node._target_ for node in nodes):
        pytest.importorskip("mlflow")
        monkeypatch.chdir(tmp_path)
    made = [recipe(node) for node in nodes]
    about = About(tmp_path, "id", "name", "group", "clients", ("tag",), {"seed": 0})
    figure = tmp_path / "p.png"
    from matplotlib.figure import Figure

    Figure().savefig(figure)
    with RunLog([opened(each.make, each.settings, about) for each in made]) as log:
        log.log({"distill/accuracy": 0.5}, 1)
        log.images("distill/images", torch.zeros(2, 1, 8, 8, dtype=torch.uint8), 1)
        log.figures({"p": figure})
    assert "failed" not in capsys.readouterr().err
    assert (tmp_path / "metrics.csv").exists() is (name != "none")
    if name != "none":
        assert (tmp_path / "metrics.csv").read_text().splitlines() == ["distill/accuracy,step", "0.5,1"]
    if name == "wandb":
        assert list(Path(tmp_path).rglob("run-*.wandb"))
    if name == "tensorboard":
        assert list(Path(tmp_path).rglob("events.out.tfevents.*"))
