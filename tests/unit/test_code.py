import importlib
import importlib.machinery
import os
import subprocess
import sys
import textwrap
from pathlib import Path
from types import ModuleType

import pytest

from oneshot_fl import code
from oneshot_fl.code import commit, digest, module_of
from oneshot_fl.errors import OneshotError


class Folder:
    """A user's folder on `sys.path`; every `digest` is that of a new process."""

    def __init__(self, path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.path, self.monkeypatch = path, monkeypatch
        monkeypatch.syspath_prepend(str(path))

    def write(self, **files: str) -> None:
        for name, source in files.items():
            file = self.path.joinpath(*name.split("/")).with_suffix(".py")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_text(textwrap.dedent(source))

    def digest(self, *modules: str) -> str:
        code._seen.clear()
        for asked in (code._is_installed, code._is_shadowed, code._put_into, code._version):
            asked.cache_clear()
        importlib.invalidate_caches()
        return digest(modules)

    def changes(self, *modules: str, **files: str) -> bool:
        """Whether the digest of `modules` is another one with `files` written."""
        before = self.digest(*modules)
        self.write(**files)
        return self.digest(*modules) != before


@pytest.fixture
def folder(tmp_path, monkeypatch):
    found = Folder(tmp_path, monkeypatch)
    yield found
    found.digest("json")


MODEL = '''
    """A model."""
    class Net:
        """Of the user's."""
        width: int = 3
        """How wide."""
        def forward(self, x):
            """Two times."""
            return 2 * x  # twice
'''


@pytest.mark.parametrize(
    ("old", "new", "counts"),
    [
        ("# twice", "# doubled", False),
        ("Of the user's", "Somebody else's", False),
        ('"""Two times."""\n', "\n", False),
        ("How wide.", "The width.", False),
        ("2 * x", "(2 *\n                    x)", False),
        ("2 * x", "3 * x", True),
        ("2 * x", "-2 * x", True),
        ("2 * x", "'two' * x", True),
        ("width: int = 3", "width: int = 4", True),
    ],
)
def test_only_what_runs_counts(folder, old, new, counts):
    assert old in MODEL
    folder.write(mine=MODEL)
    assert folder.changes("mine", mine=MODEL.replace(old, new)) is counts


@pytest.mark.parametrize(
    "imports",
    [
        "import away",
        "import json, away as far",
        "from away import number",
        "from away import *",
        "import importlib\nimportlib.import_module(name='away')",
        "from importlib import import_module as load\nload('away')",
        "def late():\n    import away",
        "try:\n    from away import number\nexcept ImportError:\n    number = 0",
        "import between",
    ],
)
def test_imports_are_followed_wherever_they_stand(folder, imports):
    folder.write(away="number = 1", between="import away", unrelated="number = 1", mine=imports)
    assert not folder.changes("mine", unrelated="number = 2")
    assert folder.changes("mine", away="number = 2")


@pytest.mark.parametrize(
    ("imports", "reached"),
    [
        ("from . import blocks", {"pack/__init__", "pack/sub/__init__", "pack/sub/blocks"}),
        ("from .blocks import number", {"pack/__init__", "pack/sub/__init__", "pack/sub/blocks"}),
        ("from .. import top", {"pack/__init__", "pack/sub/__init__", "pack/top"}),
        ("from ..top import number", {"pack/__init__", "pack/sub/__init__", "pack/top"}),
        ("from pack import top", {"pack/__init__", "pack/sub/__init__", "pack/top"}),
        ("from pack import zero", {"pack/__init__", "pack/sub/__init__"}),
        ("from pack import *", {"pack/__init__", "pack/sub/__init__", "pack/top"}),
        ("import pack.top", {"pack/__init__", "pack/sub/__init__", "pack/top"}),
    ],
)
def test_packages_count_with_their_init_and_names_may_be_modules_or_attributes(folder, imports, reached):
    files = {"pack/__init__": "zero = 0", "pack/sub/__init__": "zero = 0"}
    files |= {"pack/top": "number = 1", "pack/sub/blocks": "number = 1"}
    folder.write(**files, **{"pack/sub/mine": imports})
    for name in files:
        assert folder.changes("pack.sub.mine", **{name: "zero = 5"}) is (name in reached), name
        folder.write(**{name: files[name]})


def test_folders_without_an_init_are_followed_too(folder):
    folder.write(**{"pack/sub/blocks": "number = 1"}, mine="from pack.sub import blocks")
    assert folder.changes("mine", **{"pack/sub/blocks": "number = 2"})


def test_a_circle_of_imports_ends(folder):
    folder.write(one="import other", other="import one")
    assert folder.digest("one") == folder.digest("other")
    assert folder.changes("one", other="import one\nnumber = 2")


def test_a_module_without_source_counts_with_its_bytes(folder):
    suffix = importlib.machinery.EXTENSION_SUFFIXES[0]
    folder.write(mine="import fast")
    (folder.path / f"fast{suffix}").write_bytes(b"machine code")
    before = folder.digest("mine")
    (folder.path / f"fast{suffix}").write_bytes(b"machine c0de")
    assert folder.digest("mine") != before


def test_what_is_imported_but_absent_counts_once_it_is_there(folder):
    folder.write(mine="try:\n    import faster\nexcept ImportError:\n    faster = None")
    assert folder.changes("mine", faster="number = 1")


def test_of_an_installed_package_only_the_version_counts(folder, monkeypatch):
    folder.write(mine="import torch.nn.functional as F\nfrom sklearn import cluster\nimport rich, os.path")
    before = folder.digest("mine")
    assert code._contents(["mine"], versions=True).keys() == {"mine", "torch", "sklearn"}
    sources = digest(["mine"], versions=False)
    assert set(code._seen) == {"mine"}
    real = code.metadata.version
    monkeypatch.setattr(code.metadata, "version", lambda name: "0" if name == "scikit-learn" else real(name))
    assert folder.digest("mine") != before
    assert digest(["mine"], versions=False) == sources


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """A folder of packages that are installed."""
    place = tmp_path / "site-packages"
    place.mkdir()
    return Folder(place, monkeypatch)


def test_a_package_that_is_given_counts_by_its_source_although_it_is_installed(installed):
    files = {"pack/__init__": "from .model import build", "pack/model": "from other.blocks import number\nimport late"}
    installed.write(**files, **{"pack/unused": "", "other/__init__": "", "other/blocks": "number = 1", "late": ""})
    for name, source in {"pack/__init__": "x = 1", "pack/model": "def build(): ..."}.items():
        assert installed.changes("pack.model", **{name: source}), name
        installed.write(**{name: files[name]})
    assert not installed.changes(
        "pack.model", **{"pack/unused": "x = 1", "other/blocks": "number = 2", "late": "x = 1"}
    )
    assert installed.changes("pack.model", "other.blocks", **{"other/blocks": "number = 3"})


def test_what_pip_has_put_into_a_folder_of_any_name_is_installed_and_what_lies_beside_it_is_not(tmp_path, monkeypatch):
    place = tmp_path / "target"
    place.mkdir()
    folder = Folder(place, monkeypatch)
    folder.write(**{"pack/__init__": "number = 1"}, one="number = 1", own="number = 1", mine="import pack, one, own")
    info = place / "pack-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Name: pack\nVersion: 1\n")
    (info / "RECORD").write_text("one.py,sha256=x,10\npack/__init__.py,sha256=x,10\npack-1.dist-info/RECORD,,\n")
    assert not folder.changes("mine", **{"pack/__init__": "number = 2", "one": "number = 2"})
    assert folder.changes("mine", own="number = 2")


