import json
import time
from functools import partial

import pytest
import torch
import wandb
from lightning.pytorch.loggers import WandbLogger
from matplotlib.figure import Figure

from oneshot_fl.errors import OneshotError
from oneshot_fl.tracking.loggers import opened
from oneshot_fl.tracking.told import About, Outcome
from oneshot_fl.tracking.wandb_run import OF_CLIENTS, PUBLIC, WandbSink, _tables, destination, summarised, told_of
from tests.wandb_records import read_back

SUMMARY = {
    "cost": {"clients": {"seconds": 1.5, "macs": 7, "cpu_joules": None}},
    "ensemble": {"rows": {"uniform": 0.4}},
    "server": {
        "accuracy_last": 0.5,
        "macro_auroc": None,
        "by_class": [{"class": "cat", "images": 3, "recall": 0.5, "auroc": None}],
    },
    "clients": [
        {"kind": "cvae", "model": "m", "samples": 5, "accuracy": None, "balanced_accuracy": None, "quarantined": None}
    ],
    "data_spec": {"class_names": ["cat"]},
}


def _about(folder, **changes):
    known = {
        "id": "stable",
        "name": "dense-digits-dirichlet0.1-cnn2-seed0",
        "group": "a study",
        "phases": "clients+distill",
        "tags": ("dense", "t" * 80),
        "config": {"seed": 3},
    }
    return About(folder, **{**known, **changes})


def _opened(folder, **settings):
    given = {"project": "p", "mode": "offline", **settings}
    build = partial(WandbLogger, **{key: value for key, value in given.items() if key != "name"})
    return opened(build, {"_target_": "lightning.pytorch.loggers.WandbLogger", **given}, _about(folder))


@pytest.fixture
def offline(monkeypatch, tmp_path):
    monkeypatch.setenv("WANDB_MODE", "offline")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    return tmp_path


def test_an_offline_run_holds_all_that_is_promised(offline):
    sink = _opened(offline)
    figure, model = offline / "partition.png", offline / "server.safetensors"
    Figure().savefig(figure)
    model.write_text("weights")
    sink.log({"clients/00/loss": 0.9}, 0)
    sink.log({"clients/01/loss": 0.8}, 0)
    sink.log({"distill/accuracy": 0.25}, 1)
    sink.log({"evaluate/client_00": 0.5, "evaluate/recall_00": 0.5, "evaluate/server_last": 0.25}, 1)
    sink.images("distill/images", torch.zeros(3, 1, 8, 8, dtype=torch.uint8), 1)
    sink.figures({"partition": figure})
    sink.outcome(Outcome(SUMMARY, [[1.0, 2.0]], {"client 0": "key0"}, [model]))
    sink.close(failed=False)
    found = read_back(offline)
    assert found.run["run_id"] == "stable"
    assert found.run["display_name"] == "dense-digits-dirichlet0.1-cnn2-seed0"
    assert (found.run["run_group"], found.run["job_type"]) == ("a study", "clients+distill")
    assert found.run["tags"] == ["dense", "t" * 64]
    assert found.config["seed"] == 3
    assert [row["distill/accuracy"] for row in found.history if "distill/accuracy" in row] == [0.25]
    assert [row["distill/step"] for row in found.history if "distill/images" in row] == [1]
    shown = {key for row in found.history for key in row}
    tables = {"clients/losses", "evaluate/by_class", "evaluate/clients", "guidance/matrix"}
    assert tables | {"figures/partition"} <= shown
    assert "evaluate/server_last" in shown
    assert not {key for key in shown if key.startswith(("clients/0", "evaluate/client_", "evaluate/recall_"))}
    assert found.summary["server/accuracy_last"] == 0.5
    assert (found.summary["cost/clients/seconds"], found.summary["cost/clients/macs"]) == (1.5, 7)
    own = {name: kind for name, kind in found.artifacts.items() if kind != "run_table"}  # W&B's, of the tables
    assert own == {"server-stable": "model", "uploads-stable": "uploads"}
    assert found.exit_code == 0
    (losses,) = (json.loads(path.read_text()) for path in offline.rglob("*losses*.table.json"))
    assert losses["data"] == [["", 0, 0, 0.9], ["", 1, 0, 0.8]]


