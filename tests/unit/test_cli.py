import io
import json
import os
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest

import oneshot_fl
from oneshot_fl import cli
from oneshot_fl.artifacts import Artifact
from oneshot_fl.store import Store
from oneshot_fl.sweeps.state import jobs_to_do


@pytest.fixture
def call(monkeypatch, capsys):
    """Call the console script in this process: exit code, output and errors."""

    def call(*words: str) -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "argv", ["oneshot-fl", *words])
        try:
            cli.main()
        except SystemExit as end:
            code = end.code or 0
        else:
            code = 0
        return (int(code), *capsys.readouterr())

    return call


@pytest.fixture
def folder(tmp_path):
    """A store with one client and what a stopped process left."""
    store = Store(tmp_path)
    inputs = {"model": {"name": "cnn2"}, "data": "0123456789abcdef", "client": 3}
    key = store.get_or_make("clients", inputs, lambda _: Artifact({}, {})).key
    (tmp_path / "clients" / f"{key}.work").mkdir()
    return tmp_path


@pytest.mark.parametrize("words", [["--version"]])
def test_the_version_is_ours(call, words):
    assert call(*words) == (0, f"oneshot_fl {oneshot_fl.__version__}\n", "")


@pytest.mark.parametrize("words", [(), ("method=dense",), ("--cfg", "job"), ("--help",), ("-m", "seed=0,1")])
def test_any_other_first_word_is_hydras(call, monkeypatch, words):
    seen = []
    monkeypatch.setattr("oneshot_fl.__main__.main", lambda: seen.append(sys.argv[1:]))
    assert call(*words)[0] == 0
    assert seen == [list(words)]


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (("tabels", "multirun"), "tabels: there is no such command, did you mean tables? choose from tables, report, "),
        (("aggregat", "up", "--out", "o"), "aggregat: there is no such command, did you mean aggregate? choose from "),
        (("help",), "help: there is no such command; choose from tables, report, "),
    ],
)
def test_a_misspelt_command_is_told_with_those_that_there_are(call, words, line):
    code, printed, errors = call(*words)
    assert (code, printed, errors.count("\n")) == (2, "", 1)
    assert errors.startswith(f"oneshot_fl: {line}")
    assert errors.endswith("dashboard, or set KEY=VALUE to run an experiment\n")


HELP = (sys.executable, "-m", "oneshot_fl", "--help")


