"""One class has one name, however a disk or somebody's code spells it, and it is one that a model file can hold."""

import pytest

from oneshot_fl.data.class_names import flaw_of_names
from oneshot_fl.data.decode import Origin
from oneshot_fl.data.images import tree_by_class
from oneshot_fl.errors import OneshotError
from tests.unit.data.image_files import write_image


def test_folders_are_found_by_the_names_that_files_have(tmp_path):
    for name in ("dog ", "cafe\u0301"):
        write_image(tmp_path / name / "0.png", 0)
    assert set(tree_by_class(tmp_path)) == {"dog", "caf\u00e9"}


def test_two_folders_of_one_class_are_refused(tmp_path):
    for name in ("dog ", "dog"):
        write_image(tmp_path / name / "0.png", 0)
    with pytest.raises(OneshotError, match="two folders of the class dog"):
        tree_by_class(tmp_path)


@pytest.mark.parametrize("name", ["a\nb", "x" * 201, " "])
def test_a_folder_whose_name_no_model_file_can_hold_is_refused_if_it_has_images(name, tmp_path):
    (tmp_path / name).mkdir()
    assert not any(tree_by_class(tmp_path).values())
    write_image(tmp_path / name / "0.png", 0)
    with pytest.raises(
        OneshotError, match=r"^test=there: the class folder .* must have another name, a printable text"
    ):
        tree_by_class(tmp_path, Origin("test=there", "white"))


def test_names_that_model_files_can_hold():
    for names in (("0", "1"), ["$y$", "[/b]", 'c"d'], (" a", "b "), ("\u732b", "caf\u00e9", "e\u0301")):
        assert flaw_of_names(names) is None


@pytest.mark.parametrize(
    ("names", "says"),
    [
        (None, "class_names=None: must be a list of names"),
        ("abc", "class_names=abc: must be a list of names"),
        ((), "class_names: there are 0, but must be a list of 1 to 10000 different names"),
        (tuple(map(str, range(10_001))), "class_names: there are 10001, but"),
        ((0, 1), "class_names: 0 must be a printable text of at most 200 characters"),
        (("a", ""), "class_names: '' must be a printable text"),
        (("a", " "), "class_names: ' ' must be a printable text"),
        (("a\nb", "c"), r"class_names: 'a\nb' must be a printable text"),
        (("x" * 201, "c"), "class_names: 'xxx"),
        (("a", "b", "a"), "class_names: several classes are called 'a', but must have different names"),
        ((" a", "a"), "class_names: several classes are called 'a'"),
        (("e\u0301", "\u00e9"), r"class_names: several classes are called '\xe9'"),
    ],
)
def test_other_names_are_told_with_what_would_be_right(names, says):
    assert flaw_of_names(names).startswith(says)
