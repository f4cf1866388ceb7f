"""The names of a sweep's folders."""

import pytest

from oneshot_fl.config.sweep import folder_name


def test_a_folder_is_named_by_what_was_chosen():
    assert folder_name("method=dense,seed=1") == "method=dense,seed=1"
    assert folder_name("model.names=[cnn2,lenet5],x='a/b c'") == "model.names=_cnn2,lenet5_,x=_a_b_c_"


@pytest.mark.parametrize("letter", ["a", "é", "数", "𝒜"])
def test_long_choices_are_cut_to_what_a_file_system_takes_and_told_apart(letter):
    long = [folder_name("x" + letter * 300 + end) for end in "bc"]
    assert 150 < max(len(name.encode()) for name in long) <= 160
    assert long[0] != long[1]
