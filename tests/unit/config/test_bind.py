"""The door: what a composed configuration becomes, and what is refused before anything is loaded or trained."""

from dataclasses import fields
from pathlib import Path

import pytest
import torch
from lightning.pytorch.loggers import CSVLogger

from oneshot_fl.config import experiment_of
from oneshot_fl.errors import OneshotError
from oneshot_fl.experiment import Experiment
from oneshot_fl.phases.trainer import device_of
from tests.composing import compose_config


def _bound(*overrides: str) -> Experiment:
    return experiment_of(compose_config("trainer=cpu", *overrides))


def test_a_record_tells_the_device_that_is_used_and_the_configuration_what_was_asked_for():
    """Numbers of another device are another run's; `auto` and the word for what it is here are the same."""
    found = _bound("trainer=auto")
    here = device_of(found.trainer).type
    assert found.record["settings"]["trainer"]["accelerator"] == here
    assert found.config["trainer"]["accelerator"] == "auto"
    assert _bound(f"trainer.accelerator={here}", "trainer=auto").record["settings"] == found.record["settings"]


def _rates(experiment: Experiment) -> dict[str, float]:
    """The learning rate of every architecture of the clients, as its optimiser is made."""
    weight = [torch.nn.Parameter(torch.ones(2))]
    return {plan.architecture.name: plan.training.optimizer(weight).defaults["lr"] for plan in experiment.clients}


def test_an_architecture_may_have_a_learning_rate_of_its_own():
    mixed = ("model=mixed", "model.names=[cnn2,lenet5]")
    own = _bound(*mixed, "clients.lr_of={cnn2: 0.02, cnn3: 0.1}")  # no client has cnn3
    same = _bound("clients.optimizer.lr=0.02")
    assert _rates(own) == {"cnn2": 0.02, "lenet5": 0.01}
    assert own.clients[0].training.optimizer.settings == same.clients[0].training.optimizer.settings  # so the same key
    keys = {plan.architecture.name: plan.rate_key for plan in own.clients}
    assert keys == {"cnn2": "clients.lr_of.cnn2", "lenet5": "clients.optimizer.lr"}


def test_a_rate_may_be_told_by_the_name_that_another_setting_gives_an_architecture():
    chosen = ("model=torchvision", "model.architecture=squeezenet1_0", "method=fedavg", "data=mnist")
    (rate,) = _rates(_bound(*chosen, "clients.lr_of={squeezenet1_0: 0.5}")).values()
    assert rate == 0.5


def test_fedmhos_large_vae_does_not_learn_at_the_small_ones_rate():
    bound = _bound(
        "data=mnist", "method=fedcvae_ens", "clients=fedmho", "cvae=fedmho", "clients.kinds=[cvae,classifier]"
    )
    assert _rates(bound)["cvae_large"] == 0.001
    small = _bound("data=mnist", "method=fedmho", "clients=fedmho", "cvae=cvae_mlp")
    assert _rates(small)["cvae_mlp"] == 0.05
    assert _rates(small)["cnn2"] == 0.005
    decoder = small.clients[-1]
    assert (decoder.kind.name, decoder.rate_key) == ("cvae", "clients.cvae.optimizer.lr")
    assert (decoder.training.augmentation, decoder.training.sam) == ("none", None)


def test_whether_clients_begin_alike_is_told_to_all_of_them_whatever_they_train():
    clients = _bound("method=fedmho", "clients=half_cvae", "clients.initial_weights=own").clients
    assert {(plan.kind.name, plan.training.initial_weights) for plan in clients} == {
        ("classifier", "own"),
        ("cvae", "own"),
    }


def test_only_private_training_depends_on_how_often_it_is_repeated():
    """The first round of other clients is the same however many follow, and found in the store."""
    private, other = (
        _bound("communication_rounds=3", clients, "model=cnn2_group") for clients in ("clients=dp", "clients=default")
    )
    assert {plan.training.communication_rounds for plan in private.clients} == {3}
    assert {plan.training.communication_rounds for plan in other.clients} == {1}


def test_a_client_trains_by_the_settings_of_its_kind():
    bound = _bound(
        *("method=fedmho", "clients=half_cvae", "partition.clients=4", "seed=3"),
        *("clients.epochs=7", "clients.cvae.epochs=5", "clients.sam=0.1", "clients.cvae.batch_size=9"),
    )
    assert [plan.kind.name for plan in bound.clients] == ["classifier", "classifier", "cvae", "cvae"]
    assert [plan.training.epochs for plan in bound.clients] == [7, 7, 5, 5]
    assert [plan.training.sam for plan in bound.clients] == [0.1, 0.1, None, None]
    assert [plan.training.batch_size for plan in bound.clients] == [128, 128, 9, 9]
    assert {plan.training.seed for plan in bound.clients} == {3}


def test_an_experiment_is_frozen_and_knows_no_configuration():
    bound = _bound()
    with pytest.raises(AttributeError):
        bound.communication_rounds = 2
    held = [type(getattr(bound, field.name)).__module__ for field in fields(bound)]
    assert not [module for module in held if module.startswith(("omegaconf", "hydra"))]


def test_a_students_optimiser_is_its_methods_or_the_one_that_all_share():
    assert _bound("method=dense", "distill.student_optimizer.lr=0.3").method.optimizer.settings["lr"] == 0.3
    own = _bound("method=fedmho", "clients=half_cvae", "distill.student_optimizer.lr=0.3").method.optimizer
    assert own.settings["_target_"] == "torch.optim.Adam"
    assert own.settings["lr"] != 0.3


