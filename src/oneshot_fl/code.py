"""What code a result depends on: a digest of syntax trees, so that changed code finds no result of the old one.

Followed are the imports, also those inside functions, of our own modules and of the user's: whatever lies neither in
the standard library nor in an installed package, and the installed packages that the run's parts are of, since a user
may have installed his own. Of the others the version counts, of extension modules and others without source their
bytes. An import whose name is computed (`importlib.import_module(name)`) is not seen, nor is a file that code reads. A
tree is written down as this Python's `ast.dump` does it, which differs between Python's minor versions.
"""

import hashlib
import json
import os
import subprocess
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import metadata
from importlib.machinery import ModuleSpec
from importlib.util import spec_from_file_location
from itertools import chain
from pathlib import Path
from pkgutil import get_importer, iter_modules
from typing import Any

from oneshot_fl.errors import OneshotError
from oneshot_fl.imported import State, Witness, check_newest, check_place, check_unedited, imported_from, state_of
from oneshot_fl.syntax import Import, keep, syntax_of

PACKAGE = "oneshot_fl"
UNCOUNTED = ("tracking", "errors", "process", "devices", "code", "imported", "syntax", "disk", "ledger", "energy")
CANNOT_CHANGE_A_NUMBER = tuple(f"{PACKAGE}.{name}" for name in UNCOUNTED)
"""Our modules that are not followed; nor is the package's own `__init__`, the public face of everything."""
TOOLS = {"filelock", "hydra", "omegaconf", "rich", "safetensors", "typer"}
"""Installed packages that cannot change a number either; their versions do not count."""
FRAMEWORKS = {"torch", "torchvision", "lightning"}
"""Installed packages whose version is enough also where a part is theirs."""
FILELESS = (
    "is defined in a notebook or script whose code lies in no file, so that no key can hold it; put it into a .py file "
    "in the current folder, and name it by that"
)
INSTALLED = {"site-packages", "dist-packages"}
"""Folders of packages that are not the user's own."""


@dataclass(frozen=True)
class _Module:
    """One module: what its code is (None: nothing that counts) and the names that it imports."""

    content: str | None
    imports: tuple[str, ...] = ()


_seen: dict[str, tuple[State | None, _Module]] = {}
"""Modules by name, each with the state of its file, as it was when first asked for or when it was imported since."""


def digest(modules: Iterable[str], *, versions: bool = True) -> str:
    """The first 80 bits of the SHA-256, in hexadecimal, over the code of `modules` and all that they import.

    An installed package that one of them is of is followed like any other, unless it is one of `FRAMEWORKS`.
    Comments, docstrings and layout do not count. A module is read once a process, as is its code when it is imported:
    what is edited while a process runs counts for the next one, or after `importlib.reload`.

    Args:
        versions: whether those of installed packages count, in which machines may differ.

    Raises:
        OneshotError: one of `modules` cannot be found, a module is no valid Python, or one was imported and edited
            before it was ever read.
    """
    names = list(modules)
    if unknown := [name for name in names if _find(name) is None]:
        raise OneshotError(f"{unknown[0]}: {_why_not_found(unknown[0])}")
    found = _contents(names, versions=versions)
    keep()
    return hashlib.sha256(json.dumps(found, sort_keys=True).encode()).hexdigest()[:20]


def module_of(target: str) -> str:
    """The module of a `_target_` such as `oneshot_fl.parts.pools.Pool`: the longest beginning that is one.

    Raises:
        OneshotError: no beginning of it is a module.
    """
    names = [name for name in _with_parents(target) if _find(name) is not None]
    if not names:
        raise OneshotError(f"_target_={target}: {_why_not_found(target)}")
    return names[-1]


def is_fileless(target: str) -> bool:
    """Whether a `_target_` is of a module that this process knows and of which there is no file: a notebook's cells."""
    return _package(target) in sys.modules and _find(_package(target)) is None


def _why_not_found(name: str) -> str:
    return FILELESS if is_fileless(name) else "there is no such module; is its folder on PYTHONPATH?"


