import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.tables.measures import METRICS, measure_of

SUMMARY = {
    "server": {"accuracy_last": 0.1, "accuracy_best": 0.2, "balanced_accuracy": 0.3, "macro_auroc": None, "ece": 0.4},
    "ensemble": {"rows": {"a": 0.5}, "balanced": {"a": 0.6}},
    "clients": [{"accuracy": 0.7, "balanced_accuracy": 0.8}, {"accuracy": None, "balanced_accuracy": None}],
}
OLD = {"server": {"accuracy_last": 0.1}, "ensemble": {"rows": {"a": 0.5}}, "clients": [{"accuracy": 0.7}]}


@pytest.mark.parametrize(
    ("metric", "which", "told"),
    [
        ("accuracy", "last", (0.1, {"a": 0.5}, [0.7])),
        ("accuracy", "best", (0.2, {"a": 0.5}, [0.7])),
        ("balanced_accuracy", "last", (0.3, {"a": 0.6}, [0.8])),
        ("macro_auroc", "last", (None, {}, [])),
        ("ece", "last", (0.4, {}, [])),
    ],
)
def test_a_measure_is_found_in_a_summary(metric, which, told):
    measure = measure_of(metric, which=which)
    assert (measure.server(SUMMARY), measure.ensembles(SUMMARY), measure.clients(SUMMARY)) == told


def test_summaries_of_earlier_versions_tell_accuracy_only():
    for metric in set(METRICS) - {"accuracy"}:
        measure = measure_of(metric, which="last")
        assert (measure.server(OLD), measure.ensembles(OLD), measure.clients(OLD)) == (None, {}, [])


def test_what_is_taken_once_has_no_best_round():
    with pytest.raises(OneshotError, match="--metric ece: is taken after the last round only"):
        measure_of("ece", which="best")


def test_there_are_no_other_figures_and_one_of_them_is_best_where_it_is_low():
    with pytest.raises(OneshotError, match="--metric f1: there is no such figure; choose from accuracy, "):
        measure_of("f1", which="last")
    assert [name for name in METRICS if measure_of(name, which="last").lower_is_better] == ["ece"]
