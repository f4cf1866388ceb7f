"""A slot filled otherwise, and what the method's file had set for its own choice there."""

import shlex

import pytest

from oneshot_fl.config import from_overrides
from oneshot_fl.config.checks import check, check_settings
from oneshot_fl.config.compose import reading_also
from oneshot_fl.errors import OneshotError
from tests.composing import compose_config


@pytest.mark.parametrize(
    ("swapped", "left"),
    [
        ("method=dense method/source=recitals", ["~method.source.reset", "~method.source.keep"]),
        ("method=f_adi method/source=proxy", ["~method.source.optimizer"]),
        ("method=fedmho method/source=generator", ["~method.source.samples"]),
    ],
)
def test_what_a_methods_file_sets_is_told_with_the_words_that_leave_it_out(swapped, left):
    with pytest.raises(OneshotError) as told:
        check(compose_config(*swapped.split()))
    line = str(told.value)
    assert line.startswith(f"{left[0][1:]}: is left over from the source that {swapped.split()[0]} has by itself")
    assert shlex.split(line.rpartition("; add ")[2]) == left


def test_with_those_words_it_runs():
    check(compose_config("method=dense", "method/source=recitals", "~method.source.reset", "~method.source.keep"))


@pytest.mark.parametrize("own", ["+method.source.shown=3 ~method.source.reset", "method.source.reset=false"])
def test_what_a_user_sets_is_no_key_as_ever(own):
    swapped = compose_config("method=dense", "method/source=recitals", "~method.source.keep", *own.split())
    with pytest.raises(OneshotError, match=r"^method\.source\.\w+: there is no such key"):
        check(swapped)


def test_a_file_of_ones_own_is_told_by_its_own_name_and_not_by_the_methods(tmp_path):
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text("defaults: [dense, _self_]\nname: called_otherwise\n")
    words = ("trainer=cpu", "method=mine", "method/source=recitals")
    with reading_also(tmp_path), pytest.raises(OneshotError, match=r"reset: is left over from .* method=mine has by"):
        from_overrides(*words)[0]()


def test_what_an_experiments_file_sets_of_its_own_choice_is_told_with_the_word_that_leaves_it_out():
    chosen = ("experiment=mnist_dirichlet", "proxy=holdout", "method=feddf")
    line = r"^proxy\.samples: there is no such key; .*; where a chosen file sets it, ~proxy\.samples leaves it out"
    with pytest.raises(OneshotError, match=line):
        check_settings(compose_config(*chosen))
    check_settings(compose_config(*chosen, "~proxy.samples"))