def test_python_dash_m_tells_where_commands_are(tmp_path):
    command = [sys.executable, "-m", "oneshot_fl", "predict", "run", "digits", "--csv"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    told = "predict: is no KEY=VALUE; commands are of the program itself, oneshot-fl predict, without python -m"
    assert done.stderr == f"oneshot_fl: {told}\n"


def test_help_names_every_command():
    header = subprocess.run(HELP, capture_output=True, text=True, check=True).stdout.splitlines()[:3]
    assert set(header[-1].split(", ")) == set(cli.OWN)


def test_a_reader_who_has_seen_enough_is_no_mistake():
    program = subprocess.Popen(HELP, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    program.stdout.close()
    assert (program.stderr.read(), program.wait()) == ("", 141)


def test_tables_get_their_words(call, monkeypatch):
    seen = []
    monkeypatch.setattr("oneshot_fl.reporting.tables.__main__.main", lambda words, **more: seen.append((words, more)))
    assert call("tables", "multirun/a", "--format", "markdown", "--help")[0] == 0
    assert seen == [(["multirun/a", "--format", "markdown", "--help"], {"to_do": jobs_to_do})]


@pytest.fixture
def model(tmp_path):
    """A model file of three classes of grey 8x8 images that always says the second."""
    import torch

    from oneshot_fl.models.classifiers import cnn2
    from oneshot_fl.models.described import ModelDescription
    from oneshot_fl.models.model_file import write_model
    from tests.parts import SMALL

    own = cnn2(SMALL, norm=True)
    torch.nn.init.zeros_(own[-1].weight)
    own[-1].bias.data = torch.tensor([0.1, 0.8, 0.1]).log()
    path = tmp_path / "model.safetensors"
    write_model(path, own.state_dict(), ModelDescription("classifier", ({"name": "cnn2"},), SMALL, ("a", "b", "c")))
    return path


def test_images_are_classified_and_what_cannot_be_is_told_at_the_end(call, model, tmp_path):
    from PIL import Image

    Image.new("L", (20, 10)).save(tmp_path / "0.png")
    (tmp_path / "1.png").write_text("")
    code, out, err = call("predict", str(model), str(tmp_path), "--csv")
    assert (code, out.splitlines()) == (
        2,
        ["path,class,probability,a,b,c", f"{tmp_path}/0.png,b,0.800000,0.100000,0.800000,0.100000"],
    )
    note, *told = err.splitlines()
    assert note.startswith(f"oneshot_fl: {tmp_path}: files that are not read as images: 1, for instance {model}; their")
    assert told == [
        f"oneshot_fl: {tmp_path}/1.png is not a readable image: remove or replace it",
        "oneshot_fl: 1 images could not be used; their lines are above, all others are answered",
    ]
    code, out, _ = call("predict", str(model), str(tmp_path / "0.png"), "--abstain", "0.9")
    assert (code, out) == (0, f"{tmp_path}/0.png: unsure (80.0%)\n")


@pytest.mark.parametrize("words", [(), ("--csv",)], ids=["for a reader", "csv"])
def test_names_that_are_not_utf_8_are_escaped_and_nothing_is_lost(call, model, tmp_path, monkeypatch, words):
    from PIL import Image

    for name in (b"a.png", b"caf\xe9.png", b"z.png"):
        path = tmp_path / "images" / os.fsdecode(name)
        path.parent.mkdir(exist_ok=True)
        try:
            Image.new("L", (20, 10)).save(path)
        except OSError:
            pytest.skip("this file system has no such names")
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8", errors="strict", write_through=True)
    monkeypatch.setattr(sys, "stdout", out)
    assert call("predict", str(model), str(tmp_path / "images"), *words)[0] == 0
    lines = out.buffer.getvalue().decode().splitlines()[-3:]  # type: ignore[attr-defined]
    for name, line in zip(("a.png", r"caf\udce9.png", "z.png"), lines, strict=True):
        assert line.startswith(f"{tmp_path}/images/{name}")


@pytest.mark.parametrize("white", ["nan", "inf", "0", "-4095"])
def test_no_image_is_read_by_a_white_that_is_none(call, model, tmp_path, white):
    code, out, err = call("predict", str(model), str(tmp_path), "--csv", "--max-value", white)
    assert (code, out) == (2, "")
    assert err == f"oneshot_fl: --max-value={white}: must be a number above 0\n"


def test_the_store_is_listed(call, folder):
    code, out, _ = call("store", "ls", "--store", str(folder))
    assert code == 0
    assert "clients" in out
    assert "model=cnn2 client=3 data=0123456789ab" in out
    assert "(leftover: work)" in out


def test_what_only_locks_a_key_is_not_listed(call, folder):
    before = call("store", "ls", "--store", str(folder))[1]
    (folder / "clients" / f"{'b' * 20}.lock").touch()
    (folder / "clients" / f"{'b' * 20}.lease").touch()
    assert call("store", "ls", "--store", str(folder))[1] == before


def test_the_store_of_the_configuration_is_the_default(call, folder, monkeypatch):
    monkeypatch.setenv("ONESHOT_FL_STORE", str(folder))
    assert "model=cnn2" in call("store", "ls")[1]


def test_the_store_is_cleaned(call, folder):
    work = next(folder.glob("clients/*.work"))
    code, out, _ = call("store", "gc", "--store", str(folder), "--dry-run")
    assert (code, work.exists()) == (0, True)
    assert f"would remove {work}" in out
    code, out, _ = call("store", "gc", "--store", str(folder))
    assert (code, work.exists()) == (0, False)
    assert f"removed {work}" in out
    assert "model=cnn2" in call("store", "ls", "--store", str(folder))[1]
    call("store", "gc", "--store", str(folder), "--phase", "clients")
    assert call("store", "ls", "--store", str(folder))[1] == "0 entries, 0 B\n"


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("store", "ls", "--store", "/nowhere"), "store=/nowhere: there is no such folder"),
        (("store", "gc", "--store", "/nowhere"), "store=/nowhere: there is no such folder"),
        (("store", "gc", "--older-than", "-1"), "--older-than"),
        (("store", "lss"), "lss"),
        (("predict", "/nowhere", "x.png"), "/nowhere"),
        (("predict", "/nowhere", "x.png", "--abstain", "2"), "--abstain"),
        (("predict", "/nowhere", "x.png", "--max-value", "nan"), "--max-value=nan: must be a number above 0"),
        (("predict", "/nowhere", "x.png", "--max-value", "0"), "--max-value=0: must be a number above 0"),
        (("export", "/nowhere"), "--onnx or --torch-export"),
    ],
)
def test_mistakes_end_with_2(call, words, says):
    code, _, err = call(*words)
    assert code == 2
    assert says in err
    assert "Traceback" not in err


