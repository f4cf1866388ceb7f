"""A sample of the wrong lines of `python -m tests.fuzz`, and mistakes that only the real command meets."""

from pathlib import Path

import pytest

from tests.fuzz.judge import Verdict, judge, judge_all
from tests.fuzz.wrong_lines import BASES, Case, cases
from tests.pipeline.cli import call


@pytest.mark.parametrize("base", BASES, ids=" ".join)
def test_what_is_mutated_is_sound_itself(base):
    assert judge(Case(base, (), "sound")) == Verdict("accepted", "")


def test_a_sample_of_wrong_lines_ends_in_one_plain_sentence_each():
    sample = cases(80, seed=3)
    bad = [
        f"{verdict.how} {case}: {verdict.words}"
        for case, verdict in zip(sample, judge_all(sample), strict=True)
        if verdict.how != "plain"
    ]
    assert bad == []


def _broken(folder: Path) -> tuple[str, ...]:
    (folder / "method").mkdir()
    (folder / "method" / "mine.yaml").write_text("name: [mine\nsource: }")
    return (f"--config-dir={folder}", "method=mine")


def _binary(folder: Path) -> tuple[str, ...]:
    (folder / "method").mkdir()
    (folder / "method" / "mine.yaml").write_bytes(b"name: \xff\xfe\x00")
    return (f"--config-dir={folder}", "method=mine")


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (_broken, "method/mine.yaml: line 2 is no YAML"),
        (_binary, "method/mine.yaml"),
        (lambda folder: ("logger=null",), "logger=null: logger is a group of settings; choose one by its name, of "),
        (lambda folder: ("hydra.run.dir=/dev/null/x",), "/dev/null/x: Not a directory"),
        (lambda folder: ("method.objective.adv.temprature=2",), "did you mean method.objective.adv.temperature?"),
    ],
    ids=["broken", "binary", "null", "folder", "misspelled"],
)
def test_the_command_says_so_in_one_line_and_leaves_with_2(arguments, says, tmp_path):
    done = call(*arguments(tmp_path), cwd=tmp_path, tiny=False)
    assert done.returncode == 2
    assert says in done.stderr
    assert "Traceback" not in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
