"""The unit tests that a change is judged by first: `make check` runs them, CI runs everything.

A test file is chosen where it has changed itself, or where a module has changed that it mirrors or imports. What else
a change may reach (through other modules, or through the configuration) is CI's to find.
"""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

from oneshot_fl.errors import OneshotError
from oneshot_fl.mistakes import mistakes_told

ROOT = Path(__file__).parents[1]
SHARED = ("tests/conftest.py", "tests/parts.py", "tests/composing.py", "pyproject.toml")
"""Where one of these has changed, no unit test is left out."""


def changed(base: str) -> set[str]:
    """Files that differ from a commit, or that git does not know yet, relative to the repository.

    Raises:
        OneshotError: git knows no such commit.
    """
    commands = (["diff", "--name-only", base, "--"], ["ls-files", "--others", "--exclude-standard"])
    told = [subprocess.run(["git", *each], cwd=ROOT, check=False, capture_output=True, text=True) for each in commands]
    if any(each.returncode for each in told):
        said = next(line for each in told for line in each.stderr.splitlines())
        raise OneshotError(f"BASE={base}: must be a commit, a branch or a tag of this repository (git: {said})")
    return {line for each in told for line in each.stdout.splitlines()}


def judges(files: set[str], root: Path = ROOT) -> list[str]:
    """The unit tests of changed files; all of them where nothing tells them apart."""
    tests = sorted(path.relative_to(root).as_posix() for path in (root / "tests/unit").rglob("test_*.py"))
    chosen = [test for test in tests if {test, _mirrored(test), *_read(root / test)} & files]
    return chosen if chosen and not files & set(SHARED) else tests


def _mirrored(test: str) -> str:
    return test.replace("tests/unit/", "src/oneshot_fl/").replace("/test_", "/")


def _read(test: Path) -> set[str]:
    """The files of the modules that a test imports, relative to the repository; a package counts with its own file."""
    parts = [name.split(".") for name in _imported(ast.parse(test.read_text())) if name.split(".")[0] == "oneshot_fl"]
    return {f"src/{'/'.join(each)}{end}" for each in parts for end in (".py", "/__init__.py")}


def _imported(tree: ast.Module) -> Iterator[str]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


if __name__ == "__main__":
    with mistakes_told():
        print(*judges(changed(sys.argv[1] if sys.argv[1:] else "HEAD")))
