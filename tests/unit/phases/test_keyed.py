"""The code of a phase in the keys of what it wants, and in every process that makes it."""

import importlib
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import cloudpickle
import pytest
import torch
from rich.console import Console

from oneshot_fl.artifacts import Artifact
from oneshot_fl.code import _seen
from oneshot_fl.errors import OneshotError
from oneshot_fl.phases.keyed import OtherCodeError, keyed
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
    sys.modules.pop("a_model_of_a_user", None)
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


class _Lazy(_Make):
    """Imports the user's model only when it comes to it, and has left something half made by then."""

    def __init__(self, edits: list[Callable[[], object]], *, breaks: bool = False) -> None:
        super().__init__(0)
        self.edits, self.breaks = edits, breaks

    def __call__(self, work: Path) -> Artifact:
        (work / "half").touch()
        for edit in self.edits:
            edit()
            importlib.import_module("a_model_of_a_user")
        if self.breaks:
            raise RuntimeError("killed")
        return super().__call__(work)


def _lazy(make: _Make) -> Wanted:
    return keyed(Wanted("clients", INPUTS, make), "oneshot_fl.seeds")


def test_what_was_made_while_its_code_was_edited_is_not_kept(model, context):
    def edit():
        model.write_text("class Net:\n    width = 3\n")

    def edit_again():
        model.write_text("class Net:\n    width = 300\n")

    for edits in ([edit], [edit, edit_again]):
        model.write_text("class Net: ...\n")
        sys.modules.pop("a_model_of_a_user", None)
        _seen.pop("a_model_of_a_user", None)
        with pytest.raises(OtherCodeError, match=r"^clients: files of code were edited while it was made.*again$"):
            context.store.get_or_make_if_free(_lazy(_Lazy(edits)))
    assert not [*context.store.root.rglob("manifest.json"), *context.store.root.rglob("half")]


def test_what_is_imported_only_while_it_is_made_and_stayed_the_same_is_kept(model, context):
    assert context.store.get_or_make_if_free(_lazy(_Lazy([lambda: None])))


@pytest.mark.parametrize("edited", [True, False])
def test_a_broken_run_goes_on_with_what_the_same_code_began_alone(model, context, edited):
    def edit():
        model.write_text("class Net:\n    width = 3\n" if edited else "class Net: ...  # said otherwise\n")

    with pytest.raises(RuntimeError, match="killed"):
        context.store.get_or_make_if_free(_lazy(_Lazy([edit], breaks=True)))
    assert bool([*context.store.root.rglob("half")]) is not edited


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
