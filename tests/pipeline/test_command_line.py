"""What a user sees: one command, one line for a mistake, exit codes."""

import json
import subprocess
import sys

import pytest

import oneshot_fl
from oneshot_fl.errors import OneshotError
from tests.composing import TINY
from tests.pipeline.cli import call, command, environment


def test_a_sweep_trains_clients_once_and_goes_on_after_a_mistake(tmp_path):
    done = call("-m", "method=fedavg,dense", "data=digits,mnist", cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.count("oneshot_fl: data.root: MNIST cannot be read") >= 1
    summaries = [json.loads(path.read_text()) for path in sorted(tmp_path.rglob("summary.json"))]
    assert [summary["method"] for summary in summaries] == ["fedavg", "dense"]
    assert len({summary["seconds"]["clients"] for summary in summaries}) == 1
    assert "server, last round" in done.stdout
    assert "local training: 8 client epochs in " in done.stdout
    assert "local training: 8 client epochs, from store" in done.stdout


def test_a_sweep_may_be_appended_to_a_command_that_works(tmp_path):
    done = call("trainer=cpu", "-m", "method=fedavg", "seed=0,1", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.rglob("summary.json"))) == 2


def test_a_papers_table_runs_on_other_data_and_names_the_real_architectures(tmp_path):
    narrowed = ["data=digits", "+model.of.digits=lenet5", "partition.alpha=0.5", "method=dense", "seed=0"]
    done = call("-m", "experiment=fedhydra/table1", *narrowed, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (summary,) = (json.loads(path.read_text()) for path in tmp_path.rglob("summary.json"))
    assert {client["model"] for client in summary["clients"]} == {summary["server"]["model"]} == {"lenet5"}
    assert summary["budget"] == "paper"  # the protocol's, whatever the data bring along


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (("partition.alhpa=1",), "partition.alhpa: there is no such key, did you mean partition.alpha?"),
        (("data=mnist", "data.root=nowhere"), "data.root: MNIST cannot be read"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(tmp_path, arguments, line):
    done = call(*arguments, cwd=tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith(f"oneshot_fl: {line}")
    assert done.stderr.count("\n") == 1
    assert done.stdout == ""
    assert not list(tmp_path.rglob("clients"))


@pytest.mark.parametrize(
    ("override", "line"),
    [
        ("method=nothing", "method=nothing: there is no such choice"),
        ("method.ensemble=uniform", "method.ensemble=uniform: method.ensemble is a group"),
        ("model=torchvision", "model.architecture: has no value"),
        ("store=/proc/nowhere", "store=/proc/nowhere: cannot be written"),
        ("trainer.accelerator=abacus", "trainer.accelerator=abacus"),
    ],
)
def test_a_mistake_is_the_same_line_to_a_program(tmp_path, override, line):
    with pytest.raises(OneshotError) as caught:
        oneshot_fl.run(*TINY, f"store={tmp_path / 'store'}", override, folder=tmp_path / "run")
    assert str(caught.value).startswith(line)
    assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("clients"))


def test_a_users_own_folder_adds_choices_and_a_main_file(tmp_path):
    own = tmp_path / "own" / "method"
    own.mkdir(parents=True)
    (own / "mine.yaml").write_text("defaults: [dense, _self_]\nname: mine\nsource: {reset: false}\n")
    (tmp_path / "own" / "main.yaml").write_text("defaults: [config, _self_]\nseed: 7\n")
    done = call("-cd=own", "-cn", "main", "method=mine", cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    (summary,) = (json.loads(path.read_text()) for path in (tmp_path / "outputs").rglob("summary.json"))
    assert (summary["method"], summary["seed"]) == ("mine", 7)
    again = call(*summary["searched"], *summary["overrides"], cwd=tmp_path, tiny=False)  # as reports print it
    assert again.stdout.startswith("done before, in ")


def test_help_and_the_configuration_appear_quickly_without_loading_torch(tmp_path):
    code = "import sys, oneshot_fl.__main__; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False, cwd=tmp_path).returncode == 0
    done = call("--cfg", "job", cwd=tmp_path, tiny=False)
    assert done.returncode == 0
    assert "communication_rounds: 1" in done.stdout


@pytest.mark.slow  # tests/unit/test_store.py asks the same of threads
def test_two_processes_share_the_training_of_clients(tmp_path):
    arguments = ["clients.epochs=8", "clients.batch_size=64", "method=fedavg", "trainer=cpu"]
    processes = []
    for name in ("a", "b"):
        processes.append(
            subprocess.Popen(
                command(*arguments, f"hydra.run.dir={tmp_path / name}"),
                cwd=tmp_path,
                env=environment(tmp_path / "store"),
                stdout=subprocess.DEVNULL,
            )
        )
    assert [process.wait(timeout=240) for process in processes] == [0, 0]
    summaries = [json.loads((tmp_path / name / "summary.json").read_text()) for name in ("a", "b")]
    assert summaries[0]["seconds"]["clients"] == summaries[1]["seconds"]["clients"]
    folders = [path for path in (tmp_path / "store" / "clients").iterdir() if path.is_dir()]
    assert len(folders) == 5
    assert not [path for path in folders if path.suffix]
