"""The small functions of the data flow; the flow itself is tests/pipeline."""

from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from rich.console import Console

from oneshot_fl.config import experiment_of
from oneshot_fl.errors import NothingLeftError, OneshotError
from oneshot_fl.ledger import NOTHING
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.cvae import mlp
from oneshot_fl.parts.uploads import ClassifierUpload, Quarantined, Uploads
from oneshot_fl.phases.clients.train import TrainedClient
from oneshot_fl.pipeline import admit, received, run, serve
from oneshot_fl.tracking.progress import Progress
from tests.composing import compose_config
from tests.parts import SMALL, decoder_of, server_of, uploads_of


def test_the_server_receives_classifiers_and_decoders_apart_in_their_order():
    models = [torch.nn.Identity() for _ in range(2)]
    classifiers = [ClassifierUpload(model, 5, f"classifier {k}") for k, model in enumerate(models)]
    decoder = decoder_of(mlp(SMALL, latent=2, hidden=4), [1, 0, 4])
    sent = [classifiers[0], decoder, classifiers[1]]
    uploads = received([TrainedClient(upload, "any", "any", 5, NOTHING, 1) for upload in sent])
    assert [(upload.key, upload.name) for upload in uploads.classifiers] == [
        ("classifier 0", "client 0"),
        ("classifier 1", "client 2"),
    ]
    assert [upload.key for upload in uploads.decoders] == [decoder.key]


CLASSIFIERS = uploads_of([torch.nn.Linear(1, 1)], [5])
DECODERS = uploads_of([], [], [decoder_of(mlp(SMALL, latent=2, hidden=4), [1, 0, 4])])


def _admitted(method, left, context):
    plan = experiment_of(compose_config("trainer=cpu", f"method={method}", "clients=half_cvae"))
    turned_away = (Quarantined("client 7", "draws nothing"), Quarantined("client 8", "says nothing"))
    return admit(plan, replace(left, quarantined=turned_away), SMALL, context)[1]


@pytest.mark.parametrize(
    ("method", "left", "kind"),
    [
        ("dense", DECODERS, "classifiers"),
        ("fedchorus", DECODERS, "classifiers"),
        ("fedavg", DECODERS, "classifiers"),
        ("fedmho", CLASSIFIERS, "decoders"),
        ("fedmho_md", DECODERS, "classifiers"),
    ],
)
def test_a_method_cannot_do_without_a_kind_of_uploads_that_was_turned_away(method, left, kind, context):
    line = rf"^method={method}: needs {kind}, and none is left; turned away: client 7: draws nothing \(and 1 more\)$"
    with pytest.raises(NothingLeftError, match=line):
        _admitted(method, left, context)


@pytest.mark.parametrize("method", ["dense", "fedmho"])
def test_why_no_upload_is_left_stands_in_the_error_which_is_what_tables_and_programs_are_told(method, context):
    line = r"^no upload is left: all were turned away: client 7: draws nothing \(and 1 more\)$"
    with pytest.raises(NothingLeftError, match=line):
        _admitted(method, Uploads((), ()), context)


def test_what_a_method_does_not_need_may_be_turned_away(context):
    assert _admitted("fedmho", DECODERS, context).decoders == DECODERS.decoders
    assert _admitted("dense", CLASSIFIERS, context).classifiers == CLASSIFIERS.classifiers


MODELS = (
    *("cnn1", "cnn2", "cnn2_group", "cnn2_plain", "cnn2_torch", "cnn3", "cnn3_group", "cnn3_plain", "cnn5", "lenet5"),
    *("vgg9", "vgg11", "resnet18", "resnet50", "mobilenet_v2", "mobilenet_v3", "shufflenet_v2", "googlenet"),
    *("efficientnet_v2_s", "fedcvae_cnn", "fedmho_cnn"),
)


def test_a_model_that_no_file_can_describe_is_told_before_anybody_trains(tmp_path):
    chosen = ("model=mixed", f"model.names=[{','.join(MODELS)}]", "partition.clients=21", f"store={tmp_path}/store")
    plan = experiment_of(compose_config("trainer=cpu", "logger=none", "method=fedavg", "partition=iid", *chosen))
    with pytest.raises(OneshotError, match=r"^method=fedavg: the server's model would be 21 architectures"):
        run(plan, tmp_path / "run")
    assert not list(tmp_path.rglob("*.safetensors"))


def _served(method, context, models, *overrides):
    chosen = ("trainer=cpu", f"method={method}", "model=cnn2", "distill.rounds=1", *overrides)
    plan = experiment_of(compose_config(*chosen))
    uploads = server_of(models, [3, 5], label_counts=torch.ones(2, SMALL.classes).long()).uploads
    return serve(plan, uploads, SMALL, test=None, data_key="none", context=context)


