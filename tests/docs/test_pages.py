"""The pages are followed to the letter, but for the sizes of runs."""

import json
import os
import runpy
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hydra.core.hydra_config import HydraConfig

from oneshot_fl import cli
from oneshot_fl.__main__ import main
from oneshot_fl.reporting.tables.__main__ import main as print_tables
from tests.composing import TINY, few_images
from tests.docs.pages import DOCS, commands_of, files_of, write_files

ROOT = DOCS.parent
Summary = dict[str, Any]


def _logged_rounded(folder: Path, _: list[Summary]) -> bool:
    (path,) = folder.rglob("metrics.jsonl")
    values = [value for line in path.read_text().splitlines() for value in json.loads(line).values()]
    return bool(values) and all(round(value, 6) == value for value in values)


SHOWN: dict[str, Callable[[Path, list[Summary]], bool]] = {
    "quickstart.md": lambda _, runs: {run["method"] for run in runs} == {"fedavg", "dense", "fedhydra"},
    "configuration.md": lambda _, runs: not runs,
    "weak-clients.md": lambda _, runs: len(runs) == 4 and all(run["clients"][9]["kind"] == "cvae" for run in runs),
    "howto/data.md": lambda _, runs: [run["data"] for run in runs] == ["image_folder", "stripes"],
    "howto/model.md": lambda _, runs: (
        [run["models"]["clients"][:2] for run in runs] == [["small"] * 2, ["small", "cnn2"]]
    ),
    "howto/attacks.md": lambda _, runs: (
        [each["hostile"] for each in runs[0]["clients"]] == [False] * (len(runs[0]["clients"]) - 1) + [True]
    ),
    "howto/term.md": lambda _, runs: [bool(run["changed"]) for run in runs] == [False, True, False],
    "howto/partition.md": lambda _, runs: runs[0]["partition"]["sizes"][0] == int(0.6 * 1437),
    "howto/logger.md": _logged_rounded,
    "howto/privacy.md": lambda _, runs: (
        len(runs) == 2
        and all(run["privacy"]["server"]["loss"]["auc"] for run in runs)
        and [{each["epsilon"] is None for each in run["clients"]} for run in runs] == [{True}, {False}]
    ),
    "howto/serving.md": lambda folder, runs: (
        runs[0]["data_spec"]["size"] == 16 and (folder / "run" / "export" / "README.md").is_file()
    ),
}
"""What the runs of a page must have been."""


@pytest.fixture
def here(tmp_path, monkeypatch) -> Path:
    """A folder of one's own, as a reader has it."""
    known = set(sys.modules)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("ONESHOT_FL_STORE", str(tmp_path / "store"))
    yield tmp_path
    HydraConfig.instance().cfg = None  # `--cfg job` leaves it behind, and the process goes on here
    for name in set(sys.modules) - known:
        if name.startswith("my_"):
            del sys.modules[name]


AUDITED_SMALL = ("evaluate.privacy.references=2", "evaluate.privacy.epochs=1", "evaluate.privacy.samples=100")


def _small(words: list[str]) -> list[str]:
    """Before a command's own overrides, those that make its runs small."""
    first = next(n for n, word in enumerate(words) if "=" in word)
    audit = AUDITED_SMALL if "evaluate=privacy" in words else ()
    few = few_images("fedchorus") if "method=fedchorus" in words else ()
    return [*words[:first], *TINY, *audit, *few, *words[first:]]


def _run(words: list[str], monkeypatch: pytest.MonkeyPatch) -> None:
    """A command of a page, in this process."""
    if words[0] == "oneshot-fl":
        monkeypatch.setattr(sys, "argv", words)
        with pytest.raises(SystemExit, match=r"^0$"):
            cli.main()
        return
    assert words[0] == "python", words
    if words[1:3] == ["-m", "oneshot_fl"]:
        monkeypatch.setattr(sys, "argv", ["oneshot_fl", *_small(words[3:])])
        main()
    elif words[1:3] == ["-m", "oneshot_fl.reporting.tables"]:
        print_tables(words[3:])
    else:
        runpy.run_path(words[1], run_name="__main__")


def _summaries(folder: Path) -> list[Summary]:
    """Of all runs that the page's commands have done, in their order."""
    paths = sorted(folder.rglob("summary.json"), key=lambda path: path.stat().st_mtime_ns)
    return [json.loads(path.read_text()) for path in paths]


LONG = ("quickstart.md", "weak-clients.md")
"""Pages whose runs take about a minute; the methods that they run are tested elsewhere."""


@pytest.mark.parametrize(
    "page", [pytest.param(page, marks=pytest.mark.slow) if page in LONG else page for page in sorted(SHOWN)]
)
def test_a_page_can_be_followed(page, here, monkeypatch):
    write_files(page, here)
    for words in commands_of(page):
        _run(words, monkeypatch)
    assert SHOWN[page](here, _summaries(here))


def test_every_page_with_commands_is_followed():
    pages = {path.relative_to(DOCS) for path in DOCS.rglob("*.md")}
    own = {str(page) for page in pages if page.parts[0] != "results" and commands_of(str(page))}
    assert own == {*SHOWN, "howto/method.md"}


@pytest.mark.slow
def test_a_method_is_added_in_three_files(tmp_path):
    page = "howto/method.md"
    for name in ("src", "conf", "tests", "docs", "docgen"):
        shutil.copytree(ROOT / name, tmp_path / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md"):
        shutil.copy(ROOT / name, tmp_path / name)
    write_files(page, tmp_path)
    assert [title for title in files_of(page) if "/" in title and "my_" not in title] == [
        "src/oneshot_fl/methods/margin.py",
        "conf/method/margin.yaml",
        "tests/unit/methods/test_margin.py",
    ]
    environment = os.environ | {
        "PYTHONPATH": f"{tmp_path / 'src'}{os.pathsep}{tmp_path}",
        "ONESHOT_FL_STORE": str(tmp_path / "store"),
        "OMP_NUM_THREADS": "1",
    }
    for words in commands_of(page):
        command = [sys.executable, *words[1:3], *(_small(words[3:]) if words[2] == "oneshot_fl" else words[3:])]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout + done.stderr
    margin, sharpened, squares = _summaries(tmp_path)
    assert (margin["method"], margin["ensemble"]["name"]) == ("margin", "probability")
    assert sharpened["ensemble"]["rows"].keys() > {"sharpened"}
    assert squares["settings"]["method"]["source"]["_target_"] == "my_sources.Squares"


def test_a_source_is_written_as_the_page_says(here, monkeypatch):
    write_files("howto/method.md", here)
    (words,) = [words for words in commands_of("howto/method.md") if "method/source=squares" in words]
    _run(words, monkeypatch)
    (squares,) = _summaries(here)
    assert squares["settings"]["method"]["source"] == {"_target_": "my_sources.Squares", "samples": 200}
