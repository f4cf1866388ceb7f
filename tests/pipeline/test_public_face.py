"""`import oneshot_fl`: run, load, results; and a sweep that is begun anew."""

import json
from contextlib import contextmanager
from threading import Thread

import pytest
import torch
from hydra import compose, initialize_config_dir
from hydra.core.hydra_config import HydraConfig

import oneshot_fl
from oneshot_fl.errors import OneshotError
from oneshot_fl.process import one_at_a_time
from oneshot_fl.reporting.tables.__main__ import main
from oneshot_fl.reporting.tables.runs import read_runs
from tests.composing import CLIENTS, TINY


def test_run_load_and_results_fit_each_other(tmp_path, capsys):
    overrides = (*TINY, f"store={tmp_path / 'store'}")
    dense = oneshot_fl.run("method=dense", *overrides, folder=tmp_path / "dense")
    votes = oneshot_fl.run(
        *("method=fedavg", "model=mixed", "model.names=[cnn2,lenet5]", *overrides), folder=tmp_path / "votes"
    )
    assert dense.accuracy == dense.summary["server"]["accuracy_last"]
    assert dense.summary == json.loads((tmp_path / "dense" / "summary.json").read_text())
    images = torch.randn(2, 1, 8, 8)
    model = dense.model()
    assert not model.training
    assert torch.equal(model(images), oneshot_fl.load(tmp_path / "dense")(images))
    assert votes.model()(images).shape == (2, 10)
    assert [summary["method"] for summary in oneshot_fl.results(tmp_path)] == ["dense", "fedavg"]
    assert "takes the place of" not in capsys.readouterr().err


@contextmanager
def _default_dtype(dtype):
    before = torch.get_default_dtype()
    torch.set_default_dtype(dtype)
    try:
        yield
    finally:
        torch.set_default_dtype(before)


@pytest.fixture(scope="module")
def plain(tmp_path_factory):
    place = tmp_path_factory.mktemp("plain")
    return oneshot_fl.run("method=fedavg", *TINY, f"store={place / 'store'}", folder=place / "run")


@pytest.mark.parametrize(
    ("ambient", "holds"),
    [
        (lambda: torch.autocast("cpu", dtype=torch.bfloat16), lambda: torch.is_autocast_enabled("cpu")),
        (torch.inference_mode, torch.is_inference_mode_enabled),
        (lambda: _default_dtype(torch.float64), lambda: torch.get_default_dtype() == torch.float64),
        (lambda: torch.device("meta"), lambda: torch.get_default_device().type == "meta"),
    ],
    ids=["autocast", "inference mode", "float64", "meta"],
)
def test_what_a_caller_told_torch_changes_no_result_and_holds_afterwards(ambient, holds, plain, tmp_path):
    with ambient():
        result = oneshot_fl.run("method=fedavg", *TINY, f"store={tmp_path / 'store'}", folder=tmp_path / "run")
        model = result.model()
        assert holds()
    assert model.source.sha256 == plain.model().source.sha256
    assert result.summary["server"] == plain.summary["server"]
    assert {each.dtype for each in model.parameters()} == {torch.float32}
    assert not any(each.is_inference() for each in model.parameters())


def test_a_callers_program_may_be_one_of_hydras_jobs_itself(plain, tmp_path):
    (tmp_path / "theirs.yaml").write_text("seed: 7\n")
    with initialize_config_dir(str(tmp_path), version_base="1.3"):
        HydraConfig.instance().set_config(compose("theirs", return_hydra_config=True))
        try:
            ours = oneshot_fl.run("method=fedavg", *TINY, f"store={tmp_path / 'store'}", folder=tmp_path / "run")
            assert (HydraConfig.get().job.config_name, compose("theirs").seed) == ("theirs", 7)
        finally:
            HydraConfig.instance().cfg = None
    assert ours.summary["server"] == plain.summary["server"]


def test_a_model_is_loaded_when_the_run_of_another_thread_has_ended(tmp_path, monkeypatch):
    """Building it would draw from random numbers that all threads share, and the run would be another one."""
    order = []
    monkeypatch.setattr("oneshot_fl.serving.load.load", lambda *_, **__: order.append("loaded"))
    loading = Thread(target=oneshot_fl.load, args=(tmp_path,))
    with one_at_a_time():  # as a run has it
        loading.start()
        loading.join(0.5)
        order.append("ended")
    loading.join()
    assert order == ["ended", "loaded"]


def test_a_result_finds_its_model_from_another_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    result = oneshot_fl.run("method=fedavg", *TINY, f"store={tmp_path}/store", folder="mine")
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert result.model().spec.size == 8


