"""Pages of method cards: the docstring of each module in `methods/`, with equations where there are some."""

import ast
from pathlib import Path


def card_pages(methods: Path, equations: Path) -> dict[str, str]:
    """One page for each card."""
    cards = {path.stem: docstring for path in sorted(methods.glob("*.py")) if (docstring := card(path))}
    written = {name: equations / f"{name}.md" for name in cards}
    return {
        f"methods/{name}.md": card_page(docstring, written[name].read_text() if written[name].exists() else "")
        for name, docstring in cards.items()
    }


def card(path: Path) -> str:
    """A module's card; the package itself has none."""
    return "" if path.stem == "__init__" else ast.get_docstring(ast.parse(path.read_text())) or ""


def title(card: str) -> str:
    """The card's first line without its full stop."""
    return card.splitlines()[0].rstrip(".")


def card_page(card: str, equations: str) -> str:
    """Title, citation, equations, and then the card's tables and lists."""
    lines = card.splitlines()[1:]
    table = next((n for n, line in enumerate(lines) if line.startswith("|")), len(lines))
    middle = ["## Equations", "", equations.strip(), "", "## Where it is", ""] if equations else []
    return "\n".join([f"# {title(card)}", *spaced(lines[:table]), *middle, *spaced(lines[table:])])


def spaced(lines: list[str]) -> list[str]:
    """The lines with an empty one before every list and table, which Markdown asks for and docstrings leave out."""
    found: list[str] = []
    for line in lines:
        before = found[-1] if found else ""
        if line[:2] in ("- ", "| ") and before.strip() and before[:2] not in (line[:2], "|-", "  "):
            found.append("")
        found.append(line)
    return found
