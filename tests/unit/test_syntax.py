import ast
import json
import sys

import pytest

from oneshot_fl import syntax
from oneshot_fl.syntax import Import, Syntax, keep, syntax_of

TEXT = '''
"""A docstring."""
import a.b
from c import d, e
def f():
    from ..g import h
    from . import i
'''
SAYS = (Import("a.b"), Import("c", ("d", "e")), Import("g", ("h",), dots=2), Import("", ("i",), dots=1))


@pytest.fixture
def process(tmp_path, monkeypatch):
    """A function that makes this process a new one, which knows what earlier ones left in a file of the test's own."""
    file = tmp_path / "__pycache__" / "kept.json"
    monkeypatch.setattr(syntax, "_file", lambda: file)
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    monkeypatch.setattr(syntax, "_learnt", {})

    def new():
        syntax._learnt.clear()
        syntax._kept.cache_clear()
        return file

    yield new
    syntax._kept.cache_clear()


@pytest.fixture
def parsed(monkeypatch):
    """The texts that were parsed."""
    texts = []
    parse = ast.parse
    monkeypatch.setattr(syntax.ast, "parse", lambda text: texts.append(text) or parse(text))
    return texts


def test_imports_are_told_in_order_wherever_they_stand(process):
    process()
    assert syntax_of(TEXT).imports == SAYS


@pytest.mark.parametrize(
    ("call", "found"),
    [
        ('importlib.import_module("a.b").c()', (Import("a.b"),)),
        ('import_module("..a", __package__)', (Import("a", dots=2),)),
        ('__import__("a")', (Import("a"),)),
        ("import_module(name), import_module(), import_module(*names), load('a'), import_module(1)", ()),
    ],
)
def test_a_module_that_is_imported_by_a_call_is_one_where_its_name_is_written_down(call, found, process):
    process()
    assert syntax_of(call).imports == found


def test_only_what_runs_changes_the_digest(process):
    process()
    assert syntax_of("x = 1").digest == syntax_of('"""Told."""\nx  =  1  # why').digest != syntax_of("x = 2").digest


def test_what_one_process_parsed_the_next_one_knows(process, parsed):
    process()
    first = syntax_of(TEXT)
    keep()
    process()
    assert syntax_of(TEXT) == first
    assert parsed == [TEXT]
    assert syntax_of(TEXT.replace("a.b", "a.c")).imports[0] == Import("a.c")
    assert len(parsed) == 2


def test_two_processes_at_once_lose_nothing_of_each_other(process, parsed):
    process()
    syntax_of("x = 1")
    syntax._kept()  # as it was before the other process wrote
    theirs = json.dumps({"theirs": Syntax("digest", ())})
    file = process()
    file.parent.mkdir()
    file.write_text(json.dumps([syntax._seal(theirs), theirs]))
    syntax_of("x = 1")
    keep()
    process()
    assert set(syntax._kept()) >= {"theirs"}
    assert len(syntax._kept()) == 2


@pytest.mark.parametrize("damage", ["cut short", "changed", "of another version", "another kind"])
def test_damage_is_as_if_nothing_was_kept(process, parsed, monkeypatch, damage):
    process()
    right = syntax_of(TEXT)
    keep()
    file = process()
    kept = file.read_text()
    file.write_text(
        {"cut short": kept[:-20], "changed": kept.replace("a.b", "a.c"), "another kind": "[]"}.get(damage, kept)
    )
    if damage == "of another version":
        monkeypatch.setattr(syntax, "OWN", b"")
    assert syntax_of(TEXT) == right
    assert len(parsed) == 2


def test_nothing_is_written_where_python_writes_nothing(process, monkeypatch):
    file = process()
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    syntax_of(TEXT)
    keep()
    assert not file.parent.exists()


def test_a_folder_that_cannot_be_written_is_no_error(process):
    file = process()
    file.parent.write_text("in the way")
    syntax_of(TEXT)
    keep()
    assert not file.exists()
    assert syntax_of(TEXT).imports == SAYS


def test_the_oldest_are_dropped(process, monkeypatch, parsed):
    process()
    monkeypatch.setattr(syntax, "MOST", 2)
    for number in range(3):
        syntax_of(f"x = {number}")
    keep()
    process()
    for number in (2, 1, 0):
        syntax_of(f"x = {number}")
    assert parsed == ["x = 0", "x = 1", "x = 2", "x = 0"]


def test_it_lies_beside_pythons_own_compiled_modules():
    assert syntax._file().parent.name == "__pycache__" or sys.pycache_prefix
    assert sys.implementation.cache_tag in syntax._file().name
