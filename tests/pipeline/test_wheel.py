"""The wheel carries the configuration and runs from any folder."""

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.composing import TINY

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> Path:
    """The unpacked wheel; its dependencies are those of this environment."""
    folder = tmp_path_factory.mktemp("wheel")
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--no-build-isolation", "-w", str(folder)]
    subprocess.run([*build, str(ROOT)], check=True)
    (wheel,) = folder.glob("*.whl")
    zipfile.ZipFile(wheel).extractall(folder / "site")
    return folder / "site"


def _run(installed: Path, cwd: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    code = (
        "import sys, oneshot_fl; "
        f"assert oneshot_fl.__file__.startswith({str(installed)!r}), oneshot_fl.__file__; "
        "from oneshot_fl.__main__ import main; sys.argv[0] = 'oneshot-fl'; main()"
    )
    environment = os.environ | {"PYTHONPATH": str(installed), "ONESHOT_FL_STORE": str(cwd / "store")}
    return subprocess.run(
        [sys.executable, "-c", code, *arguments],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
        timeout=240,
    )


def test_the_wheel_runs_the_main_job_through_its_console_entry(installed, tmp_path):
    entry = next(installed.glob("*.dist-info")) / "entry_points.txt"
    assert "oneshot-fl = oneshot_fl.cli:main" in entry.read_text()
    done = _run(installed, tmp_path, *TINY, "distill.rounds=1", "method=dense")
    assert done.returncode == 0, done.stderr
    assert list(tmp_path.rglob("summary.json"))


def test_the_wheel_carries_the_papers_tables_and_their_numbers(installed):
    package = installed / "oneshot_fl"
    for paper in ("fedhydra", "co_boosting"):
        assert len(list((package / "conf/experiment" / paper).glob("table*.yaml"))) >= 18
    assert len((package / "reporting/tables/papers/paper_results.csv").read_text().splitlines()) == 1 + 1818


def test_the_wheel_names_its_own_choices(installed, tmp_path):
    done = _run(installed, tmp_path, "method=fedhidra")
    assert done.returncode == 2
    assert "did you mean fedhydra?" in done.stderr
