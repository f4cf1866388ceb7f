"""The rules of the design that a reader relies on: who imports what, and how long things get."""

import ast
import statistics
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "oneshot_fl"
FILES = sorted(SOURCE.rglob("*.py"))
ALLOWED = {
    "lightning": ("phases/",),
    "hydra": ("__main__.py", "config/"),
    "wandb": ("tracking/",),
}


def _imports(path: Path) -> set[str]:
    names = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            names |= {alias.name.split(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module.split(".")[0])
    return names


def _own_imports(path: Path) -> set[str]:
    return {
        node.module
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("oneshot_fl.")
    }


def test_the_glob_sees_the_sources():
    assert len(FILES) >= 30


@pytest.mark.parametrize("library", sorted(ALLOWED))
def test_only_their_own_place_knows_a_framework(library):
    users = {str(path.relative_to(SOURCE)) for path in FILES if library in _imports(path)}
    assert users, f"nobody imports {library}"
    assert [user for user in users if not user.startswith(ALLOWED[library])] == []


def test_parts_models_data_and_methods_do_not_know_the_phases():
    for folder in ("parts", "models", "data", "methods"):
        for path in (SOURCE / folder).glob("*.py"):
            upward = {
                name
                for name in _own_imports(path)
                if name.split(".")[1] in ("phases", "pipeline", "assemble", "config")
            }
            assert not upward, f"{path.name} imports {upward}"


def test_files_and_functions_stay_short():
    lengths = {path.name: len(path.read_text().splitlines()) for path in FILES}
    assert max(lengths.values()) <= 350, lengths
    functions = [
        node.end_lineno - node.lineno + 1
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
    ]
    assert statistics.median(functions) <= 12
    assert statistics.quantiles(functions, n=10)[-1] <= 32


def test_no_class_has_more_than_one_level_above_it_of_our_own():
    parents = {
        node.name: {base.id for base in node.bases if isinstance(base, ast.Name)}
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    for name, bases in parents.items():
        for base in bases & parents.keys():
            assert not parents[base] & parents.keys(), f"{name} -> {base} -> {parents[base]}"
