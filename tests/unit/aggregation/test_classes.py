"""Names of classes that are nearly the same are noted, and those that nobody has."""

from oneshot_fl.aggregation.classes import note_of_look_alikes, note_of_unused
from oneshot_fl.aggregation.federation import federation_of
from oneshot_fl.aggregation.found import found_in


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
