from pathlib import Path

import pytest

from oneshot_fl.aggregation.typed import argument, class_names, folder_of_test, numbers
from oneshot_fl.errors import OneshotError


def test_numbers_are_whole_where_they_are_typed_so():
    assert numbers("--counts", "1,0.5,2e1") == [1, 0.5, 20.0]
    assert isinstance(numbers("--counts", "1")[0], int)


@pytest.mark.parametrize("text", ["", "a", "1,,2", "1;2"])
def test_what_is_no_number_is_named(text):
    with pytest.raises(OneshotError, match=f"--counts={text}: must be numbers with commas"):
        numbers("--counts", text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *[("1", 1), ("[1, 2.5]", [1, 2.5]), ("wide", "wide"), ("a=b", "a=b"), ("", "")],
        *[("true", True), ("True", True), ("false", False), ("False", False), ("null", None), ("None", None)],
    ],
)
def test_an_argument_is_json_or_one_of_pythons_or_text(text, value):
    assert argument(f"width={text}") == ("width", value)


@pytest.mark.parametrize("text", ["width", "=1", "a-b=1"])
def test_an_argument_has_a_name(text):
    with pytest.raises(OneshotError, match=f"--arg {text}: must be KEY=VALUE"):
        argument(text)


@pytest.mark.parametrize("text", ["NaN", "-Infinity", "1e999", "[1, NaN]"])
def test_no_number_is_infinite_or_none(text):
    with pytest.raises(OneshotError, match="is no finite number"):
        argument(f"width={text}")


def test_numbers_are_read_as_python_has_them():
    assert numbers("--mean", ".485,1., -2") == [0.485, 1.0, -2]
    with pytest.raises(OneshotError, match="--mean=nan: nan is no finite number"):
        numbers("--mean", "nan")


def test_a_class_with_a_comma_stands_in_quotes():
    assert class_names("--classes", 'a, "naevus, benign",c') == ["a", "naevus, benign", "c"]
    with pytest.raises(OneshotError, match="--classes: must be names with commas between them, in one line"):
        class_names("--classes", "a\nb,c")


def test_one_folder_of_test_images():
    assert folder_of_test(None, ["seed=1"]) is None
    assert folder_of_test(None, ["test=a", "test=b"]) == Path("b")
    assert folder_of_test(Path("a"), ["test=a", "seed=1"]) == folder_of_test(None, ["test=a"]) == Path("a")
    with pytest.raises(OneshotError, match="--test a: test=b is another folder"):
        folder_of_test(Path("a"), ["test=b"])
    with pytest.raises(OneshotError, match="test=: names no folder"):
        folder_of_test(None, ["test="])
