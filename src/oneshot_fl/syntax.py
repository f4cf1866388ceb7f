"""What the text of a module says: a digest of its syntax tree, and its imports, also by `import_module("a.name")`.

To parse all modules of a run takes most of a second, so what was found is kept beside Python's own compiled modules, in
`__pycache__`, under the SHA-256 of the text: a text that changed is another text. Where Python may not or cannot write
there, nothing is kept, and each process parses for itself.
"""

import ast
import hashlib
import json
import sys
from collections.abc import Iterable, Iterator
from contextlib import suppress
from functools import cache
from importlib.util import cache_from_source
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from oneshot_fl.disk import write_atomically
from oneshot_fl.errors import OneshotError

OWN = Path(__file__).read_bytes()
"""The text that this process runs, whatever an upgrade writes over it meanwhile."""
MOST = 2000
"""Texts that are kept; of more the oldest are dropped."""


class Import(NamedTuple):
    """`import module`, or `from module import names` with the dots of a relative one counted."""

    module: str
    names: tuple[str, ...] = ()
    dots: int = 0


class Syntax(NamedTuple):
    """A module as far as its results depend on its text."""

    digest: str
    """The SHA-256 of its tree without comments, docstrings and layout."""
    imports: tuple[Import, ...]
    """Also those inside functions, in order."""


_learnt: dict[str, Syntax] = {}
"""What this process found that was not kept yet."""


def syntax_of(text: str) -> Syntax:
    """What a module's text says.

    Raises:
        SyntaxError, ValueError: it is no valid Python.
    """
    name = hashlib.sha256(text.encode()).hexdigest()
    known = _learnt.get(name) or _kept().get(name)
    if known is None:
        known = _learnt[name] = _parsed(text)
    return known


def keep() -> None:
    """Leave what was learnt to later processes, where Python keeps compiled modules; it only saves them time."""
    if not _learnt or sys.dont_write_bytecode:
        return
    _kept.cache_clear()  # others may have written meanwhile
    known = {**_kept(), **_learnt}
    newest = dict(islice(known.items(), max(0, len(known) - MOST), None))
    entries = json.dumps(newest)
    with suppress(OSError, OneshotError):
        _file().parent.mkdir(parents=True, exist_ok=True)
        write_atomically(_file(), json.dumps([_seal(entries), entries]))
    _kept.cache_clear()
    _learnt.clear()


@cache
def _kept() -> dict[str, Syntax]:
    """What earlier processes left; nothing where it is absent, damaged, or of another version of this module."""
    try:
        seal, entries = json.loads(_file().read_text())
        whole = seal == _seal(entries)
    except (OSError, ValueError, TypeError, AttributeError):
        return {}
    return {name: _restored(*entry) for name, entry in json.loads(entries).items()} if whole else {}


def _restored(digest: str, imports: list[Any]) -> Syntax:
    return Syntax(digest, tuple(Import(module, tuple(names), dots) for module, names, dots in imports))


def _file() -> Path:
    return Path(cache_from_source(__file__)).with_suffix(".json")


def _seal(entries: str) -> str:
    """Over the entries and over how they are made."""
    return hashlib.sha256(OWN + entries.encode()).hexdigest()


def _parsed(text: str) -> Syntax:
    tree = _WithoutDocstrings().visit(ast.parse(text))
    return Syntax(hashlib.sha256(ast.dump(tree).encode()).hexdigest(), tuple(_imports(tree)))


class _WithoutDocstrings(ast.NodeTransformer):
    """Drops every statement that is only a string: docstrings of modules, classes, functions and attributes."""

    def visit_Expr(self, node: ast.Expr) -> ast.Expr | None:
        """ast's hook."""
        alone = isinstance(node.value, ast.Constant) and isinstance(node.value.value, str)
        return None if alone else node


def _imports(tree: ast.AST) -> Iterator[Import]:
    nodes = list(ast.walk(tree))
    importing = _names_of_importing(nodes)
    for node in nodes:
        if isinstance(node, ast.Import):
            yield from (Import(alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            yield Import(node.module or "", tuple(alias.name for alias in node.names), node.level)
        elif isinstance(node, ast.Call) and (name := _called_for(node, importing)):
            yield Import(name.lstrip("."), dots=len(name) - len(name.lstrip(".")))


def _names_of_importing(nodes: Iterable[ast.AST]) -> set[str]:
    """What `import_module` and `__import__` are called in a module."""
    taken = (node for node in nodes if isinstance(node, ast.ImportFrom) and node.module == "importlib")
    aliases = (alias.asname for node in taken for alias in node.names if alias.name == "import_module")
    return {"import_module", "__import__", *(alias for alias in aliases if alias)}


def _called_for(node: ast.Call, importing: set[str]) -> str:
    """The module that a function that imports is called for, where that is written down."""
    called = getattr(node.func, "attr", None) or getattr(node.func, "id", None)
    given = [*node.args, *(keyword.value for keyword in node.keywords if keyword.arg == "name")]
    wanted = given[0] if called in importing and given else None
    return wanted.value if isinstance(wanted, ast.Constant) and isinstance(wanted.value, str) else ""