def test_what_is_given_beside_a_package_does_not_change_how_it_counts(installed):
    installed.write(**{"pack/__init__": "import other", "other/__init__": "number = 1"})
    alone = installed.digest("pack")
    assert installed.digest("pack", "other") != alone
    assert digest(["pack"]) == alone  # in the same process


def test_a_framework_counts_by_its_version_also_where_it_is_given(folder):
    assert folder.digest("torch.optim", "lightning.pytorch.loggers", "torchvision.models")
    assert not code._seen


def test_who_brings_a_package_is_who_the_library_finds():
    known = code.metadata.packages_distributions()
    assert {"PIL", "sklearn", "yaml"} <= known.keys()
    for package in ("PIL", "sklearn", "yaml", "torch", "typing_extensions"):  # folders, and one file
        found = [each.metadata["Name"] for each in code.metadata.distributions() if code._brings(each, package)]
        assert sorted(set(found)) == sorted(set(known[package])), package


def test_nothing_of_the_user_runs(folder):
    folder.write(**dict.fromkeys(["pack/__init__", "pack/inner"], "raise SystemExit"), mine="from pack import inner")
    assert folder.digest("mine")
    assert "pack" not in sys.modules


def test_a_running_process_keeps_what_it_read_until_it_reloads(folder):
    folder.write(mine_too="number = 1")
    mine = importlib.import_module("mine_too")
    before = folder.digest("mine_too")
    folder.write(mine_too="number = 20")
    assert digest(["mine_too"]) == before
    importlib.reload(mine)
    assert digest(["mine_too"]) != before
    del sys.modules["mine_too"]


