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


def test_only_some_tables_compare_models_in_one_setting():
    assert compares_models(of_study("co_boosting/table17"))
    assert compares_models(of_study("co_boosting/table15"))
    assert not compares_models(of_study("fedhydra/table1"))
    assert not compares_models(of_study("fedhydra/table3"))