def test_a_run_in_the_folder_of_another_says_so_and_no_model_is_taken_for_the_first_ones(tmp_path, capsys):
    own = ("method=fedavg", *TINY, f"store={tmp_path / 'store'}")
    first = oneshot_fl.run(*own, folder=tmp_path / "run")
    again = oneshot_fl.run(*own, folder=tmp_path / "run")
    assert again.model().spec == first.model().spec
    assert "takes the place of" not in capsys.readouterr().err
    other = oneshot_fl.run(*own, "seed=1", folder=tmp_path / "run")
    line = f"{tmp_path / 'run'}: holds a finished run (method fedavg, data digits, seed 0), which this one takes the"
    assert line in capsys.readouterr().err
    other.model()
    with pytest.raises(OneshotError, match=r"run: holds another result by now; .*oneshot_fl\.load\("):
        first.model()


def test_what_runs_alike_measured_is_read_collected_and_in_one_row(tmp_path):
    own = ("method=fedavg", *TINY, f"store={tmp_path / 'store'}")
    first = oneshot_fl.run(*own, folder=tmp_path / "runs" / "first")
    fewer = oneshot_fl.run(*own, "~evaluate.ensembles.entropy", folder=tmp_path / "runs" / "fewer")
    assert oneshot_fl.results(tmp_path / "runs") == [first.summary, fewer.summary]
    main([str(tmp_path / "runs"), "--collect", str(tmp_path / "all.jsonl")])
    assert len(oneshot_fl.results(tmp_path / "all.jsonl")) == 2
    (run,) = read_runs([tmp_path / "all.jsonl"])
    assert run.summary["ensemble"] == first.summary["ensemble"]


