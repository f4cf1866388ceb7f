"""The charts' specifications: what the script fills in is filled in, and no chart relies on colour alone."""

import json
import re
from importlib.resources import files

import pytest

ASSETS = files("oneshot_fl.reporting.page") / "assets"
CHARTS = sorted(path.name for path in (ASSETS / "charts").iterdir())
SCRIPTS = "".join((ASSETS / name).read_text() for name in ("charts.js", "run.js", "page.js"))


def _holes(node):
    if isinstance(node, dict):
        yield from [node["$"]] if "$" in node else [hole for value in node.values() for hole in _holes(value)]
    elif isinstance(node, list):
        yield from [hole for value in node for hole in _holes(value)]


def test_the_glob_sees_the_charts():
    assert len(CHARTS) >= 7


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_has_its_rows_and_whatever_it_leaves_open_is_given(name):
    spec = json.loads((ASSETS / "charts" / name).read_text())
    assert spec["data"] == {"name": "rows"}
    missing = [hole for hole in set(_holes(spec)) if not re.search(rf"\b{hole}\b\s*[:,]|[{{,] {hole}\b", SCRIPTS)]
    assert missing == []


@pytest.mark.parametrize("name", CHARTS)
def test_a_chart_is_drawn_by_the_script(name):
    assert f'"{name.removesuffix(".json")}"' in SCRIPTS


@pytest.mark.parametrize(("name", "other"), [("curves.json", "strokeDash"), ("costs.json", "shape")])
def test_methods_differ_in_more_than_colour(name, other):
    assert f'"{other}": {{"field": "method"' in (ASSETS / "charts" / name).read_text()


def test_nothing_is_built_as_html_by_the_script():
    assert not re.search(r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|eval\(", SCRIPTS)