def test_what_is_edited_before_its_first_import_counts_once_it_is_imported_and_after_every_reload(folder):
    folder.write(mine_later="number = 1")
    before = folder.digest("mine_later")
    folder.write(mine_later="number = 20")
    assert digest(["mine_later"]) == before
    mine = importlib.import_module("mine_later")
    after = digest(["mine_later"])
    folder.write(mine_later="number = 300")
    assert digest(["mine_later"]) == after != before
    importlib.reload(mine)
    assert digest(["mine_later"]) not in (before, after)
    del sys.modules["mine_later"]


def test_what_is_edited_between_its_import_and_the_first_look_is_refused(folder):
    folder.write(mine_early="number = 1", blank="import mine_early")
    mine = importlib.import_module("mine_early")
    folder.write(mine_early="number = 20")
    with pytest.raises(OneshotError, match=r"mine_early\.py: was changed since mine_early was imported"):
        folder.digest("blank")
    importlib.reload(mine)
    assert folder.digest("blank")
    del sys.modules["mine_early"]


def test_a_module_that_holds_what_another_was_before_its_reload_is_refused(folder):
    folder.write(mine_old="number = 1", mine_holder="from mine_old import number")
    holder, old = map(importlib.import_module, ("mine_holder", "mine_old"))
    assert digest(["mine_holder"])
    folder.write(mine_old="number = 20")
    importlib.reload(old)
    with pytest.raises(OneshotError, match="mine_holder: was imported before mine_old was reloaded, and may hold what"):
        digest(["mine_holder"])
    assert digest(["mine_old"])
    assert importlib.reload(holder).number == 20
    assert digest(["mine_holder"])
    for name in ("mine_holder", "mine_old"):
        del sys.modules[name]


def test_a_file_that_takes_the_place_of_a_standard_module_counts(folder, monkeypatch):
    monkeypatch.delitem(sys.modules, "sched", raising=False)
    folder.write(sched="number = 1", mine="import sched, json")
    assert folder.changes("mine", sched="number = 2")


def test_ours_are_followed_but_for_what_cannot_change_a_number(folder):
    folder.digest("oneshot_fl.phases.distill")
    assert {"oneshot_fl.phases.distill", "oneshot_fl.parts.pools", "oneshot_fl.seeds"} <= set(code._seen)
    assert not {name for name in code._seen if name.startswith(("oneshot_fl.tracking", "oneshot_fl.errors"))}
    assert "oneshot_fl" not in code._seen  # the public face imports everything
    assert "oneshot_fl.methods.dense" not in code._seen
    assert folder.digest("oneshot_fl.parts.pools") != folder.digest("oneshot_fl.parts.terms")


