"""A Markdown extension for text of the repository's root that pages take in: its links lead through `docs/`."""

from markdown import Extension, Markdown
from markdown.preprocessors import Preprocessor

AFTER_SNIPPETS = 31
"""Their preprocessor has 32, and the next one 30."""


class FromRoot(Extension):
    """`](docs/a.md)` -> `](/a.md)`, which `absolute_links: relative_to_docs` finds from every page."""

    def extendMarkdown(self, md: Markdown) -> None:
        """Add the step."""
        md.preprocessors.register(_Links(md), "from_root", AFTER_SNIPPETS)


class _Links(Preprocessor):
    def run(self, lines: list[str]) -> list[str]:
        return [line.replace("](docs/", "](/") for line in lines]


def makeExtension(**settings: object) -> Extension:  # by this name Markdown finds it
    """The extension."""
    return FromRoot(**settings)