def test_guidance_is_of_the_clients_that_were_used(offline):
    """The first of three clients has a decoder, the second was turned away."""
    sink = _opened(offline)
    sink.outcome(Outcome(SUMMARY, [[0.75]], {"client 2": "key2", "client 0": "key0"}, []))
    sink.close(failed=False)
    (matrix,) = (json.loads(path.read_text()) for path in offline.rglob("*matrix*.table.json"))
    assert (matrix["columns"], matrix["data"]) == (["class", "client", "guidance"], [["cat", "client 2", 0.75]])


def test_epsilon_delta_and_who_is_hostile_are_columns_where_they_say_something():
    (first,) = SUMMARY["clients"]
    private = {**first, "epsilon": 0.0, "delta": 0.001, "hostile": False}
    assert _columns_of([{**first, "epsilon": None, "delta": None, "hostile": False}]) == OF_CLIENTS
    assert _columns_of([first, private]) == [*OF_CLIENTS, "epsilon", "delta"]
    assert _columns_of([{**first, "hostile": True}, private]) == [*OF_CLIENTS, "epsilon", "delta", "hostile"]


def _columns_of(clients):
    tables = _tables(Outcome({**SUMMARY, "clients": clients}, None, {}, []))
    columns, rows = tables["evaluate/clients"]
    assert [row[: len(OF_CLIENTS)] for row in rows] == [
        [f"client {k}", *(client[head] for head in OF_CLIENTS[1:])] for k, client in enumerate(clients)
    ]
    assert [row[len(OF_CLIENTS) :] for row in rows] == [
        [client.get(head) for head in columns[len(OF_CLIENTS) :]] for client in clients
    ]
    return columns


def test_a_failed_run_is_marked(offline):
    sink = _opened(offline)
    sink.close(failed=True)
    assert read_back(offline).exit_code == 1


def test_what_the_loggers_file_sets_counts(offline):
    sink = _opened(offline, name="mine", tags=["own"])
    sink.close(failed=False)
    found = read_back(offline)
    assert (found.run["display_name"], found.run["tags"]) == ("mine", ["own"])


@pytest.fixture
def unsaid(monkeypatch, tmp_path):
    """An environment that says nothing to W&B."""
    for name in ("MODE", "ENTITY", "PROJECT", "BASE_URL", "API_KEY"):
        monkeypatch.delenv(f"WANDB_{name}", raising=False)
    monkeypatch.setenv("NETRC", str(tmp_path / "netrc"))
    return tmp_path / "netrc"


@pytest.mark.parametrize(
    ("settings", "variables", "seen"),
    [
        ({"mode": None, "entity": None}, {}, ("offline", None, None, PUBLIC)),
        ({}, {"MODE": "disabled"}, ("disabled", None, None, PUBLIC)),
        ({}, {"API_KEY": "k" * 40}, ("online", None, None, PUBLIC)),
        ({}, {"ENTITY": "us", "PROJECT": "p"}, ("offline", "us", "p", PUBLIC)),
        ({}, {"BASE_URL": "https://here.org"}, ("offline", None, None, "https://here.org")),
        ({"mode": "online", "entity": "me"}, {"MODE": "disabled", "ENTITY": "us"}, ("online", "me", None, PUBLIC)),
    ],
)
def test_a_loggers_settings_say_where_its_run_is_seen_and_else_the_environment(
    unsaid, monkeypatch, settings, variables, seen
):
    for name, value in variables.items():
        monkeypatch.setenv(f"WANDB_{name}", value)
    assert destination(settings) == seen


@pytest.mark.parametrize(("server", "mode"), [("api.wandb.ai", "online"), ("elsewhere.org", "offline")])
def test_what_wandb_login_leaves_counts_for_its_server(unsaid, server, mode):
    unsaid.write_text(f"machine {server}\n  login user\n  password {'k' * 40}\n")
    assert destination({})[0] == mode


