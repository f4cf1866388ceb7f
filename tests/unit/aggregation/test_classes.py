"""One class has one name, however a disk or a client spells it; names that are nearly the same are noted."""

import pytest

from oneshot_fl.aggregation.classes import note_of_look_alikes, note_of_unused, tree_by_class
from oneshot_fl.aggregation.federation import federation_of
from oneshot_fl.aggregation.found import found_in
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


def test_names_that_differ_only_in_case_spaces_or_unicode_form_are_noted_once():
    assert note_of_look_alikes(["cat", "dog", "d0g", "cats"]) == []
    (note,) = note_of_look_alikes(["Cat", "big dog", "cat", "bigdog", "\uff43at"])
    assert note.startswith("classes 'Cat' and 'cat' differ only in case, spaces or Unicode form (and 1 more such): ")


def test_classes_that_only_uploads_had_which_the_hearing_turned_away_are_noted(write, folder):
    write("one")
    write("two", classes="cde")
    federation = federation_of(found_in(folder))
    assert note_of_unused(federation, federation.uploads) == []
    (note,) = note_of_unused(federation, federation.uploads.without({"two.safetensors": "contradicts all others"}))
    assert note.startswith("class 'd' (and 1 more): only uploads that were turned away have it")
