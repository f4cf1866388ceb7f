"""The server's half of the configuration: what has no place there, and what a method needs that nobody uploaded."""

import re
from dataclasses import replace

import pytest
import torch
from torch import nn

from oneshot_fl.config.compose import architecture, plain, reading_also, recipe
from oneshot_fl.config.serving import entrance_of, serving_of
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.cvae import mlp
from oneshot_fl.recipe import Recipe
from tests.parts import SMALL, decoder_of, uploads_of


def _architecture(name: str) -> Architecture:
    told = {"_target_": "oneshot_fl.models.zoo.from_torchvision", "name": name, "architecture": name}
    return Architecture(recipe(told if name.startswith("squeezenet") else plain(architecture(name))))


def _serving(*overrides: str, names=("cnn2", "cnn2"), counts: bool = False):
    known = [_architecture(name) for name in names]
    uploads = uploads_of([one.build(SMALL) for one in known], [1] * len(known))
    if counts:
        told = tuple(replace(each, label_counts=torch.tensor([1, 2, 3])) for each in uploads.classifiers)
        uploads = replace(uploads, classifiers=told)
    return serving_of(uploads, SMALL, known, ["trainer=cpu", *overrides])


def test_by_default_it_is_fedchorus_behind_the_gate_and_label_counts_are_estimated_where_they_lack():
    serving, notes = _serving()
    assert (serving.method.name, serving.recitation.labels) == ("fedchorus", "estimated")
    assert None not in (serving.gate, serving.hearing)
    for recites in ("fedchorus", "fedchorus_quick"):
        assert _serving(f"method={recites}")[0].hearing is not None
    assert _serving("method=dense")[0].hearing is None
    assert _serving("hearing=none")[0].hearing is None
    assert len(notes) == 1
    serving, notes = _serving(counts=True)
    assert (serving.recitation.labels, notes) == ("counts", [])


def test_the_gate_is_known_before_any_upload_is_and_what_is_wrong_with_it_said():
    assert entrance_of([]).gate.settings["largest_logit"] == 1000.0
    chosen = ["gate.images=8", "seed=3"]
    assert entrance_of(chosen).gate.settings == _serving(*chosen)[0].gate.settings
    assert entrance_of(["gate=none"]).gate is None
    for override in ("gate=nope", "gate.images=0", "gate.no_such=1", "data=mnist", "no_such=1"):
        with pytest.raises(OneshotError, match=override.partition("=")[0]):
            entrance_of([override])


@pytest.mark.parametrize(
    ("overrides", "key"),
    [
        (["distill.rounds=-1"], "distill.rounds"),
        (["+distill.roundz=1"], "distill.roundz"),
        (["recite.optimizer.lr=0"], "recite.optimizer.lr"),
        (["method.student.kl.temperature=0"], "method.student.kl.temperature"),
        (["hearing=witnesses", "hearing.no_such=1"], "hearing.no_such"),
        (["server_model=cnn22"], "server_model"),
        (["server_model=[cnn2]"], "server_model"),
        (["evaluate=fidelity"], "evaluate.fidelity"),
        (["evaluate.validation=proxy"], "evaluate.validation"),
    ],
)
def test_what_is_wrong_whatever_is_uploaded_is_said_before_any_upload_is_read(overrides, key):
    with pytest.raises(OneshotError, match=rf"^{re.escape(key)}\b"):
        entrance_of(overrides)


@pytest.mark.parametrize(("override", "line"), [("seed=x", "^seed=x: "), ("gate.seed=x", "^gate.seed=x: ")])
def test_a_seed_that_is_wrong_is_told_by_the_key_that_was_given(override, line):
    with pytest.raises(OneshotError, match=line):
        entrance_of([override])