def test_a_phase_that_is_not_there_is_named(call, folder):
    code, _, err = call("store", "gc", "--store", str(folder), "--phase", "client")
    assert (code, err) == (2, f"oneshot_fl: --phase client: store={folder} holds nothing of it; choose from clients\n")


@pytest.mark.parametrize("words", [["--version"], ["store", "--help"], ["store", "gc", "--help"]])
def test_help_and_version_load_nothing_heavy(words):
    body = (
        f"import sys; sys.argv[1:] = {words}\nfrom oneshot_fl.cli import main\ntry: main()\nexcept SystemExit: pass\n"
    )
    heavy = "print(sorted({'torch', 'lightning', 'hydra', 'matplotlib', 'numpy'} & set(sys.modules)), file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", body + heavy], capture_output=True, text=True, check=True)
    assert done.stdout
    assert done.stderr == "[]\n"


def test_the_console_script_leads_here():
    scripts = {script.name: script.value for script in metadata.distribution("oneshot-fl").entry_points}
    if scripts.get("oneshot-fl") == "oneshot_fl.__main__:main":
        pytest.skip("the package was installed before it did; install it again")
    assert scripts["oneshot-fl"] == "oneshot_fl.cli:main"


OWN_MODEL = """
from torch import nn


def small(num_classes=3):
    return nn.Sequential(nn.Flatten(), nn.Linear(64, num_classes))
"""


@pytest.fixture
def own_folder(tmp_path):
    """A current folder with a model of the user's own, its weights, and a file that is named like a package."""
    import torch

    here = tmp_path / "own"
    here.mkdir()
    (here / "my_model.py").write_text(OWN_MODEL)
    (here / "safetensors.py").write_text("raise SystemExit('a file of the current folder was taken for a package')")
    torch.save({"1.weight": torch.zeros(3, 64), "1.bias": torch.zeros(3)}, here / "model.pt")
    return here


