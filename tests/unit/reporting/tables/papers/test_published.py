import pytest

from oneshot_fl.reporting.tables.papers.published import compares_models, measured, of_study, published


def _cell(study="fedhydra/table1", **wanted):
    (cell,) = [cell for cell in of_study(study) if all(getattr(cell, name) == value for name, value in wanted.items())]
    return cell


MNIST = {"data": "mnist", "partition_value": "0.1", "method": "fedhydra"}


def test_every_printed_accuracy_of_the_three_papers_is_there():
    # counted in the tables: FedHydra T1-T18 594, Co-Boosting T1-T19 without T8 453, FedMHO T4-T11 305, 7 of them FIDs,
    # and T2's 16 MFLOPs
    count = {paper: sum(cell.paper == paper for cell in published()) for paper in ("fedhydra", "co_boosting", "fedmho")}
    assert count == {"fedhydra": 594, "co_boosting": 453, "fedmho": 305 - 7 + 16}
    assert (_cell(**MNIST).value, _cell(**MNIST).model) == (59.97, "cnn2")
    assert _cell("fedhydra/table2", data="fashion_mnist", method="fedavg").doubtful


def test_an_accuracy_of_the_last_or_the_best_round(make_run):
    assert measured(_cell(**MNIST), make_run(0.6), which="last") == 0.6
    assert measured(_cell(**MNIST), make_run(0.6), which="best") == pytest.approx(0.7)
    assert measured(_cell(**MNIST), make_run(None), which="last") is None


def test_rounds_clients_and_ensembles_are_read_where_they_stand(make_run):
    third = _cell("fedhydra/table8", rounds="3", method="fedhydra")
    assert measured(third, make_run(0.5, data="svhn"), which="last") == pytest.approx(0.52)
    fourth = _cell("fedhydra/table3", method="client_m4", partition_value="0.1")
    assert measured(fourth, make_run(), which="last") == 0.4
    ensemble = _cell("co_boosting/table4", method="dw_fedens", partition_value="0.4")
    assert measured(ensemble, make_run(rows={"size_weighted": 0.7}), which="last") == 0.7


def test_a_client_is_found_by_its_number_where_others_are_not_used(make_run):
    run = make_run(data="svhn")
    run.summary["communication"][0]["clients"] = [0.1, 0.3, 0.4, 0.5]
    run.summary["clients"] = [{"accuracy": accuracy} for accuracy in (0.1, None, 0.3, 0.4, 0.5)]
    cells = [_cell("fedhydra/table3", method=f"client_m{n}", partition_value="0.1") for n in (2, 3)]
    assert [measured(cell, run, which="last") for cell in cells] == [None, 0.3]


def _of_each_client(run):
    """What the rows of FedHydra's single clients show of the first of the communication rounds."""
    cells = [_cell("fedhydra/table3", method=f"client_m{n}", partition_value="0.1") for n in range(1, 6)]
    return [measured(cell, run, which="last") for cell in cells]


def _turned_away_at_last(make_run):
    """The first exchange used all but client 3, the last one all but client 1."""
    run = make_run(data="svhn")
    run.summary["communication"][0]["clients"] = [0.1, 0.2, 0.3, 0.5]
    run.summary["communication"][-1]["clients"] = [0.6, 0.7, 0.8, 0.9]
    run.summary["clients"] = [{"accuracy": accuracy, "quarantined": None} for accuracy in (0.6, None, 0.7, 0.8, 0.9)]
    run.summary["clients"][1]["quarantined"] = "not finite"
    return run


def test_a_client_of_an_earlier_exchange_is_found_by_those_that_it_used(make_run):
    run = _turned_away_at_last(make_run)
    run.summary["communication"][0]["used"] = ["client 0", "client 1", "client 2", "client 4"]
    assert _of_each_client(run) == [0.1, 0.2, 0.3, None, 0.5]


def test_nobody_is_guessed_where_an_earlier_version_turned_clients_away(make_run):
    run = _turned_away_at_last(make_run)
    assert _of_each_client(run) == [None] * 5
    run.summary["communication"] = run.summary["communication"][-1:]  # of the last one the clients tell it
    assert _of_each_client(run) == [0.6, None, 0.7, 0.8, 0.9]


def test_only_some_tables_compare_models_in_one_setting():
    assert compares_models(of_study("co_boosting/table17"))
    assert compares_models(of_study("co_boosting/table15"))
    assert not compares_models(of_study("fedhydra/table1"))
    assert not compares_models(of_study("fedhydra/table3"))