def test_the_servers_model_is_built_as_the_first_upload_unless_it_is_named():
    assert _serving(names=("lenet5", "cnn2"))[0].student.name == "lenet5"
    assert _serving("server_model=cnn3", names=("lenet5", "cnn2"))[0].student.name == "cnn3"
    assert _serving("method=fedavg", names=("lenet5", "cnn2"))[0].student.name == "lenet5+cnn2"


def test_a_method_of_ones_own_is_read_from_its_file_whatever_it_is_called(tmp_path):
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text("defaults: [fedavg, _self_]\nname: called_otherwise\n")
    with reading_also(tmp_path):
        serving = _serving("method=mine")[0]
    assert (serving.method.name, serving.record["changed"]) == ("called_otherwise", {})


def test_one_structure_has_one_vote_however_its_uploads_call_it():
    other = Architecture(recipe({"name": "cnn2", "_target_": "oneshot_fl.models.classifiers.cnn2", "norm": False}))
    known = [_architecture("cnn2_plain"), other, _architecture("lenet5")]
    uploads = uploads_of([one.build(SMALL) for one in known], [1, 1, 1])
    assert serving_of(uploads, SMALL, known, ["trainer=cpu", "method=fedavg"])[0].student.name == "cnn2_plain+lenet5"


@pytest.mark.parametrize(
    "override",
    ["data=mnist", "partition.alpha=0.1", "+clients.epochs=3", "model=cnn2", "attack=zero", "experiment=digits_weak"],
)
def test_what_happened_before_the_uploads_has_no_place_here(override):
    with pytest.raises(OneshotError, match="has no place here"):
        _serving(override)


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["method=feddf"], "the server's own images"),
        (["method=fedmho"], "nobody uploaded one"),
        (["method=dfdg"], "label counts"),
        (["recite.labels=counts"], "not every upload tells"),
        (["++recite.labels=counts"], "not every upload tells"),
        (["method=nope"], "there is no such choice"),
        (["distill.rounds=-1"], "distill.rounds"),
        (["evaluate=fidelity"], r"^evaluate\.fidelity: only runs"),
        (["evaluate=privacy"], r"^evaluate\.privacy: only runs"),
        (["evaluate.validation=synthetic", "distill.held_out=0.1"], r"^evaluate\.validation: only runs"),
    ],
)
def test_what_cannot_be_done_is_said_before_anything_begins(overrides, says):
    with pytest.raises(OneshotError, match=says):
        _serving(*overrides)


def test_what_is_aligned_layer_by_layer_is_what_was_uploaded():
    assert _serving("method=ot", names=("lenet5", "lenet5"))[0].method.name == "ot"
    with pytest.raises(OneshotError, match="method=ot: ResNet has a forward of its own"):
        _serving("method=ot", names=("resnet18", "resnet18"))


def test_who_looks_at_features_needs_uploads_that_have_some():
    without = ("cnn2", "squeezenet1_1")
    with pytest.raises(OneshotError, match=r"^method\.ensemble: .*, and client 1 has none; .*method/ensemble=entropy$"):
        _serving(names=without)
    assert _serving("method/ensemble=entropy", names=without)[0].method.name == "fedchorus"


def test_one_decoder_learns_from_those_of_others_with_noise_of_one_length():
    def serving(*latents: int, method: str = "fedcvae_kd"):
        vaes = [mlp(SMALL, latent=latent, hidden=8) for latent in latents]
        uploads = uploads_of([], [], [decoder_of(vae, [1, 2, 3], key=f"client {k}") for k, vae in enumerate(vaes)])
        return serving_of(uploads, SMALL, [], ["trainer=cpu", f"method={method}"])[0]

    line = r"^method=fedcvae_kd: .*noise of one length, not 4 and 6; choose .*method=fedcvae_ens$"
    with pytest.raises(OneshotError, match=line):
        serving(4, 6, 4)
    assert serving(6, 6).method.name == "fedcvae_kd"
    assert serving(4, 6, method="fedcvae_ens").method.name == "fedcvae_ens"


