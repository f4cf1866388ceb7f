"""HTML of other people's words: everything is escaped but what is HTML by its type."""

import html
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any


class Html(str):
    """Text that is HTML already."""


def escaped(value: Any) -> Html:
    """A value as HTML, also inside quotes; HTML as it is."""
    return value if isinstance(value, Html) else Html(html.escape(str(value)))


def element(tag: str, *inside: Any, **attributes: Any) -> Html:
    """An element; an attribute `data_s` is written `data-s`, `class_` is `class`."""
    told = "".join(f' {name.rstrip("_").replace("_", "-")}="{escaped(value)}"' for name, value in attributes.items())
    return Html(f"<{tag}{told}>{''.join(map(escaped, inside))}</{tag}>")


def table(
    header: Sequence[Any],
    rows: Iterable[Sequence[Any]],
    *,
    of_rows: Sequence[Mapping[str, Any]] | None = None,
    named: bool = False,
) -> Html:
    """A table in a box that scrolls sideways where it is wider than the page.

    Args:
        header: of the columns.
        rows: their cells.
        of_rows: attributes of each row.
        named: whether each cell carries its column's name, for a narrow page where a row is a card.
    """
    several = list(rows)
    attributes = of_rows or [{}] * len(several)
    head = element("tr", *(element("th", cell, scope="col") for cell in header))
    body = [
        element("tr", *(_cell(name if named else None, cell) for name, cell in zip(header, row, strict=True)), **own)
        for row, own in zip(several, attributes, strict=True)
    ]
    whole = element("table", element("thead", head), element("tbody", *body))
    return element("div", whole, class_="wide", tabindex="0", role="group")


def _cell(name: Any, cell: Any) -> Html:
    return element("td", cell) if name is None else element("td", cell, data_name=name)


def script_data(value: Any) -> Html:
    """JSON inside a `script` element: no text in it can end the element or begin a comment.

    Raises:
        ValueError: a number is not finite, which JSON cannot tell.
    """
    return Html(json.dumps(value, allow_nan=False, separators=(",", ":")).replace("<", "\\u003c"))


def script_code(code: str) -> Html:
    """JavaScript inside a `script` element, which `</script` would end; it occurs in strings only."""
    return Html(code.replace("</script", "<\\/script").replace("<!--", "<\\!--"))
