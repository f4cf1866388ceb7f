"""A page's own files and commands."""

import re
import shlex
from pathlib import Path

BLOCK = re.compile(r'^```(?P<language>\w+)(?: title="(?P<title>[^"]+)")?\n(?P<text>.*?)^```$', re.DOTALL | re.MULTILINE)
DOCS = Path(__file__).parents[2] / "docs"


def files_of(page: str) -> dict[str, str]:
    """The blocks that have a title, by it."""
    return {match["title"]: match["text"] for match in BLOCK.finditer((DOCS / page).read_text()) if match["title"]}


def commands_of(page: str) -> list[list[str]]:
    """The lines of the page's `sh` blocks, as words without comments."""
    blocks = [match["text"] for match in BLOCK.finditer((DOCS / page).read_text()) if match["language"] == "sh"]
    return [words for block in blocks for line in block.splitlines() if (words := shlex.split(line, comments=True))]


def write_files(page: str, folder: Path) -> None:
    """The page's files where it says."""
    for title, text in files_of(page).items():
        (folder / title).parent.mkdir(parents=True, exist_ok=True)
        (folder / title).write_text(text)
