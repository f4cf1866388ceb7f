"""mkdocs' hook: adds the generated pages, puts them into the navigation, and turns equations into MathML.

In `nav` an entry `folder/*` stands for all generated pages of that folder.
"""

import fnmatch
import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.structure.files import File

from docgen.cards import card_pages
from docgen.schema import schema_pages
from docgen.settings import settings_pages
from docgen.signatures import anchors, signature_pages

ROOT = Path(__file__).parents[1]
EQUATION = re.compile(
    r'<(?P<tag>span|div) class="arithmatex">(?:\\\(|\\\[)(?P<latex>.*?)(?:\\\)|\\\])</(?P=tag)>', re.DOTALL
)


def pages(root: Path) -> dict[str, str]:
    """Every generated page: its path in the site's sources -> Markdown."""
    package = root / "src" / "oneshot_fl"
    return {
        **settings_pages(root / "conf", anchors(package)),
        **signature_pages(package),
        **card_pages(package / "methods", root / "docs" / "equations"),
        **schema_pages(root / "docs" / "reference" / "summary.schema.json"),
    }


def on_config(config: Any) -> Any:
    """Expand `folder/*` in the navigation."""
    config["nav"] = expanded(config["nav"], sorted(pages(ROOT)))
    return config


def expanded(nav: Any, known: list[str]) -> Any:
    """The navigation with every `folder/*` replaced by the pages that match it, an index first."""
    if isinstance(nav, dict):
        return {
            title: expanded([part], known) if _stands_for_pages(part) else expanded(part, known)
            for title, part in nav.items()
        }
    if isinstance(nav, list):
        return [
            page
            for part in nav
            for page in (_matches(part, known) if _stands_for_pages(part) else [expanded(part, known)])
        ]
    return nav


def _stands_for_pages(entry: Any) -> bool:
    return isinstance(entry, str) and entry.endswith("/*")


def _matches(pattern: str, known: list[str]) -> list[str]:
    return sorted(fnmatch.filter(known, pattern), key=lambda page: (not page.endswith("/index.md"), page))


def on_files(files: Any, config: Any) -> Any:
    """Add the generated pages."""
    for path, content in pages(ROOT).items():
        files.append(File.generated(config, path, content=content))
    return files


def on_page_content(content: str, **_: Any) -> str:
    """Every LaTeX equation as MathML, which browsers show without a script."""
    return EQUATION.sub(_mathml, content)


def _mathml(match: re.Match[str]) -> str:
    display = "block" if match["tag"] == "div" else "inline"
    return convert(html.unescape(match["latex"]), display=display)
