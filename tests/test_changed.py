import subprocess
from pathlib import Path

import pytest

from oneshot_fl.errors import OneshotError
from tests.changed import changed, judges

FILES = {
    "tests/unit/test_a.py": "from oneshot_fl.a import f\n",
    "tests/unit/parts/test_b.py": "def test():\n    import oneshot_fl.parts.b\n",
    "tests/unit/parts/test_c.py": "from oneshot_fl import parts\nfrom oneshot_fl.parts import c\n",
    "tests/unit/test_e.py": "",
    "tests/contract/test_d.py": "from oneshot_fl.a import f\n",
}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for name, text in FILES.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


@pytest.mark.parametrize(
    ("files", "chosen"),
    [
        ({"src/oneshot_fl/a.py"}, ["tests/unit/test_a.py"]),
        ({"src/oneshot_fl/parts/b.py", "README.md"}, ["tests/unit/parts/test_b.py"]),
        ({"src/oneshot_fl/parts/c.py"}, ["tests/unit/parts/test_c.py"]),
        ({"src/oneshot_fl/parts/__init__.py"}, ["tests/unit/parts/test_c.py"]),
        ({"tests/unit/test_a.py", "tests/contract/test_d.py"}, ["tests/unit/test_a.py"]),
        ({"src/oneshot_fl/e.py", "src/oneshot_fl/a.py"}, ["tests/unit/test_a.py", "tests/unit/test_e.py"]),
        ({"conf/config.yaml"}, sorted(name for name in FILES if "unit" in name)),
        (set(), sorted(name for name in FILES if "unit" in name)),
        ({"tests/parts.py", "tests/unit/test_a.py"}, sorted(name for name in FILES if "unit" in name)),
    ],
)
def test_a_change_is_judged_by_the_tests_that_know_it(root, files, chosen):
    assert judges(files, root) == chosen


@pytest.fixture
def repository(tmp_path, monkeypatch) -> Path:
    """One commit, of nothing, and a file that git does not know yet."""
    monkeypatch.setattr("tests.changed.ROOT", tmp_path)
    for command in (
        ["init", "-q"],
        ["-c", "user.name=a", "-c", "user.email=b", "commit", "-q", "--allow-empty", "-m", "x"],
    ):
        subprocess.run(["git", *command], cwd=tmp_path, check=True)
    (tmp_path / "new.py").touch()
    return tmp_path


def test_what_git_has_and_does_not_have_yet_counts(repository):
    assert changed("HEAD") == {"new.py"}
    subprocess.run(["git", "add", "new.py"], cwd=repository, check=True)
    assert changed("HEAD") == {"new.py"}


@pytest.mark.parametrize("base", ["mian", "new.py"])
def test_a_base_that_is_no_commit_is_refused_even_where_it_is_a_file(base, repository):
    with pytest.raises(OneshotError, match=f"^BASE={base}: must be a commit") as refused:
        changed(base)
    assert "\n" not in str(refused.value)
