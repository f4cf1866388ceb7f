"""What Hydra would take and nobody means is refused before anything is composed."""

import pytest
from hydra._internal.utils import get_args_parser

from oneshot_fl.config.words import check_no_hydras, check_words, together, values_of
from oneshot_fl.errors import OneshotError


@pytest.mark.parametrize(
    ("word", "says"),
    [
        (
            "model=[cnn1,cnn2]",
            "takes one choice, not a list; for a sweep write -m model=cnn1,cnn2; for clients of several models "
            "model=mixed 'model.names=[cnn1,cnn2]'",
        ),
        ("attack=[label_flip, copycat]", "not a list; for a sweep write -m attack=label_flip,copycat"),
        ("experiment=[digits_weak,digits_dirichlet]", "-m experiment=digits_weak,digits_dirichlet"),
        ("method=[fedavg]", "method takes one choice, not a list; write method=fedavg"),
        ("method/ensemble=[uniform,entropy]", "method/ensemble takes one choice"),
        ("+method/ensemble@evaluate.ensembles.mine=[uniform,entropy]", "method/ensemble takes one choice"),
        ("data=[digits],mnist", "data takes one choice"),
    ],
)
def test_a_list_of_choices_of_which_the_last_would_win_is_refused(word, says):
    with pytest.raises(OneshotError) as caught:
        check_words(["seed=1", word])
    assert str(caught.value).startswith(f"{word}: ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("typed", "read"),
    [
        ("a=1 -m b=2 c=3,4", "a=1 b=2 c=3,4 -m"),
        ("a=1 -m b=2 --config-dir own ~c", "a=1 b=2 ~c -m --config-dir own"),
        ("-m a=1 -cd own=mine b=2 --cfg job a=3", "a=1 b=2 a=3 -m -cd own=mine --cfg job"),
        ("a=1 -m b=2 --info", "a=1 b=2 -m --info"),
        ("a=1 --config-name=other b=2", "a=1 b=2 --config-name=other"),
        ("a=1 --no-such b=2", "a=1 b=2 --no-such"),
    ],
)
def test_overrides_on_both_sides_of_an_option_are_brought_together(typed, read):
    assert together(typed.split()) == read.split()
    taken, left = get_args_parser().parse_known_args(read.split())
    assert " ".join(taken.overrides) == read.partition(" -")[0]
    assert left in ([], ["--no-such"])


@pytest.mark.parametrize("typed", ["", "a=1 b=2 -m", "-m a=1 b=2", "--config-dir own -m a=1", "a=1 --info"])
def test_a_command_that_hydra_takes_stays_as_it_is(typed):
    assert together(typed.split()) == typed.split()


def test_loggers_and_values_may_be_lists_and_what_is_no_override_is_left_to_others():
    check_words(
        ["logger=[csv,wandb]", "model.names=[cnn1,cnn2]", "model=a,b", "-m", "--config-dir=[a]", "x=[1,2", "~x"]
    )


@pytest.mark.parametrize(
    "word", ["hydra.run.dir=x", "hydra/launcher=joblib", "++hydra.mode=MULTIRUN", "~hydra.sweeper"]
)
def test_hydras_own_settings_are_refused_where_nobody_reads_them(word):
    with pytest.raises(OneshotError) as caught:
        check_no_hydras(["seed=1", word])
    assert str(caught.value).startswith(f"{word}: has no place here")
    assert "folder=DIR" in str(caught.value)


def test_where_choices_lie_is_read_everywhere():
    check_no_hydras(["hydra.searchpath=[file:///own]", "method=fedavg"])


@pytest.mark.parametrize(
    ("word", "read"),
    [
        ("seed=0", ("seed", [0])),
        ("seed=0,1", ("seed", [0, 1])),
        ("seed=range(1,4)", ("seed", [1, 2, 3])),
        ("partition=dirichlet 0.5", ("partition", ["dirichlet 0.5"])),
        ("model.names=[a,b]", ("model.names", [["a", "b"]])),
        ("seed", None),
        ("seed=[0,1", None),
        ("method=glob(*)", None),
        ("seed=interval(0,1)", None),
    ],
)
def test_a_words_values_are_those_that_a_sweep_would_run(word, read):
    assert values_of(word) == read