@pytest.mark.parametrize("first", [False, True])
def test_a_command_that_is_run_again_finds_code_where_python_dash_m_does(tmp_path, monkeypatch, first):
    """The current folder is before all others there, which a module of the same name in `PYTHONPATH` tells apart."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", ["lib"])
    cli._find_own_code(first=first)
    assert sys.path == ([str(tmp_path), "lib"] if first else ["lib", str(tmp_path)])


def test_code_of_ones_own_is_found_in_the_current_folder_behind_all_packages(own_folder, tmp_path):
    """By a console script, for which Python searches the script's folder and not the current one."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "oneshot-fl").write_text("from oneshot_fl.cli import main\nmain()\n")
    images = ("--channels", "1", "--size", "8", "--mean", "0.5", "--std", "0.5", "--classes", "a,b,c")
    words = ("pack", "model.pt", "--model", "my_model.small", *images, "--out", "up/a.safetensors")
    script = [sys.executable, tmp_path / "bin" / "oneshot-fl", *words]
    done = subprocess.run(script, cwd=own_folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert "the server needs --allow my_model.small" in done.stdout
    assert (own_folder / "up" / "a.safetensors").exists()


@pytest.fixture
def searched(call, monkeypatch, tmp_path):
    """Whether a command that is called in `tmp_path/where` searches that folder for modules."""

    def searched(where: str, *words: str) -> bool:
        (tmp_path / where).mkdir(parents=True, exist_ok=True)
        monkeypatch.chdir(tmp_path / where)
        monkeypatch.setattr(sys, "path", [each for each in sys.path if each])
        call(*words)
        return str(tmp_path / where) in sys.path

    return searched


@pytest.mark.parametrize("words", [("aggregate", "uploads", "--out", "out"), ("predict", "uploads", "a.png")])
def test_where_others_files_are_read_only_a_user_who_allows_code_has_his_folder_searched(words, searched):
    assert not searched("own", *words)
    assert searched("own", *words, "--allow", "my_model.small")


def test_code_that_a_folder_of_ones_own_names_is_found(searched):
    assert searched("own", "aggregate", "uploads", "--out", "out", "--config-dir", "my_conf")


def test_a_folder_of_uploads_is_never_searched(searched):
    for where in ("uploads", "uploads/below"):
        up = os.path.relpath("uploads", where)
        assert not searched(where, "aggregate", up, "--out", os.path.relpath("out", where), "--allow", "my_model.small")
    assert not searched("uploads", "predict", ".", "a.png", "--allow", "my_model.small")


def test_runs_find_what_a_configuration_names(searched, monkeypatch):
    monkeypatch.setattr("oneshot_fl.__main__.main", lambda: None)
    assert searched("own", "--config-dir", "my_conf", "model=small")
    assert sys.path[-1] == str(Path.cwd())


@pytest.fixture
def to_do(call, monkeypatch):
    """A function from the folders of a report to the jobs to do that it tells of, with what it says."""

    def count(*folders):
        seen = []
        monkeypatch.setattr("oneshot_fl.reporting.tables.runs.read_runs", lambda paths, **_: paths)
        monkeypatch.setattr(
            "oneshot_fl.reporting.page.build.write_report", lambda _, out, choices: seen.append(choices.to_do) or out
        )
        code, out, err = call("report", *map(str, folders), "-o", "page.html")
        assert (code, out) == (0, "page.html\n")
        return *seen, err

    return count


def test_a_report_on_the_runs_with_a_setting_compared_across_another(call, monkeypatch):
    asked = []
    monkeypatch.setattr("oneshot_fl.reporting.tables.runs.read_runs", lambda _, **choices: asked.append(choices))
    monkeypatch.setattr("oneshot_fl.reporting.page.build.write_report", lambda _, out, __: out)
    words = ("--where", "seed=0,1", "--where", "data=mnist", "--across", "trainer.accelerator")
    assert call("report", "runs", *words)[0] == 0
    assert call("report", "runs")[0] == 0
    chosen = {"where": ["seed=0,1", "data=mnist"], "pooled": ["trainer.accelerator"]}
    assert asked == [chosen, {"where": (), "pooled": ()}]


def test_jobs_to_do_are_counted_once_where_folders_overlap(to_do, tmp_path):
    from oneshot_fl.sweeps.manifest import Manifest

    (tmp_path / "ours").mkdir()
    Manifest({0: ("seed=0",), 1: ("seed=1",)}).write(tmp_path / "ours")
    (tmp_path / "linked").symlink_to("ours")
    assert to_do(tmp_path, tmp_path / "ours", tmp_path / "linked") == (2, "")
    assert to_do(tmp_path, "--where", "seed=0") == (0, "")  # of what has not begun nobody knows the settings


def test_a_foreign_file_named_as_a_sweeps_does_not_keep_a_report_from_being_written(to_do, tmp_path):
    from oneshot_fl.sweeps.manifest import Manifest

    for name in ("of_others", "ours"):
        (tmp_path / name).mkdir()
    (tmp_path / "of_others" / "sweep.json").write_text('{"method": "grid"}')
    Manifest({0: ("seed=0",), 1: ("seed=1",)}).write(tmp_path / "ours")
    jobs, err = to_do(tmp_path)
    assert jobs == 2
    assert err.startswith("oneshot_fl: jobs that have not begun are not counted: ")
    assert "of_others/sweep.json: not what this version writes" in err


def test_a_place_for_the_dashboard_that_is_none_is_one_line(call, monkeypatch, tmp_path):
    monkeypatch.setattr("oneshot_fl.tracking.dashboard.specification", lambda *_: {})
    (tmp_path / "file").touch()
    code, _, err = call("dashboard", "p", "--out", str(tmp_path / "file" / "x.json"))
    assert code == 2
    assert err.startswith(f"oneshot_fl: {tmp_path}/file: cannot be written (File exists)")


def test_the_dashboards_folder_is_made(call, monkeypatch, tmp_path):
    monkeypatch.setattr("oneshot_fl.tracking.dashboard.specification", lambda *_: {"report": {}})
    out = tmp_path / "new" / "folder" / "x.json"
    assert call("dashboard", "p", "--out", str(out))[0] == 0
    assert json.loads(out.read_text()) == {"report": {}}


def test_what_is_no_dashboard_is_not_overwritten(call, monkeypatch, tmp_path):
    monkeypatch.setattr("oneshot_fl.tracking.dashboard.specification", lambda *_: {"report": {"spec": 1}})
    notes, out = tmp_path / "notes.md", tmp_path / "x.json"
    notes.write_text("of mine")
    code, _, err = call("dashboard", "p", "--out", str(notes))
    assert (code, notes.read_text()) == (2, "of mine")
    assert "notes.md: is no specification of a dashboard and is not overwritten; choose another file" in err
    assert [call("dashboard", "p", "--out", str(out))[0] for _ in range(2)] == [0, 0]
