import errno
import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from threading import Barrier

import pytest

from oneshot_fl.artifacts import write_work
from oneshot_fl.disk import remove, replacing, write_atomically
from oneshot_fl.errors import OneshotError


@pytest.mark.parametrize("write", [write_work, lambda path, _: write_atomically(path, "new")])
@pytest.mark.parametrize(
    "where", ["pathlib.Path.write_bytes", "oneshot_fl.disk.os.fsync", "oneshot_fl.disk.os.replace"]
)
def test_a_full_disk_leaves_the_old_file(tmp_path, where, write):
    path = tmp_path / "kept"
    path.write_text("old")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(where, _full)
        with pytest.raises(OneshotError, match=f"{path}: cannot be written .No space left on device."):
            write(path, [1])
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"kept": "old"}


def _full(*_, **__):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_reader_sees_the_old_text_or_the_new_one(tmp_path, monkeypatch):
    seen = []
    path = tmp_path / "run.json"
    write_atomically(path, "old")
    real = os.fsync
    monkeypatch.setattr("os.fsync", lambda number: (seen.append(path.read_text()), real(number)))
    write_atomically(path, "new")
    assert seen == ["old", "new"]  # the file is on the disk before it gets its name, and then the folder
    assert [file.name for file in tmp_path.iterdir()] == ["run.json"]


def test_bytes_of_a_name_that_are_no_utf8_are_written_as_escapes(tmp_path):
    write_atomically(tmp_path / "error.txt", "caf\udce9.png is no image: \u03b1")
    assert (tmp_path / "error.txt").read_text(encoding="utf-8") == "caf\\udce9.png is no image: \u03b1"


def test_what_fails_while_it_is_written_changes_nothing(tmp_path):
    path = tmp_path / "kept"
    path.write_text("old")
    with suppress(KeyError), replacing(path) as new:
        new.write_text("half")
        raise KeyError
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"kept": "old"}


def test_processes_that_write_one_file_at_once_do_not_disturb_each_other(tmp_path):
    path, begun = tmp_path / "shared", Barrier(4)

    def write(number):
        begun.wait()
        for _ in range(50):
            write_atomically(path, str(number) * 1000)

    with ThreadPoolExecutor(4) as writers:
        list(writers.map(write, range(4)))
    assert path.read_text() in {str(number) * 1000 for number in range(4)}
    assert list(tmp_path.iterdir()) == [path]


def test_whatever_lies_there_is_removed_but_not_what_a_link_leads_to(tmp_path):
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "file").touch()
    (tmp_path / "kept").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "kept")
    (tmp_path / "dangling").symlink_to(tmp_path / "nowhere")
    for name in ("folder", "file", "link", "dangling", "absent"):
        remove(tmp_path / name)
    assert [path.name for path in tmp_path.iterdir()] == ["kept"]


def test_a_file_where_the_folder_should_be_is_one_line(tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(OneshotError, match=r"^\S+/file/new.json: cannot be written \(Not a directory\)"):
        write_atomically(tmp_path / "file" / "new.json", "{}")
