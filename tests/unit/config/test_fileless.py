"""A class of a notebook's cell is refused by its key, before anything trains for it."""

import sys
from types import ModuleType

import pytest

from oneshot_fl.config import experiment_of
from oneshot_fl.config.fileless import check_files
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.classifiers import cnn2
from tests.composing import compose_config


@pytest.fixture
def cells(monkeypatch):
    """What Python knows of a notebook: a module of no file."""
    module = ModuleType("cells")
    module.Net = cnn2
    monkeypatch.setitem(sys.modules, "cells", module)


@pytest.mark.usefixtures("cells")
def test_a_class_of_a_notebook_is_told_by_its_key_with_what_to_do():
    line = r"^model\._target_=cells\.Net: is defined in a notebook or script .* into a \.py file"
    with pytest.raises(OneshotError, match=line):
        experiment_of(compose_config("method=fedavg", "model._target_=cells.Net"))


def test_a_part_of_the_script_itself_is_refused_where_workers_would_look_for_it(monkeypatch):
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", None)
    monkeypatch.setattr(sys.modules["__main__"], "__file__", __file__, raising=False)
    settings = {"model": {"_target_": "__main__.Net"}, "workers": 1}
    check_files(settings)
    with pytest.raises(OneshotError, match=r"^model\._target_=__main__\.Net: workers=2 are programs of their own"):
        check_files(settings | {"workers": 2})


@pytest.mark.usefixtures("cells")
def test_a_part_inside_another_has_its_own_key_and_what_changes_no_number_needs_no_file():
    check_files({"logger": {"mine": {"_target_": "cells.Net"}}, "model": {"_target_": "torch.nn.Linear"}})
    nested = {"method": {"objective": {"own": {"_target_": "cells.Net"}}}}
    with pytest.raises(OneshotError, match=r"^method\.objective\.own\._target_=cells\.Net: is defined in a notebook"):
        check_files(nested)
