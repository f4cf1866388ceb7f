"""The code of a phase in the keys of what it wants, and in every process that makes it."""

import sys
from dataclasses import replace
from pathlib import Path

import cloudpickle
import pytest
import torch
from rich.console import Console

from oneshot_fl.artifacts import Artifact
from oneshot_fl.code import _seen
from oneshot_fl.errors import OneshotError
from oneshot_fl.phases.keyed import keyed
from oneshot_fl.phases.side_by_side import make_all
from oneshot_fl.recipe import digest_of
from oneshot_fl.store import Wanted
from oneshot_fl.tracking.progress import Progress

INPUTS = {"model": {"_target_": "a_model_of_a_user.Net"}}


@pytest.fixture
def model(tmp_path, monkeypatch):
    """The file of a user's model, which no process of ours has imported."""
    monkeypatch.syspath_prepend(str(tmp_path))
    file = tmp_path / "a_model_of_a_user.py"
    file.write_text("class Net: ...\n")
    yield file
    _seen.pop("a_model_of_a_user", None)


def _wanted(number: int = 0) -> Wanted:
    make = _Make(number)
    return keyed(Wanted("clients", {**INPUTS, "number": number}, make), "oneshot_fl.seeds", "oneshot_fl.values")


class _Make:
    def __init__(self, number: int) -> None:
        self.number = number

    def __call__(self, _: Path) -> Artifact:
        return Artifact({"number": torch.tensor(self.number)}, {})


def test_the_code_is_an_input_and_what_is_made_is_made(model, context):
    wanted = _wanted(3)
    assert wanted.inputs["code"] == digest_of("oneshot_fl.seeds", INPUTS, "oneshot_fl.values")
    assert wanted.inputs["code"] != digest_of("oneshot_fl.seeds", INPUTS)
    artifact = context.store.get_or_make_if_free(wanted)
    assert artifact.tensors["number"] == 3


def test_a_process_that_has_read_other_code_makes_nothing(model, context, tmp_path):
    wanted = _wanted()
    model.write_text("class Net:\n    width = 3\n")
    assert context.store.get_or_make_if_free(wanted)  # this process read it before
    other = _wanted(1)
    _seen.pop("a_model_of_a_user")  # as in one that begins now
    with pytest.raises(
        OneshotError, match=r"clients: a worker would run other code.*start the program again"
    ) as raised:
        context.store.get_or_make_if_free(other)
    assert "\n" not in str(raised.value)
    assert len(list(context.store.root.rglob("manifest.json"))) == 1


@pytest.mark.slow  # every worker imports torch
def test_workers_that_begin_after_the_code_was_edited_store_nothing(model, context, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(model.parent), prepend=":")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    wanted = [_wanted(k) for k in range(2)]
    model.write_text("class Net:\n    width = 3\n")
    two = replace(context, workers=2)
    task = Progress(Console(quiet=True)).task("x", 2, "things")
    try:
        with pytest.raises(OneshotError, match="a worker would run other code"):
            make_all(wanted, [1, 1], context=two, task=task)
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert not list(context.store.root.rglob("manifest.json"))


@pytest.mark.slow  # every worker imports torch
def test_workers_of_a_run_before_an_edit_make_room_for_new_ones(model, context, monkeypatch):
    monkeypatch.setenv("PYTHONPATH", str(model.parent), prepend=":")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    two, task = replace(context, workers=2), Progress(Console(quiet=True)).task("x", 4, "things")
    try:
        make_all([_wanted(k) for k in range(2)], [1, 1], context=two, task=task)
        model.write_text("class Net:\n    width = 3\n")
        _seen.pop("a_model_of_a_user")  # reloaded, as in a notebook
        make_all([_wanted(k) for k in range(2)], [1, 1], context=two, task=task)
    finally:
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    assert len(list(context.store.root.rglob("manifest.json"))) == 4
