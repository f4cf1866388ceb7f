import pytest

from oneshot_fl.reporting.tables.differences import (
    aligned,
    at,
    below,
    canonical,
    differing,
    flat,
    listed,
    needs,
    same,
    told,
    without,
)


def test_flat_and_nested_are_the_same_settings():
    nested = {"a": {"b": 1, "c": {"d": [1, 2]}}, "e": {}, "f": None}
    assert flat(nested) == {"a.b": 1, "a.c.d": [1, 2], "e": {}, "f": None}
    assert all(at(nested, key) == value for key, value in flat(nested).items())
    assert at(nested, "a.b.x", "none") == "none"


def test_a_group_beside_a_value_is_one_key():
    assert aligned(flat({"a": {"b": 1, "c": 2}, "d": 1}), flat({"a": [1], "e": 2})) == ["a", "d", "e"]


@pytest.mark.parametrize(
    ("first", "second", "alike"),
    [
        (0.1 + 0.2, 0.3, True),
        (1.0, 1, True),
        (1, 1.0000000001, True),
        (1.0000000001, 1, True),
        (1234567891.0, 1234567891, True),
        (1, True, False),
        (None, {}, True),
        ([0.5], [0.5], True),
        (0.3, 0.31, False),
        (1.0000001, 1.0, False),
        (1, None, False),
    ],
)
def test_values_are_the_same_setting(first, second, alike):
    assert same(first, second) is alike
    assert (canonical({"a": [1], "b": first}) == canonical({"a": [1.0], "b": second})) is alike


@pytest.mark.parametrize(
    ("key", "left"),
    [("a.b", {"a": {"c": 2}, "d": None}), ("d", {"a": {"b": 1, "c": 2}}), ("d.e", {"a": {"b": 1, "c": 2}, "d": None})],
)
def test_settings_without_a_key_keep_all_others_and_themselves(key, left):
    settings = {"a": {"b": 1, "c": 2}, "d": None}
    assert without(settings, key) == left
    assert settings == {"a": {"b": 1, "c": 2}, "d": None}


def test_a_key_lies_below_its_group_and_itself_only():
    assert below("a.b", ["a"])
    assert below("a.b", ["a.b"])
    assert not below("ab", ["a"])


def test_only_what_differs_is_said():
    several = [{"data": {"size": 28, "mean": 0.5}}, {"data": {"size": 30, "mean": 0.5}}, {"data": {"mean": 0.5}}]
    assert [listed(each) for each in differing(several)] == ["data.size=28", "data.size=30", "data.size=null"]
    assert told("init._target_", "oneshot_fl.parts.inits.Fresh") == "init=Fresh"
    assert told("init._target_", None) == "init=null"


def test_needs_are_those_of_all_parts_and_what_is_said_where_a_part_is_not_here():
    proxy = {"_target_": "oneshot_fl.parts.sources.ProxySource"}
    assert needs(proxy) == needs({"mine": {**proxy, "batch": 1}, "none": None}) == {"proxy"}
    theirs = {"_target_": "somebody.elses.Part"}
    assert needs(theirs) == needs(None) == frozenset()
    assert needs({"mine": proxy, "theirs": theirs}, unknown=frozenset({"guidance"})) == {"proxy", "guidance"}