def test_a_folder_of_ones_own_is_read_too(tmp_path):
    for group, name, text in (
        ("partition", "mine", "name: mine\n_target_: oneshot_fl.data.partition.iid\nclients: 3\nseed: ${seed}\n"),
        ("model", "small", "name: small\n_target_: oneshot_fl.models.classifiers.cnn2\nnorm: true\n"),
    ):
        (tmp_path / "conf" / group).mkdir(parents=True)
        (tmp_path / "conf" / group / f"{name}.yaml").write_text(text)
    own = (*TINY, f"store={tmp_path / 'store'}", "method=fedavg", "partition=mine")
    mixed = ("model=mixed", "model.names=[small,cnn2]", "method=feddf", "server_model=small", "proxy.samples=64")
    result = oneshot_fl.run(*own, *mixed, folder=tmp_path / "run", config_dir=tmp_path / "conf")
    assert result.summary["partition"]["name"] == "mine"
    trace = json.loads((tmp_path / "run" / "run.json").read_text())
    for record in (result.summary, trace):  # the command that makes it again
        assert record["overrides"] == [*own, *mixed]
        assert record["searched"] == [f"hydra.searchpath=['file://{tmp_path / 'conf'}']"]
    assert result.summary["models"]["clients"] == ["small", "cnn2"] * (CLIENTS // 2)
    with pytest.raises(OneshotError, match="mine"):
        oneshot_fl.run(*own, folder=tmp_path / "other")
    with pytest.raises(OneshotError, match=r"config_dir=.*nowhere: is no folder"):
        oneshot_fl.run(*own, folder=tmp_path / "other", config_dir=tmp_path / "nowhere")


def test_mistakes_are_one_line(tmp_path):
    with pytest.raises(OneshotError, match=r"^method=densee: there is no such choice, did you mean dense\?"):
        oneshot_fl.run("method=densee", folder=tmp_path / "run")
    with pytest.raises(OneshotError, match=r"^clients\.epochs=-1: "):
        oneshot_fl.run("clients.epochs=-1", folder=tmp_path / "run")
    with pytest.raises(OneshotError, match=r"^hydra\.run\.dir=x: .*folder=DIR"):
        oneshot_fl.run("hydra.run.dir=x", folder=tmp_path / "other")
    trace = json.loads((tmp_path / "run" / "run.json").read_text())
    assert (trace["status"], trace["method"]) == ("failed", "fedhydra")
    with pytest.raises(OneshotError, match="holds no finished run"):
        oneshot_fl.load(tmp_path / "run")


def test_a_job_that_is_done_is_recognised_before_data_load(tmp_path, monkeypatch):
    overrides = ("method=fedavg", *TINY, f"store={tmp_path / 'store'}")
    first = oneshot_fl.run(*overrides, folder=tmp_path / "first")
    monkeypatch.setattr("oneshot_fl.pipeline.prepare", None)
    again = oneshot_fl.run(*overrides, folder=tmp_path / "again")
    assert again.summary == first.summary
    assert (tmp_path / "again" / "server.safetensors").read_bytes() == (
        tmp_path / "first" / "server.safetensors"
    ).read_bytes()
    assert json.loads((tmp_path / "again" / "run.json").read_text())["status"] == "done"
    with pytest.raises(TypeError):  # another seed is another run
        oneshot_fl.run(*overrides, "seed=1", folder=tmp_path / "other")


def test_a_run_is_done_and_its_numbers_are_the_same_where_a_tracking_server_fails(tmp_path, monkeypatch, capsys):
    own = ("method=fedavg", *TINY, f"store={tmp_path / 'store'}", "clients.epochs=1")
    alone = oneshot_fl.run(*own, folder=tmp_path / "alone")

    def refuse(self, metrics, step=None):
        raise ConnectionError("refused")

    monkeypatch.setattr("lightning.pytorch.loggers.TensorBoardLogger.log_metrics", refuse)
    monkeypatch.setattr("lightning.pytorch.loggers.TensorBoardLogger.finalize", refuse)
    server = oneshot_fl.run(*own, "logger=tensorboard", folder=tmp_path / "server")
    assert capsys.readouterr().err.count("TensorBoardLogger failed (ConnectionError: refused)") == 1
    assert json.loads((tmp_path / "server" / "run.json").read_text())["status"] == "done"
    assert server.summary["server"] == alone.summary["server"]
    assert (tmp_path / "server" / "metrics.csv").read_text().count("\n") > 1


def test_a_job_whose_model_was_damaged_since_is_run_again(tmp_path):
    overrides = ("method=fedavg", *TINY, f"store={tmp_path / 'store'}")
    for folder in ("first", "again"):
        oneshot_fl.run(*overrides, folder=tmp_path / folder)
    model = tmp_path / "again" / "server.safetensors"
    whole = model.read_bytes()
    model.write_bytes(whole[:-4])
    oneshot_fl.run(*overrides, folder=tmp_path / "third")
    assert (tmp_path / "third" / "server.safetensors").read_bytes() == whole


def test_one_run_of_an_experiment_that_is_a_sweep_says_so(tmp_path, capsys):
    own = ("experiment=digits_dirichlet", *TINY, f"store={tmp_path / 'store'}", "clients.epochs=1", "method=fedavg")
    oneshot_fl.run(*own, folder=tmp_path / "run")
    assert "experiment=digits_dirichlet is a sweep of 5 jobs over seed" in capsys.readouterr().err
    oneshot_fl.run(*own, "seed=0", folder=tmp_path / "job")
    assert "is a sweep" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("call", "says"),
    [
        (
            lambda: oneshot_fl.run(["seed=0"]),
            r"^\['seed=0'\]: overrides are given one by one; write run\(\*\['seed=0'\]\)$",
        ),
        (lambda: oneshot_fl.uploads(["seed=0"], folder="up"), r"write uploads\(\*\['seed=0'\]\)$"),
        (lambda: oneshot_fl.uploads(folder=3), "^folder=3: must be a path"),
        (lambda: oneshot_fl.run({}), "^{}: must be an override, a text like 'seed=0'$"),
        (lambda: oneshot_fl.run(None), "^None: must be an override"),
        (lambda: oneshot_fl.run(""), "^'': must be an override"),
        (lambda: oneshot_fl.run("seed=0", folder=3), "^folder=3: must be a path"),
        (lambda: oneshot_fl.run("seed=0", folder=""), "^folder='': must be a path"),
        (lambda: oneshot_fl.load("a\0b"), r"^place='a\\x00b': must be a path"),
        (lambda: oneshot_fl.load("run", allow=[3]), r"^allow=\[3\]: must be names, as in allow=\['a', 'b'\]$"),
        (lambda: oneshot_fl.aggregate("up", folder="out", allow=3), "^allow=3: must be names"),
        (lambda: oneshot_fl.aggregate("up", folder="out", strict="no"), "^strict='no': must be True or False$"),
        (lambda: oneshot_fl.train_client("a", out="b", classes=[1]), r"^classes=\[1\]: must be names"),
        (lambda: oneshot_fl.train_client("a", out="b", counts="yes"), "^counts='yes': must be True or False$"),
        (lambda: oneshot_fl.run(config_dir=["conf"]), r"^config_dir=\['conf'\]: must be a path"),
        (lambda: oneshot_fl.results(["dir"]), r"^folder=\['dir'\]: must be a path"),
        (oneshot_fl.results, "needs a folder of runs"),
        (lambda: oneshot_fl.load(3), "^place=3: must be a path"),
        (lambda: oneshot_fl.aggregate("uploads", folder=None), "^folder=None: must be a path"),
        (
            lambda: oneshot_fl.aggregate("uploads", ["seed=0"], folder="out"),
            r"write aggregate\(uploads, \*\['seed=0'\]",
        ),
        (
            lambda: oneshot_fl.train_client("images", out="a.safetensors", number="0"),
            "^number='0': must be a whole number",
        ),
        (lambda: oneshot_fl.train_client("nosuch", out="a.safetensors"), "^folder=nosuch: there is no such folder"),
    ],
)
def test_what_is_of_another_type_is_one_line(call, says, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(OneshotError, match=says):
        call()
    assert not list(tmp_path.iterdir())
