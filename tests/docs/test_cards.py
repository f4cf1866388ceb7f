"""The cards' pages."""

import re
from pathlib import Path
from pkgutil import resolve_name

from docgen.cards import card_page, card_pages, spaced

ROOT = Path(__file__).parents[2]
IN_WORDS = {13: "thirteen", 14: "fourteen", 15: "fifteen", 16: "sixteen", 17: "seventeen"}


def test_equations_stand_between_the_citation_and_the_tables():
    page = card_page("A method: short.\n\nCited.\n\n| what | part |\n|---|---|\nDeviations:\n- one", "$$a$$\n")
    assert page.startswith("# A method: short\n")
    places = [page.index(part) for part in ("Cited.", "$$a$$", "| what | part |", "\n\n- one")]
    assert places == sorted(places)
    assert "Equations" not in card_page("A method.\n\nCited.", "")


def test_lists_and_tables_get_the_line_before_them_that_markdown_asks_for():
    assert spaced(["text", "- a", "  more", "- b", "text", "| t |", "|---|"]) == [
        "text", "", "- a", "  more", "- b", "text", "", "| t |", "|---|",
    ]  # fmt: skip


def test_every_card_of_a_paper_has_its_equations():
    pages = card_pages(ROOT / "src/oneshot_fl/methods", ROOT / "docs/equations")
    assert len(pages) >= 13
    assert f"(methods/index.md): {IN_WORDS[len(pages)]} of them" in (ROOT / "docs/index.md").read_text()
    index = (ROOT / "docs/methods/index.md").read_text()
    assert [name for name, page in pages.items() if "## Equations" not in page] == []
    assert [name for name in pages if f"({name.removeprefix('methods/')})" not in index] == []


def _is_there(name):
    try:
        resolve_name(f"oneshot_fl.{name}")
    except (ImportError, AttributeError):
        return False
    return True


def test_what_a_card_says_computes_an_equation_is_there():
    named = {
        name
        for file in (ROOT / "src/oneshot_fl/methods").glob("*.py")
        for name in re.findall(r"`((?:parts|models|phases|methods|data)\.[A-Za-z_.]+)`", file.read_text())
    }
    assert len(named) >= 30
    assert [name for name in sorted(named) if not _is_there(name)] == []
    assert not _is_there("parts.terms.Objective")