@pytest.mark.parametrize(
    ("settings", "variables", "told"),
    [
        ({"mode": "bogus"}, {}, r"mode Input should be 'online', 'offline'"),
        ({"mode": None}, {"WANDB_MODE": "nonsense"}, r"mode Input should be 'online', 'offline'"),
        ({"entity": 3}, {}, r"entity Input should be a valid string"),
        ({"project": "a/b"}, {}, r"Invalid project name 'a/b'"),
    ],
)
def test_what_wandb_refuses_is_one_line(offline, monkeypatch, settings, variables, told):
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(OneshotError, match=f"^logger: Weights & Biases refuses .*WANDB_.*{told}") as refused:
        _opened(offline, **settings)
    assert "\n" not in str(refused.value)


def test_a_key_that_wandb_refuses_is_one_line_and_offline_does_without_it(offline, monkeypatch):
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setenv("WANDB_API_KEY", "short")
    monkeypatch.setattr("wandb.login", _refuse)
    with pytest.raises(OneshotError, match=r"cannot start \(WANDB_API_KEY invalid\); use logger.wandb.mode=offline"):
        _opened(offline, mode=None)
    _opened(offline, mode="offline").close(failed=False)


def test_offline_in_lightnings_words_is_offline_and_may_not_contradict_ours(offline, monkeypatch):
    monkeypatch.delenv("WANDB_MODE")
    monkeypatch.setattr("wandb.login", _refuse)  # is not asked
    about = _about(offline)
    assert told_of(about, {"offline": True, "mode": None})["mode"] == "offline"
    assert told_of(about, {"offline": True, "mode": "offline"})["mode"] == "offline"
    assert told_of(about, {"offline": False, "mode": "online"})["mode"] == "online"
    with pytest.raises(OneshotError, match=r"logger\.wandb\.offline=true: contradicts logger\.wandb\.mode=online"):
        told_of(about, {"offline": True, "mode": "online"})


def test_a_server_that_does_not_answer_is_told_of_while_it_is_awaited(offline, monkeypatch, capsys):
    monkeypatch.setattr("oneshot_fl.tracking.wandb_run.SILENCE", 0.01)
    monkeypatch.setattr("wandb.login", lambda **_options: time.sleep(0.2))
    monkeypatch.delenv("WANDB_MODE")
    told_of(_about(offline), {})
    assert "Weights & Biases does not answer yet; logger.wandb.mode=offline does without it" in capsys.readouterr().err


def _refuse(**_options):
    raise wandb.errors.AuthenticationError("WANDB_API_KEY invalid")


def test_a_setting_that_wandb_does_not_have_is_one_line(offline):
    with pytest.raises(OneshotError, match=r"^logger: \S*WandbLogger cannot be opened \(TypeError: .*'bogus'"):
        _opened(offline, bogus=1)


class _Run:
    def __init__(self, **summary):
        self.summary, self.resumed, self.logged = summary, bool(summary), []

    def define_metric(self, name, step_metric):
        pass

    def log(self, values):
        self.logged.append(values)


def test_a_run_that_is_begun_again_goes_on_where_it_was():
    class Logger:
        experiment = _Run(**{"distill/step": 2})

    sink = WandbSink(Logger())
    for step in (1, 2, 3):
        sink.log({"distill/accuracy": step / 10}, step)
    sink.log({"evaluate/server_last": 0.3}, 3)
    assert Logger.experiment.logged == [
        {"distill/accuracy": 0.3, "distill/step": 3},
        {"evaluate/server_last": 0.3, "evaluate/step": 3},
    ]


def test_what_is_unknown_is_not_in_the_summary():
    assert summarised(SUMMARY) == {
        "server/accuracy_last": 0.5,
        "ensemble/uniform": 0.4,
        "cost/clients/seconds": 1.5,
        "cost/clients/macs": 7,
    }
