"""The rules of the design that a reader relies on: who imports what, and how long things get."""

import ast
import statistics
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[1] / "src" / "oneshot_fl"
FILES = sorted(SOURCE.rglob("*.py"))
HYDRAS_JOBS = ("launchers/hydra_side.py", "launchers/task.py")
"""How Hydra hands the jobs of a sweep over, and what it calls with each; the engines themselves know none of it."""
# phases: Lightning's training; tracking: its loggers.
ALLOWED = {
    "lightning": ("phases/", "tracking/"),
    "hydra": ("__main__.py", "config/", *HYDRAS_JOBS),
    "omegaconf": ("__main__.py", "config/", *HYDRAS_JOBS),
    "wandb": ("tracking/",),
    "wandb_workspaces": ("tracking/",),
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
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "oneshot_fl"
    }


def test_the_glob_sees_the_sources():
    assert len(FILES) >= 30


@pytest.mark.parametrize("library", sorted(ALLOWED))
def test_only_their_own_place_knows_a_framework(library):
    users = {str(path.relative_to(SOURCE)) for path in FILES if library in _imports(path)}
    assert users, f"nobody imports {library}"
    assert [user for user in users if not user.startswith(ALLOWED[library])] == []


FLOORS = (
    ("cli",),
    ("__main__",),
    ("launchers",),
    ("__init__",),
    ("job", "aggregation"),
    ("pipeline", "serving"),
    ("session", "panels"),
    ("reporting", "sweeps"),
    ("config",),
    ("experiment",),
    ("phases",),
    ("methods",),
    ("parts",),
    ("models",),
    ("data",),
    ("inventory",),
    ("store", "recipe", "tracking"),
    ("artifacts", "code", "fits", "locks", "runs"),
    ("syntax", "imported"),
    ("disk", "ledger", "mistakes"),
    ("devices",),
    ("ambient", "process", "seeds", "errors", "values", "version", "energy", "spreadsheets"),
)
"""Packages and modules from the top; what is on one floor does not know each other."""


def _room(module: str) -> str:
    """The package below ours, or the module right in it, that `oneshot_fl.x.y` lies in."""
    return module.split(".")[1] if "." in module else "__init__"


def _rooms() -> dict[str, set[str]]:
    """Which rooms each room imports."""
    known: dict[str, set[str]] = {}
    for path in FILES:
        inside = path.relative_to(SOURCE)
        room = inside.parts[0] if len(inside.parts) > 1 else inside.stem
        known.setdefault(room, set()).update(map(_room, _own_imports(path)))
    return {room: others - {room} for room, others in known.items()}


def test_every_room_has_its_floor_and_imports_go_down_only():
    level = {room: number for number, rooms in enumerate(FLOORS) for room in rooms}
    rooms = _rooms()
    assert set(rooms) == set(level)
    upward = {(room, other) for room, others in rooms.items() for other in others if level[other] <= level[room]}
    assert not upward


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
