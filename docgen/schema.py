"""The page of `summary.json`, from its JSON Schema."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

Row = tuple[str, str, str]
"""Dotted key, type, description."""


def schema_pages(path: Path) -> dict[str, str]:
    """One page."""
    return {"reference/summary.md": schema_page(json.loads(path.read_text()), path.name)}


def schema_page(schema: dict[str, Any], file: str) -> str:
    """A table of every key."""
    lines = [f"| `{key}` | {kind} | {about} |" for key, kind, about in rows(schema)]
    source = f"As a JSON Schema: [`{file}`]({file})."
    return "\n".join(
        ["# summary.json", "", schema["description"], source, "", "| key | type | |", "|---|---|---|", *lines]
    )


def rows(schema: dict[str, Any], prefix: str = "") -> Iterator[Row]:
    """Every key below a schema, depth first; `[]` stands for each item of a list, `*` for any name."""
    for name, part in schema.get("properties", {}).items():
        yield from _rows(f"{prefix}{name}", part)
    if isinstance(part := schema.get("additionalProperties"), dict):
        yield from _rows(f"{prefix}*", part)


def _rows(key: str, part: dict[str, Any]) -> Iterator[Row]:
    if "description" in part:
        yield key, kind_of(part), part["description"]
    yield from rows(part, f"{key}.")
    if isinstance(items := part.get("items"), dict):
        yield from rows(items, f"{key}[].")


def kind_of(part: dict[str, Any]) -> str:
    """The type in words."""
    kinds = part.get("type", "any")
    return " or ".join(kinds) if isinstance(kinds, list) else kinds
