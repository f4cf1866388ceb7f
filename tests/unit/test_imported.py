"""From which state of its file a module was imported."""

import importlib
import importlib.util
import os
import subprocess
import sys
import time
import zipfile
from pathlib import Path

import pytest

from oneshot_fl import imported
from oneshot_fl.errors import OneshotError
from oneshot_fl.imported import Witness, check_place, check_unedited, imported_from, state_of, watch

NAME = "a_module_of_a_user"


@pytest.fixture
def file(tmp_path, monkeypatch):
    """The file of a module that nobody has imported yet."""
    monkeypatch.syspath_prepend(str(tmp_path))
    path = tmp_path / f"{NAME}.py"
    path.write_text("number = 1\n")
    yield path
    sys.modules.pop(NAME, None)
    imported._imported.pop(NAME, None)


def _spec(path: Path):
    return importlib.util.spec_from_file_location(NAME, path)


def test_an_import_is_noted_and_a_look_leaves_the_module_as_it_is(file):
    assert imported_from(NAME) is None
    module = importlib.import_module(NAME)
    assert module.number == 1
    assert imported_from(NAME) == state_of(_spec(file))
    assert imported_from("no.such.module") is None


def test_what_was_edited_since_its_import_is_refused_until_it_is_reloaded(file):
    module = importlib.import_module(NAME)
    check_unedited(NAME, _spec(file))
    file.write_text("number = 20\n")
    with pytest.raises(OneshotError, match=rf"{file}: was changed since {NAME} was imported.*importlib\.reload") as one:
        check_unedited(NAME, _spec(file))
    assert "\n" not in str(one.value)
    importlib.invalidate_caches()
    assert importlib.reload(module).number == 20
    check_unedited(NAME, _spec(file))


def test_what_a_copy_with_its_old_date_took_the_place_of_is_refused_too(file):
    importlib.import_module(NAME)
    file.write_text("number = 2\n")
    os.utime(file, ns=(0, 0))
    with pytest.raises(OneshotError, match="was changed"):
        check_unedited(NAME, _spec(file))


def test_a_module_of_the_same_name_in_another_folder_is_refused_until_its_own_is_imported(file, tmp_path):
    importlib.import_module(NAME)
    (tmp_path / "link").symlink_to(tmp_path)
    for same in (None, _spec(file), _spec(tmp_path / "link" / file.name)):
        check_place(NAME, same)
    other = tmp_path / "other" / file.name
    other.parent.mkdir()
    other.write_text("number = 2\n")
    with pytest.raises(
        OneshotError, match=f"^{other}: is not the code that runs, as {NAME} was imported from {file}; "
    ):
        check_place(NAME, _spec(other))
    del sys.modules[NAME]
    check_place(NAME, _spec(other))


def test_a_file_that_nobody_imported_may_be_edited(file):
    importlib.import_module(NAME)
    del sys.modules[NAME]
    file.write_text("number = 20\n")
    check_unedited(NAME, _spec(file))
    assert imported_from(NAME) is None


@pytest.mark.parametrize("edited", [False, True])
def test_of_an_import_before_ours_the_beginning_of_the_process_is_known(file, monkeypatch, edited):
    importlib.import_module(NAME)
    del imported._imported[NAME]
    os.utime(file, ns=(0, 0))  # its date says nothing
    monkeypatch.setattr(imported, "BEGAN", file.stat().st_ctime_ns - edited)
    if edited:
        with pytest.raises(OneshotError, match=f"since Python started, perhaps after {NAME} was imported"):
            check_unedited(NAME, _spec(file))
    else:
        check_unedited(NAME, _spec(file))


BEFORE = f"""
import sys
from pathlib import Path
import {NAME}
if sys.argv[1] == "edit":
    Path({NAME}.__file__).write_text("number = 20")
from oneshot_fl.code import digest
from oneshot_fl.errors import OneshotError
try:
    digest(["{NAME}"])
except OneshotError as error:
    print(error)
"""


@pytest.mark.parametrize(("does", "says"), [("edit", "was changed since Python started"), ("nothing", "")])
def test_a_notebook_that_imports_and_edits_before_it_imports_us_is_told(file, does, says):
    told = subprocess.check_output([sys.executable, "-c", BEFORE, does], cwd=file.parent, text=True)
    assert says in told
    assert bool(told) == bool(says)


def test_the_beginning_of_the_process_is_where_it_was():
    before = time.time_ns()
    began = int(subprocess.check_output([sys.executable, "-c", "from oneshot_fl.imported import *; print(BEGAN)"]))
    assert before - 0.1e9 < began < time.time_ns()
    assert before > imported.BEGAN


def test_where_nothing_tells_when_the_process_began_it_is_now(tmp_path, monkeypatch):
    monkeypatch.setattr(imported, "PROCESS", tmp_path / "none")
    assert abs(imported._began() - time.time_ns()) < 60e9


def test_what_lies_in_an_archive_has_no_state(tmp_path, monkeypatch):
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr(f"{NAME}.py", "number = 1")
    monkeypatch.syspath_prepend(str(tmp_path / "all.zip"))
    module = importlib.import_module(NAME)
    assert module.number == 1
    assert imported_from(NAME) is None
    check_unedited(NAME, module.__spec__)
    del sys.modules[NAME]


def test_one_witness_is_enough():
    watch()
    watch()
    assert sum(isinstance(finder, Witness) for finder in sys.meta_path) == 1
