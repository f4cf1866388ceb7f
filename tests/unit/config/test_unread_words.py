import shlex

import pytest

from oneshot_fl.config.compose import composed, plain
from oneshot_fl.config.unread_words import unread_words


@pytest.mark.parametrize(
    ("overrides", "told"),
    [
        (["method=fedchorus", "distill.student_optimizer.lr=0.5"], ["method.student_optimizer"]),
        (["method=fedchorus", "distill.student_schedule=cosine", "seed=1"], ["method.student_schedule"]),
        (["method=fedmho", "distill.student_optimizer={lr: 0.5}"], ["method.student_optimizer"]),
        (["method=dense", "distill.student_optimizer.lr=0.5"], []),
        (["method=fedavg", "distill.student_optimizer.lr=0.5"], []),
        (["method=fedchorus", "method.student_optimizer.lr=0.5", "distill.batch_size=32"], []),
        # its own is the shared one
        (["protocol=co_boosting", "method=feddf", "data=mnist", "distill.student_optimizer.lr=0.5"], []),
    ],
)
def test_words_that_set_what_the_methods_student_has_of_its_own_are_told(overrides, told):
    lines = unread_words(plain(composed(*overrides)), overrides)
    assert [line.rpartition(", ")[2] for line in lines] == told
    assert all(line.startswith(f"{overrides[1]}: nothing reads it, as {overrides[0]} has its own") for line in lines)


@pytest.mark.parametrize(
    ("chosen", "word", "told"),
    [
        ("clients=all_cvae", "clients.epochs=3", True),
        ("clients=all_cvae", "clients.optimizer.lr=0.5", True),
        ("clients=all_cvae", "clients/optimizer=adam", True),
        ("clients.kinds={cvae: 1}", "clients.epochs=3", True),
        ("clients.kinds={classifier: 0, cvae: 1}", "clients.epochs=3", True),
        ("clients=all_cvae", "clients.cvae.epochs=3", False),
        ("clients=all_cvae", "clients.seed=3", False),
        ("clients=half_cvae", "clients.epochs=3", False),
        ("clients=default", "clients.epochs=3", False),
    ],
)
def test_words_of_classifiers_are_told_where_no_client_trains_one(chosen, word, told):
    lines = unread_words(plain(composed(chosen, "method=fedcvae_ens", word)), [chosen, word])
    assert lines == [f"{word}: nothing reads it, as all clients train conditional VAEs, by clients.cvae"] * told


@pytest.mark.parametrize(("name", "told"), [("lenet5", True), ("cnn2", False)])
def test_a_learning_rate_of_an_architecture_that_no_client_has_is_told(name, told):
    word = f"+clients.lr_of.{name}=0.1"
    lines = unread_words(plain(composed("model=cnn2", word)), [word])
    assert lines == [f"{word}: nothing reads it, as no client trains {name}"] * told


def test_shares_that_stand_beside_those_of_a_file_are_told_with_what_sets_them_alone():
    word = "clients.kinds={cvae: 1}"
    (line,) = unread_words(plain(composed("clients=half_cvae", word)), [word])
    assert line.startswith(f"{word}: stands beside what is chosen already, {{'classifier': 1, 'cvae': 1}}; ")
    alone = shlex.split(line.partition(" alone write ")[2])
    settings = plain(composed("clients=half_cvae", *alone))
    assert (settings["clients"]["kinds"], unread_words(settings, alone)) == ({"cvae": 1}, [])
    both = "clients.kinds={classifier: 1, cvae: 2}"
    assert unread_words(plain(composed("clients=half_cvae", both)), [both]) == []
