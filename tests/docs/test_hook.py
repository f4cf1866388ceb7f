"""The navigation and the equations."""

import pytest

from docgen.hook import expanded, on_page_content


def test_a_folder_in_the_navigation_becomes_its_pages_an_index_first():
    known = ["a/b.md", "a/index.md", "c/d.md"]
    nav = [{"Home": "index.md"}, {"A": "a/*"}, {"More": ["x.md", "c/*", {"Inner": "a/*"}]}]
    assert expanded(nav, known) == [
        {"Home": "index.md"},
        {"A": ["a/index.md", "a/b.md"]},
        {"More": ["x.md", "c/d.md", {"Inner": ["a/index.md", "a/b.md"]}]},
    ]


@pytest.mark.parametrize(("tag", "marks", "display"), [("span", r"\(\)", "inline"), ("div", r"\[\]", "block")])
def test_equations_become_mathml(tag, marks, display):
    opening, closing = marks[:2], marks[2:]
    shown = on_page_content(f'<p><{tag} class="arithmatex">{opening}a &lt; b_1{closing}</{tag}></p>')
    assert f'display="{display}"' in shown
    assert "<msub><mi>b</mi><mn>1</mn></msub>" in shown
    assert "arithmatex" not in shown


def test_a_page_without_equations_stays_as_it_is():
    assert on_page_content("<p>a</p>") == "<p>a</p>"
