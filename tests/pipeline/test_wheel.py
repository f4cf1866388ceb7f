"""The wheel carries the configuration and runs from any folder."""

import os
import shutil
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path

import pytest

from tests.composing import TINY

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def clone(tmp_path_factory) -> Path:
    """A clone in use, with settings of one's own where `docs/configuration.md` has them."""
    folder = tmp_path_factory.mktemp("clone")
    listed = ["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"]
    names = subprocess.run(listed, cwd=ROOT, check=True, capture_output=True, text=True).stdout.split("\0")
    for name in (name for name in names if (ROOT / name).is_file()):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(ROOT / name, folder / name)
    (folder / "conf/local").mkdir()
    (folder / "conf/local/default.yaml").write_text("# @package _global_\nstore: /home/me/store\n")
    return folder


@pytest.fixture(scope="module")
def built(clone, tmp_path_factory) -> Path:
    """The folder of the wheel and the sdist."""
    return _build(clone, tmp_path_factory.mktemp("built"))


def _build(source: Path, out: Path, *what: str) -> Path:
    subprocess.run([sys.executable, "-m", "hatchling", "build", *what, "-d", str(out)], cwd=source, check=True)
    return out


@pytest.fixture(scope="module")
def installed(built, tmp_path_factory) -> Path:
    """The unpacked wheel; its dependencies are those of this environment."""
    (wheel,) = built.glob("*.whl")
    site = tmp_path_factory.mktemp("site")
    zipfile.ZipFile(wheel).extractall(site)
    return site


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


def test_a_wheel_carries_the_configuration_but_nobodys_own_settings(installed, clone):
    carried = {path.relative_to(installed / "oneshot_fl") for path in (installed / "oneshot_fl/conf").rglob("*.yaml")}
    there = {path.relative_to(clone) for path in (clone / "conf").rglob("*.yaml")}
    assert there - carried == {Path("conf/local/default.yaml")}


def test_an_sdist_holds_what_the_same_wheel_is_built_from_and_nothing_that_needs_the_repository(built, tmp_path):
    (sdist,) = built.glob("*.tar.gz")
    with tarfile.open(sdist) as archive:
        archive.extractall(tmp_path, filter="data")
    (source,) = tmp_path.iterdir()
    own = {".gitignore", "PKG-INFO", "pyproject.toml"}  # hatchling's
    assert {path.name for path in source.iterdir()} - own == {"src", "conf", "README.md", "LICENSE"}
    wheels = *built.glob("*.whl"), *_build(source, tmp_path / "again", "-t", "wheel").glob("*.whl")
    first, again = (sorted(zipfile.ZipFile(wheel).namelist()) for wheel in wheels)
    assert first == again