LABELS = "+method.objective.ce={_target_: oneshot_fl.parts.terms.CrossEntropy, weight: 1}"


@pytest.mark.parametrize(
    ("overrides", "source", "student"),
    [
        (["method=dense"], {"images": "distill.generator_optimizer.lr"}, "distill.student_optimizer.lr"),
        (["method=f_adi"], {"images": "method.source.optimizer.lr"}, "distill.student_optimizer.lr"),
        (["method=fedisca"], {"images": "method.source.optimizer.lr"}, "method.student_optimizer.lr"),
        (
            ["method=fedchorus", "+method/source@method.source.own=trajectory", LABELS],
            {"own": "method.source.own.optimizer.lr"},
            "method.student_optimizer.lr",
        ),
        (
            ["method=fedchorus", "+method/source@method.source.own=joint", LABELS],
            {"own": "recite.optimizer.lr"},
            "method.student_optimizer.lr",
        ),
        (["method=fedavg"], {}, "distill.student_optimizer.lr"),
    ],
)
def test_every_learning_rate_of_the_server_is_known_by_its_key(overrides, source, student):
    named = {f"source {name}": key for name, key in source.items()}
    warm_up = {"warm_up": "method.warm_up.optimizer.lr"}
    assert _bound(*overrides).rate_keys == {"student": student, **warm_up, **named}


def test_a_store_may_be_relative_and_is_found_from_anywhere(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert _bound("store=here").store == tmp_path / "here"
    assert _bound("store='~/there'").store == Path.home() / "there"


def test_data_may_lie_in_the_users_home():
    folder = _bound("data=image_folder", "data.root='~/x'", "data.cache='~/y'").data.load.settings
    assert (folder["root"], folder["cache"]) == (str(Path.home() / "x"), str(Path.home() / "y"))
    home = str(Path.home() / "x")
    assert _bound("data=mnist", "data_root='~/x'").data.load.settings["root"] == home


def test_decoded_images_are_kept_in_the_store_unless_another_is_set():
    folder = ("data=image_folder", "data.root=x", "store=/here")
    assert _bound(*folder).data.load.settings["cache"] == "/here"
    assert _bound(*folder, "data.cache=/there").data.load.settings["cache"] == "/there"


def test_nothing_is_measured_unless_asked_for():
    assert _bound("evaluate=default").evaluation.fidelity is None


@pytest.mark.parametrize(
    ("override", "name"), [("server_model=lenet5", "lenet5"), ("++evaluate.fidelity.model=cnn3", "cnn3")]
)
def test_images_are_measured_by_the_servers_architecture_or_a_named_one(override, name):
    reference = _bound("evaluate=fidelity", override).evaluation.fidelity
    assert reference is not None
    assert reference.architecture.name == name
    assert (reference.training.augmentation, reference.training.sam) == ("none", None)


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["evaluate.fidelity.samples=1001"], r"^evaluate\.fidelity\.samples=1001: .*\(distill\.images=1000\)"),
        (["evaluate.fidelity.model=cnn22"], r"cnn22.*did you mean cnn2\?"),
    ],
)
def test_what_cannot_be_measured_is_refused(overrides, line):
    with pytest.raises(OneshotError, match=line):
        _bound("evaluate=fidelity", *overrides)


@pytest.mark.parametrize(
    ("overrides", "epochs"),
    [
        (["budget=demo"], 40),
        (["budget=demo", "clients.epochs=3"], 3),
        (["budget=demo", "clients.epochs=3", "evaluate.privacy.epochs=5"], 5),
        (["clients=dp", "model=cnn2_group", "clients.epochs=7"], 7),
        (["method=fedmho", "clients=half_cvae", "clients.epochs=7", "clients.cvae.epochs=9"], 7),
    ],
)
def test_models_that_uploads_are_held_against_train_as_long_as_the_clients(overrides, epochs):
    assert _bound("evaluate=privacy", *overrides).evaluation.privacy.training.epochs == epochs


@pytest.mark.parametrize("group", ["data", "partition", "clients.optimizer", "method.objective.adv"])
def test_a_key_that_a_part_does_not_take_is_named(group):
    with pytest.raises(OneshotError, match="colour"):
        _bound(f"+{group}.colour=3")


@pytest.mark.parametrize(
    ("overrides", "missing"),
    [
        (["method=fedmho", "clients=default"], "decoders"),
        (["method=dense", "clients=all_cvae"], "classifiers"),
        (["method=fedhydra", "clients=all_cvae"], "classifiers"),
    ],
)
def test_a_need_that_no_client_meets_is_refused(overrides, missing):
    with pytest.raises(OneshotError, match=r"^method=(fedmho|dense|fedhydra): ") as caught:
        _bound(*overrides)
    assert missing.rstrip("s") in str(caught.value)


def test_loggers_are_lightnings_and_wait_for_the_runs_folder():
    (one,) = _bound().loggers
    assert one.target is CSVLogger
    assert "save_dir" not in one.settings


def test_an_ensemble_that_asks_the_student_does_not_teach_it():
    with pytest.raises(OneshotError, match=r"^method\.ensemble=self_gated: asks the student.*evaluate\.ensembles"):
        _bound("method=dense", "method/ensemble=self_gated")


@pytest.mark.parametrize("of", ["synthetic", "proxy"])
def test_no_student_is_validated_where_no_classifier_taught_it(of):
    with pytest.raises(OneshotError, match=rf"^evaluate\.validation={of}: .*no client trains one .*=null$"):
        experiment_of(
            compose_config(
                "method=fedcvae_ens", "clients=all_cvae", f"evaluate.validation={of}", "distill.held_out=0.2"
            )
        )
