"""Links of text that pages take in from the repository's root."""

from pathlib import Path

from markdown import Markdown

from docgen.from_root import FromRoot

ROOT = Path(__file__).parents[2]


def test_links_through_docs_lead_from_the_sites_own_root():
    page = Markdown(extensions=[FromRoot()]).convert("[a](docs/howto/term.md#names), [b](b.md) and `docs/`")
    assert page == '<p><a href="/howto/term.md#names">a</a>, <a href="b.md">b</a> and <code>docs/</code></p>'


def test_a_snippet_is_taken_in_before_its_links_are_led(tmp_path):
    (tmp_path / "README.md").write_text("[a](docs/a.md)\n")
    snippets = {"pymdownx.snippets": {"base_path": [str(tmp_path)]}}
    page = Markdown(extensions=["pymdownx.snippets", FromRoot()], extension_configs=snippets)
    assert page.convert('--8<-- "README.md"') == '<p><a href="/a.md">a</a></p>'


def test_the_site_is_built_so_that_a_warning_is_an_error():
    """`--quiet` hides warnings from what counts them."""
    (command,) = (line for line in (ROOT / "Makefile").read_text().splitlines() if "mkdocs build" in line)
    assert command.split("mkdocs build")[1].split() == ["--strict"]