@cache
def commit() -> str | None:
    """The git commit of the checkout that this package lies in, with `+changes` where tracked files differ from it."""
    if _git("ls-files", "--error-unmatch", Path(__file__).name) is None:  # a checkout around an installed package
        return None
    found, changes = _git("rev-parse", "HEAD"), _git("status", "--porcelain", "--untracked-files=no")
    return found and found + ("+changes" if changes else "")


def _git(*arguments: str) -> str | None:
    """What git prints in the package's folder; None where there is no git or it refuses."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    command = ["git", "-C", str(Path(__file__).parent), *arguments]
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=20, check=False)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def _contents(names: list[str], *, versions: bool) -> dict[str, str]:
    """What counts of some modules and of all that they import, by the name of the module or of the whole package."""
    followed = {_package(name) for name in names} - FRAMEWORKS
    waiting = [each for name in names for each in _with_parents(name)]
    found, visited = dict[str, str](), set[str]()
    while waiting:
        name = waiting.pop()
        if whole := _package(name) not in followed and _is_installed(_package(name)):
            name = _package(name)
        if name in visited or _left_out(name):
            continue
        visited.add(name)
        module = _Module(_version(name) if versions else None) if whole else _module(name)
        check_newest(name, module.imports)
        if module.content is not None:
            found[name] = module.content
        waiting.extend(module.imports)
    return found


def _left_out(name: str) -> bool:
    outer = _package(name)
    return (
        outer in TOOLS
        or (outer in sys.stdlib_module_names and not _is_shadowed(outer))
        or name == PACKAGE
        or f"{name}.".startswith(tuple(f"{left}." for left in CANNOT_CHANGE_A_NUMBER))
    )


@cache
def _is_shadowed(name: str) -> bool:
    """Whether a file of the user's own is imported instead of a module of the standard library (`sched.py`)."""
    spec = _find(name)
    return spec is not None and not _lies_installed(name, spec)


def _module(name: str) -> _Module:
    """What a module is; read again only after it was imported or reloaded from another state of its file."""
    if _package(name) != PACKAGE:
        check_place(name, _find(name))
    if name not in _seen or imported_from(name) not in (None, _seen[name][0]):
        spec = _find(name)
        _seen[name] = None if spec is None else state_of(spec), _read(name, spec)
    return _seen[name][1]


def _read(name: str, spec: ModuleSpec | None) -> _Module:
    if spec is None:
        return _Module("absent")
    check_unedited(name, spec)
    if not spec.has_location or spec.origin is None:  # a namespace package, which has no code
        return _Module(None)
    loader: Any = spec.loader
    try:
        source = loader.get_source(spec.name)
        if source is None:
            return _Module(hashlib.sha256(loader.get_data(spec.origin)).hexdigest())
        syntax = syntax_of(source)
    except (SyntaxError, ValueError, OSError, ImportError, RecursionError) as error:
        raise OneshotError(f"{spec.origin}: cannot be read as Python ({' '.join(str(error).split())})") from error
    package = name if spec.submodule_search_locations is not None else name.rpartition(".")[0]
    imports = chain.from_iterable(_imported(each, package) for each in syntax.imports)
    return _Module(syntax.digest, tuple(dict.fromkeys(imports)))


def _imported(each: Import, package: str) -> Iterator[str]:
    """Every module that one import runs, with the packages around it, whose `__init__` runs first.

    Of what is imported from an installed package it may also name what is none: only who follows it has to find out.
    """
    source = _absolute(each, package)
    yield from _with_parents(source)
    if _is_installed(_package(source)):
        yield from (f"{source}.{name}" for name in each.names)
        return
    names = _modules_in(source) if "*" in each.names else each.names  # which of them is in a list that code may make
    inside = (f"{source}.{name}" for name in names)
    yield from (name for name in inside if not _left_out(name) and _find(name) is not None)