def test_code_that_this_process_has_from_another_folder_has_no_digest_there(folder, tmp_path, monkeypatch):
    folder.write(**{"mine_of_two": "number = 1", "other/mine_of_two": "number = 2"})
    folder.digest("mine_of_two")
    importlib.import_module("mine_of_two")
    monkeypatch.syspath_prepend(str(tmp_path / "other"))  # as where a notebook goes on in another project
    try:
        with pytest.raises(OneshotError, match=r"other/mine_of_two\.py: is not the code that runs"):
            digest(["mine_of_two"])
    finally:
        del sys.modules["mine_of_two"]
    assert digest(["mine_of_two"])


def test_a_script_is_read_from_its_file(tmp_path):
    script = tmp_path / "script.py"
    script.write_text("from oneshot_fl.code import digest\nprint(digest(['__main__']))\nnumber = 1\n")
    run = [sys.executable, str(script)]
    first = subprocess.check_output(run)
    script.write_text(script.read_text().replace("= 1", "= 2"))
    assert subprocess.check_output(run) != first


def test_what_is_nested_too_deep_is_one_line(folder):
    folder.write(mine="+".join("1" * 20_000))
    with pytest.raises(OneshotError, match=r"mine\.py: cannot be read as Python"):
        folder.digest("mine")


def test_mistakes_are_one_line(folder):
    folder.write(broken="def f(:", blank="import broken")
    for modules, says in ((["nowhere.at_all"], "nowhere.at_all: there is no such module"), (["blank"], "broken.py")):
        with pytest.raises(OneshotError, match=says) as raised:
            folder.digest(*modules)
        assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("target", "module"),
    [
        ("oneshot_fl.parts.pools.Pool", "oneshot_fl.parts.pools"),
        ("oneshot_fl.parts.pools.Pool.restore", "oneshot_fl.parts.pools"),
        ("torch.optim.Adam", "torch.optim"),
        ("pack.inner.Net", "pack.inner"),
        ("pack.Net", "pack"),
    ],
)
def test_the_module_of_a_target(folder, target, module):
    folder.write(**{"pack/__init__": "from .inner import Net", "pack/inner": "class Net: ..."})
    assert module_of(target) == module


def test_a_target_of_no_module_is_named():
    with pytest.raises(OneshotError, match=r"_target_=nowhere\.Net: there is no such module"):
        module_of("nowhere.Net")


def test_code_of_no_file_is_told_apart_from_a_module_that_is_not_there(monkeypatch):
    monkeypatch.setitem(sys.modules, "cells", ModuleType("cells"))
    for ask, name in ((lambda: module_of("cells.Net"), "_target_=cells.Net"), (lambda: digest(["cells"]), "cells")):
        with pytest.raises(OneshotError, match=rf"^{name}: is defined in a notebook or script .*into a \.py file"):
            ask()


def _git(folder: Path, *arguments: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("GIT_")}
    return subprocess.check_output(["git", "-C", str(folder), *who, *arguments], env=environment, text=True).strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository that this package seems to lie in; the second commit is the one that adds it."""
    (tmp_path / "code.py").write_text("1")
    (tmp_path / "other.py").write_text("1")
    _git(tmp_path, "init", "-q")
    _git(tmp_path, "add", "other.py")
    _git(tmp_path, "commit", "-qm", "first")
    monkeypatch.setattr(code, "__file__", str(tmp_path / "code.py"))
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))  # as in a hook
    commit.cache_clear()
    yield tmp_path
    commit.cache_clear()


def test_the_commit_is_that_of_the_packages_own_checkout(checkout):
    assert commit() is None  # as when it is installed below somebody else's checkout
    _git(checkout, "add", "code.py")
    _git(checkout, "commit", "-qm", "second")
    commit.cache_clear()
    assert commit() == _git(checkout, "rev-parse", "HEAD")
    (checkout / "notes.txt").write_text("untracked")
    commit.cache_clear()
    assert commit() == _git(checkout, "rev-parse", "HEAD")
    (checkout / "other.py").write_text("2")
    commit.cache_clear()
    assert commit() == _git(checkout, "rev-parse", "HEAD") + "+changes"


def test_without_git_there_is_no_commit(checkout, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert commit() is None
