"""What a dotted name calls, and what is said where it calls nothing."""

import pytest

from oneshot_fl.config.dotted import called_by
from oneshot_fl.errors import OneshotError

HOSPITAL = "class HospNet:\n    pass\n"


def _line(name: str) -> str:
    with pytest.raises(OneshotError) as error:
        called_by(name, f"--model {name}")
    return str(error.value)


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "net_of_a_hospital.py").write_text(HOSPITAL)
    monkeypatch.syspath_prepend(tmp_path)
    return tmp_path


def test_a_class_is_found_by_its_module(folder):
    assert called_by("net_of_a_hospital.HospNet", "k").__name__ == "HospNet"


def test_what_a_module_has_not_is_told_with_what_is_near(folder):
    name = "net_of_a_hospital.Hospnet"
    near = "net_of_a_hospital has no Hospnet, did you mean HospNet?"
    assert _line(name) == f"--model {name}: cannot be imported ({near})"


def test_of_a_package_its_modules_are_near_too_and_a_class_has_nothing_inside(folder):
    assert "(oneshot_fl.models has no clasifiers, did you mean classifiers?)" in _line("oneshot_fl.models.clasifiers.x")
    assert _line("net_of_a_hospital.HospNet.x").endswith("(net_of_a_hospital.HospNet has no x)")


@pytest.mark.parametrize(("there", "looked"), [(True, "and in"), (False, "but not in")])
def test_a_module_that_is_not_found_is_told_with_where_it_was_looked_for(there, looked, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.path", [str(tmp_path)] if there else [])
    missing = "cannot be imported (No module named 'nowhere')"
    where = f"modules are looked for among installed packages {looked} the current folder"
    assert _line("nowhere.build") == f"--model nowhere.build: {missing}; {where}"


def test_an_import_that_fails_inside_a_module_is_told_as_it_is(folder):
    (folder / "own_of_a_hospital.py").write_text("import nowhere_at_all\n")
    assert _line("own_of_a_hospital.x").endswith("cannot be imported (No module named 'nowhere_at_all')")
    package = folder / "pack_of_a_hospital"
    package.mkdir()
    (package / "__init__.py").write_text("")
    (package / "part.py").write_text("import nowhere_at_all\n")
    assert _line("pack_of_a_hospital.part.x").endswith("cannot be imported (No module named 'nowhere_at_all')")