def _modules_in(package: str) -> list[str]:
    """The names of the modules right inside of a package."""
    spec = _find(package)
    folders = [] if spec is None else list(spec.submodule_search_locations or [])
    return [module.name for module in iter_modules(folders)]


def _absolute(each: Import, package: str) -> str:
    """The module that is imported or imported from, with the dots of a relative import spelled out."""
    if each.dots == 0:
        return each.module
    parents = package.split(".")[: len(package.split(".")) - each.dots + 1]
    return ".".join([*parents, *([each.module] if each.module else [])])


def _package(name: str) -> str:
    """The outermost package that a module lies in, or the module itself."""
    return name.partition(".")[0]


def _with_parents(name: str) -> list[str]:
    """`a`, `a.b` and `a.b.c` of `a.b.c`."""
    parts = name.split(".")
    return [".".join(parts[:count]) for count in range(1, len(parts) + 1)]


def _find(name: str) -> ModuleSpec | None:
    """Where a module lies, found as an import would but without running anything."""
    parent, _, _ = name.rpartition(".")
    if not parent:
        finders = (finder for finder in sys.meta_path if not isinstance(finder, Witness))
        specs = (finder.find_spec(name, None) for finder in finders)
        return next((spec for spec in specs if spec is not None), None) or _loaded(name)
    around = _find(parent)
    folders = [] if around is None else list(around.submodule_search_locations or [])
    return _inside(name, folders) or _loaded(name)


def _inside(name: str, folders: list[str]) -> ModuleSpec | None:
    """Of a package's folders the first that has the module; a folder without `__init__` only where no other does."""
    found = [spec for finder in map(get_importer, folders) if finder and (spec := finder.find_spec(name))]
    return next((spec for spec in found if spec.loader is not None), found[0] if found else None)


def _loaded(name: str) -> ModuleSpec | None:
    """Of a module that only this process knows: a script (`__main__`), or one imported from a file."""
    module = sys.modules.get(name)
    file = getattr(module, "__file__", None)
    return getattr(module, "__spec__", None) or (spec_from_file_location(name, file) if file else None)


@cache
def _is_installed(name: str) -> bool:
    spec = None if name == PACKAGE else _find(name)
    return spec is not None and _lies_installed(name, spec)


def _lies_installed(name: str, spec: ModuleSpec) -> bool:
    places = [spec.origin] if spec.has_location and spec.origin else list(spec.submodule_search_locations or [])
    return spec.origin in ("built-in", "frozen") or any(_is_of_a_library(name, Path(place)) for place in places)


def _is_of_a_library(name: str, path: Path) -> bool:
    if not INSTALLED.isdisjoint(path.parts) or any(path.is_relative_to(library) for library in _libraries()):
        return True
    return name in _put_into(path.parent) or name in _put_into(path.parent.parent)


@cache
def _put_into(folder: Path) -> set[str]:
    """What pip's records say that it put into a folder, which has any name with `--target`: modules and packages."""
    records = (record.read_text(errors="replace") for record in folder.glob("*.dist-info/RECORD"))
    lines = chain.from_iterable(text.splitlines() for text in records)
    return {line.partition(",")[0].partition("/")[0].partition(".")[0] for line in lines}


@cache
def _libraries() -> set[str]:
    return {sysconfig.get_path(kind) for kind in ("stdlib", "platstdlib", "purelib", "platlib")}


@cache
def _version(package: str) -> str:
    """The version of an installed package, which may be called otherwise than what is imported (`PIL`)."""
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        names = {each.metadata["Name"] for each in metadata.distributions() if _brings(each, package)}
        return " ".join(sorted(f"{name} {metadata.version(name)}" for name in names))


def _brings(distribution: metadata.Distribution, package: str) -> bool:
    """As `metadata.packages_distributions` finds it, which makes an object of every file of everything installed."""
    if declared := (distribution.read_text("top_level.txt") or "").split():
        return package in declared
    files = "\n" + (distribution.read_text("RECORD") or "")
    return any(f"\n{package}{end}" in files for end in "/.")
