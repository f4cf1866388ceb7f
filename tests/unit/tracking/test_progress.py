import errno
import io
import os
import pickle
import subprocess
import sys
import time
from pathlib import Path

import pytest
from rich.console import Console

from oneshot_fl.tracking.progress import Progress, terminal


def test_without_a_terminal_every_phase_leaves_one_line():
    text = io.StringIO()
    with Progress(Console(file=text)) as progress:
        task = progress.task("local training", 10, "client epochs")
        task.advance("client 1 of 2")
        task.reach(5)
        assert task.completed == 5
        task.finish()
    assert text.getvalue().startswith("local training: 10 client epochs in ")
    assert text.getvalue().count("\n") == 1


@pytest.mark.parametrize("name", ["[/evil]", "site[old].safetensors", ":cat:", "[link=http://nowhere]"])
@pytest.mark.parametrize("width", [None, 120])
def test_what_others_have_named_is_printed_as_it_is(name, width, monkeypatch):
    text = io.StringIO()
    console = terminal(text)
    if width:
        monkeypatch.setattr(console, "_force_terminal", True)
        console.width = width
    with Progress(console) as progress:
        progress.note(f"quarantined {name}")
        progress.task(f"of {name}", 1, "rounds").finish()
    assert f"quarantined {name}" in text.getvalue()
    assert f"of {name}" in text.getvalue()


def test_a_run_whose_output_nobody_reads_any_more_is_stopped_with_the_exit_code_of_shells():
    code = "from oneshot_fl.tracking.progress import terminal; terminal().print('a')"
    read, write = os.pipe()
    os.close(read)
    ended = subprocess.run([sys.executable, "-c", code], stdout=write, stderr=subprocess.PIPE, text=True, check=False)
    os.close(write)
    assert (ended.returncode, ended.stderr) == (141, "")


def test_a_long_note_is_one_line_where_there_is_no_terminal():
    text, long = io.StringIO(), "word " * 100
    with Progress(Console(file=text, width=80)) as progress:
        progress.note(long)
        progress.task(long, 1, "rounds").finish()
    assert text.getvalue().count("\n") == 2


def test_without_a_terminal_a_phase_that_is_on_tells_how_far_it_is(tmp_path, monkeypatch):
    monkeypatch.setattr("oneshot_fl.tracking.progress.RENEWED", 0.01)
    monkeypatch.setattr("oneshot_fl.tracking.progress.HEARTBEAT", 0.0)
    text, pulse = io.StringIO(), tmp_path / "progress.txt"
    with Progress(Console(file=text, width=120), tmp_path) as progress:
        task = progress.task("distillation", 10, "rounds")
        task.reach(4, "accuracy 0.500")
        deadline = time.monotonic() + 60
        while "distillation" not in text.getvalue() or not pulse.exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
        assert pulse.read_text().startswith("distillation: 4 of 10 rounds after ")
        assert text.getvalue().startswith("distillation: 4 of 10 rounds after ")
    assert not pulse.exists()


def test_on_a_terminal_the_bar_shows_what_is_done():
    text = io.StringIO()
    console = Console(file=text, force_terminal=True, width=120)
    with Progress(console) as progress:
        task = progress.task("distillation", 4, "rounds")
        task.reach(3, "accuracy 0.500")
    assert "distillation" in text.getvalue()
    assert "3/4" in text.getvalue()
    assert "accuracy 0.500" in text.getvalue()


def test_what_copies_in_other_processes_do_counts_too():
    task = Progress(Console(quiet=True)).task("local training", 20, "client epochs")
    task.reach(5)
    with task.shared():
        one, other = (pickle.loads(pickle.dumps(task)) for _ in range(2))
        one.advance("client 1 of 2")
        one.advance("client 1 of 2")
        other.reach(4)
        other.reach(other.completed + 3)
        other.reach(1)
        task.look()
        assert task.completed == 5 + 2 + 7
        task.reach(18)
        task.look()
        assert task.completed == 18
    one.advance()
    task.look()
    assert task.completed == 18


def test_a_copy_that_nobody_looks_at_still_counts_for_itself():
    task = pickle.loads(pickle.dumps(Progress(Console(quiet=True)).task("recitals", 4, "images")))
    task.reach(3)
    task.advance()
    assert task.completed == 4


def test_a_line_tells_what_copies_in_other_processes_do(tmp_path, monkeypatch):
    monkeypatch.setattr("oneshot_fl.tracking.progress.RENEWED", 0.01)
    with Progress(Console(quiet=True), tmp_path) as progress:
        task = progress.task("local training", 10, "client epochs")
        with task.shared():
            pickle.loads(pickle.dumps(task)).reach(3)
            deadline = time.monotonic() + 60
            while task.completed < 3:
                assert time.monotonic() < deadline
                time.sleep(0.01)
    assert progress.now().startswith("local training: 3 of 10 client epochs after ")


@pytest.mark.parametrize(
    ("stored", "begin", "end"),
    [
        ([], "local training: 10 client epochs in ", " s\n"),
        ([4], "local training: 6 of 10 client epochs in ", " s, the rest from store\n"),
        ([4, 6], "local training: 10 client epochs, from store\n", ""),
    ],
)
def test_the_line_says_what_was_found_in_the_store_instead_of_a_time_that_nothing_took(stored, begin, end):
    text = io.StringIO()
    task = Progress(Console(file=text)).task("local training", 10, "client epochs")
    for steps in stored:
        task.from_store(steps)
    task.finish()
    assert text.getvalue().startswith(begin)
    assert text.getvalue().endswith(end)


def test_a_phase_without_steps_came_from_nowhere():
    text = io.StringIO()
    task = Progress(Console(file=text)).task("distillation", 0, "rounds")
    task.from_store(0)
    task.finish()
    assert text.getvalue().startswith("distillation: 0 rounds in ")


def test_a_disk_that_fails_for_a_while_is_tried_again(tmp_path, monkeypatch):
    monkeypatch.setattr("oneshot_fl.tracking.progress.RENEWED", 0.01)
    failed, write = [], Path.write_text

    def fail_twice(path, text):
        if len(failed) < 2:
            failed.append(path)
            raise OSError(errno.EIO, "Input/output error")
        return write(path, text)

    monkeypatch.setattr(Path, "write_text", fail_twice)
    with Progress(Console(quiet=True), tmp_path) as progress:
        progress.task("distillation", 10, "rounds")
        deadline = time.monotonic() + 10
        while not (tmp_path / "progress.txt").exists():
            assert time.monotonic() < deadline
            time.sleep(0.01)
    assert len(failed) == 2


def test_a_line_that_cannot_be_removed_at_the_end_ends_no_run(tmp_path, monkeypatch):
    def fail(path, missing_ok=False):
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(Path, "unlink", fail)
    with Progress(Console(quiet=True), tmp_path):
        pass