@pytest.mark.parametrize(("held_out", "told"), [(0.0, 0), (0.01, 1), (0.25, 0)])
def test_a_share_of_which_no_image_was_held_out_is_told(context, monkeypatch, held_out, told):
    """Of two generators the configuration does not tell how many images they make."""
    said, models = [], [cnn2(SMALL, norm=True) for _ in range(2)]
    monkeypatch.setattr(context.progress, "note", said.append)
    small = ("distill.batch_size=8", "distill.generator_steps=1", "generator.width=4", f"distill.held_out={held_out}")
    _served("dfdg", context, models, *small)
    assert len([line for line in said if line.startswith(f"distill.held_out={held_out}: ")]) == told


@pytest.mark.parametrize("method", ["fedavg", "dense", "ot"])
def test_uploads_that_are_not_finite_are_told_with_the_gate_that_turns_them_away(method, context):
    models = [cnn2(SMALL, norm=method != "ot") for _ in range(2)]
    torch.nn.init.constant_(models[1][-1].weight, torch.nan)
    with pytest.raises(
        OneshotError, match=r"client 1 .*is not finite, .*gate=checks turns such uploads away$"
    ) as error:
        _served(method, context, models)
    assert str(error.value).count("gate=checks") == 1


def test_nothing_is_put_down_to_uploads_that_are_finite(context):
    models = [cnn2(SMALL, norm=True) for _ in range(2)]
    for model in models:
        torch.nn.init.constant_(model[-1].weight, torch.finfo(torch.float32).max)
    with pytest.raises(OneshotError, match="not finite") as error:
        _served("dense", context, models)
    assert "gate=checks" not in str(error.value)


class Silencing:
    """A hearing: the last client is not turned away, but says nothing from then on."""

    needs = frozenset({"classifiers", "recitals"})

    def __init__(self, *, bias: float = 0.0) -> None:
        self.bias = bias

    @torch.no_grad()
    def __call__(self, uploads, recitals):
        *others, last = uploads.classifiers
        model = deepcopy(last.model)
        for parameter in model.parameters():
            parameter.fill_(self.bias)
        return replace(uploads, classifiers=(*others, replace(last, model=model)))


class SilencingInPlace(Silencing):
    """The same in the uploads themselves."""

    @torch.no_grad()
    def __call__(self, uploads, recitals):
        for parameter in uploads.models[-1].parameters():
            parameter.fill_(self.bias)
        return uploads


RECITED = ("recite.labels=estimated", "recite.images=4", "recite.batch_size=4", "recite.steps=1")


def _keys_once_heard(hearing, context, *overrides):
    chosen = ("method=fedchorus", f"+hearing._target_={__name__}.{hearing}", *overrides)
    plan = experiment_of(compose_config("trainer=cpu", *RECITED, *chosen))
    torch.manual_seed(0)
    uploads = uploads_of([cnn2(SMALL, norm=True) for _ in range(3)], [3, 5, 7])
    _, heard, recitals = admit(plan, uploads, SMALL, context)
    assert len(recitals) == 3
    return [upload.key for upload in heard.classifiers]


def test_a_hearing_that_can_judge_nobody_is_told_of(context, capsys):
    context = replace(context, progress=Progress(Console(force_terminal=False)))
    plan = experiment_of(compose_config("trainer=cpu", *RECITED, "method=fedchorus", "hearing=witnesses"))
    admit(plan, uploads_of([cnn2(SMALL, norm=True) for _ in range(3)], [3, 5, 7]), SMALL, context)
    told = " ".join(capsys.readouterr().out.split())
    assert "note: the hearing judges nobody: nobody is asked about more than 8 images" in told


def test_what_a_hearing_changed_does_not_keep_its_key_whatever_it_heard(context):
    others = ("Silencing", "+hearing.bias=1.0"), ("Silencing", "recite.seed=1"), ("SilencingInPlace",)
    keys = [_keys_once_heard(name, context, *more) for name, *more in (("Silencing",), ("Silencing",), *others)]
    assert {tuple(key[:2]) for key in keys} == {("client 0", "client 1")}
    assert keys[0] == keys[1]
    assert len({"client 2", *(key[2] for key in keys)}) == 5


def test_in_every_communication_round_the_server_draws_anew():
    plan = experiment_of(compose_config("trainer=cpu", "method=fedhydra", "communication_rounds=3"))
    assert plan.of_exchange(0) is plan
    seeds = [
        {each.distillation.seed, each.stratification.seed, each.recitation.seed}
        for each in map(plan.of_exchange, range(3))
    ]
    assert [len(own) for own in seeds] == [1, 1, 1]
    assert len(set.union(*seeds)) == 3


@pytest.mark.parametrize("wanted", [True, False])
def test_a_temperature_is_fitted_only_where_one_is_wanted(wanted, context, monkeypatch):
    monkeypatch.setattr("oneshot_fl.pipeline.calibrate", lambda *_, **__: "fitted")
    small = ("distill.batch_size=8", "distill.generator_steps=1", "generator.width=4", "distill.rounds=1")
    models = [cnn2(SMALL, norm=True) for _ in range(2)]
    served = _served("dense", context, models, *small, f"distill.calibrate={str(wanted).lower()}")
    assert served.calibration == ("fitted" if wanted else None)
