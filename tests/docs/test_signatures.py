"""The code's pages: what is public, with its signature."""

import ast
from pathlib import Path

import pytest

from docgen.signatures import SECTIONS, anchors, markdown, module_section, signature, signature_pages

PACKAGE = Path(__file__).parents[2] / "src" / "oneshot_fl"


@pytest.mark.parametrize(
    ("code", "shown"),
    [
        ("def f(a: int, *, b: str = 'x') -> float: ...", ["def f(a: int, *, b: str = 'x') -> float"]),
        ("def f(*a: int, b: str, **c: int): ...", ["def f(*a: int, b: str, **c: int)"]),
        ("class A:\n  def __init__(self, a: int) -> None: ...", ["class A(a: int)"]),
        ("class A:\n  weight: float\n  needs: ClassVar[int] = 1", ["class A(weight: float)"]),
        (
            f"def f({'a' * 50}: int, {'b' * 50}: int) -> int: ...",
            ["def f(", f"    {'a' * 50}: int,", f"    {'b' * 50}: int,", ") -> int"],
        ),
    ],
)
def test_signatures_are_those_of_the_source(code, shown):
    (node,) = ast.parse(code).body
    assert signature(node) == shown


def test_arguments_become_a_list_and_end_with_the_block():
    text = "First.\n\nArgs:\n    a: one\n        and more.\n    b: two.\n\nLast."
    assert markdown(text) == ["First.", "", "**Args**", "", "- `a`: one", "and more.", "- `b`: two.", "", "Last."]


def test_what_begins_with_an_underscore_is_left_out(tmp_path):
    module = tmp_path / "module.py"
    module.write_text('"""About."""\ndef shown(): "Yes."\ndef _hidden(): "No."\nclass _Hidden: "No."\n')
    section = "\n".join(module_section(module, "package.module"))
    assert "### shown" in section
    assert "idden" not in section


def test_every_section_has_something_but_the_face_that_may_be_empty_and_anchors_are_headings():
    pages = signature_pages(PACKAGE)
    assert all("### " in pages[f"code/{page}.md"] for page in SECTIONS if page not in ("oneshot_fl", "values"))
    for name, place in anchors(PACKAGE).items():
        page, anchor = place.split("#")
        assert anchor == name
        assert f"{{ #{name} }}" in pages[page]