class OtherVae(nn.Module):
    """Somebody's own: it draws two classes, and has no distance unless it is given one."""

    def __init__(self) -> None:
        super().__init__()
        self.latent, self.decoder = 4, mlp(replace(SMALL, classes=2), latent=4, hidden=8).decoder


class NearVae(OtherVae):
    """The same with a distance."""

    def distance(self, logits, x):
        return (logits - x).sum()


@pytest.mark.parametrize(
    ("vae", "why"),
    [(OtherVae, "OtherVae cannot be taught 2 classes .*distance"), (NearVae, "NearVae cannot be taught 3")],
)
def test_the_server_learns_no_decoder_that_cannot_be_taught_all_classes(vae, why):
    def serving(spec, method):
        first = replace(decoder_of(mlp(spec, latent=4, hidden=8), [1] * spec.classes), build=vae, name="own")
        return serving_of(uploads_of([], [], [first]), spec, [], ["trainer=cpu", f"method={method}"])[0]

    spec = SMALL if vae is NearVae else replace(SMALL, classes=2)
    with pytest.raises(
        OneshotError, match=rf"^method=fedcvae_kd: .* as that of own, .*{why}.*choose method=fedcvae_ens"
    ):
        serving(spec, "fedcvae_kd")
    assert serving(spec, "fedcvae_ens").method.name == "fedcvae_ens"
    assert serving(replace(SMALL, classes=2), "fedcvae_kd" if vae is NearVae else "fedcvae_ens").student


def test_a_server_that_does_not_begin_at_all_classifiers_says_so():
    vaes = [decoder_of(mlp(SMALL, latent=4, hidden=8), [1, 2, 3])]
    models = [_architecture(name).build(SMALL) for name in ("cnn2", "lenet5")]
    for server in ("cnn2", "cnn2_group"):
        given = uploads_of(models, [1, 1], vaes)
        _, notes = serving_of(
            given, SMALL, [_architecture("cnn2")], ["trainer=cpu", "method=fedmho", f"server_model={server}"]
        )
        begins = "begins untrained" if server == "cnn2_group" else "only 1 of 2 classifiers have .* at their mean alone"
        assert len(notes) == 1
        assert re.search(begins, notes[0])


def test_only_uploads_of_one_architecture_are_stacked():
    assert _serving("distill.bank=stacked")[0].distillation.bank == "stacked"
    with pytest.raises(OneshotError, match=r"distill\.bank=stacked: uploads have different architectures"):
        _serving("distill.bank=stacked", names=("cnn2", "lenet5"))


def test_a_server_named_as_the_uploads_are_averages_them():
    for word in ("server_model=lenet5", "++server_model=lenet5", "server_model='lenet5'"):
        serving, _ = _serving("method=fedavg", word, names=("lenet5", "lenet5"))
    assert serving.student.architectures[0].name == "lenet5"
    with pytest.raises(OneshotError, match="averaging needs uploads of the server's architecture"):
        _serving("method=fedavg", "server_model=lenet5")


def test_averaging_needs_one_architecture():
    assert _serving("method=fedavg")[0].method.name == "fedavg"
    with pytest.raises(OneshotError, match="averaging needs uploads of the server's architecture"):
        _serving("method=ot", names=("cnn2", "lenet5"))


def test_a_server_model_that_lacks_classes_is_told_with_how_one_of_your_own_is_made():
    def four(spec):
        return cnn2(replace(SMALL, classes=4), norm=True)

    four_classes = Architecture(Recipe({"_target_": "mine.four", "name": "four"}, four, four))
    uploads = uploads_of([_architecture("cnn2").build(SMALL)] * 2, [1, 1])
    with pytest.raises(OneshotError) as error:
        serving_of(uploads, SMALL, [four_classes], ["trainer=cpu"])
    line = str(error.value)
    assert line.startswith("server_model: built as the first upload, four does not answer with 3 classes (4); ")
    assert "a function build(spec)" in line
    assert "--config-dir" in line
