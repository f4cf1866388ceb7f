"""Classes of all uploads together fit into one model file, and who names very many keeps nobody else out."""

from oneshot_fl.aggregation.room import MOST_LETTERS, crowding


def _names(count, *, prefix="", length=6):
    return tuple(f"{prefix}{number:0{length}}" for number in range(count))


def test_classes_that_fit_crowd_nobody_out():
    assert crowding({"one": _names(10_000), "two": _names(10_000), "three": _names(3)}) == {}


def test_whoever_names_most_has_no_place_wherever_it_comes():
    honest = {"a": _names(300), "c": _names(300, prefix="c")}
    for many in ({"b": _names(9_999, prefix="b")}, {"b": _names(4_800, prefix="b", length=182)}):
        assert list(crowding({**many, **honest})) == list(crowding({**honest, **many})) == ["b"]


def test_how_many_there_would_be_is_told():
    (reason,) = crowding({"one": _names(1), "two": _names(10_000, prefix="b")}).values()
    assert reason.startswith("names 10,000 classes: with those of uploads that name less there would be 10,001 of ")
    assert reason.endswith(f" and a model has 10,000 of {MOST_LETTERS:,} at most")


def test_names_that_somebody_else_names_too_take_no_more_place():
    shared = _names(6_000)
    assert crowding({"one": shared, "two": shared, "three": _names(6_001)}) == {}


def test_letters_are_counted_as_they_are_written():
    """A letter beyond ASCII takes six."""
    assert crowding({"one": tuple(f"{number}\u75c5" * 40 for number in range(1_000))}) == {}
    assert list(crowding({"one": tuple(f"{number:04}" + "\u75c5" * 196 for number in range(1_000))})) == ["one"]
