import pytest

from oneshot_fl.reporting.papers import compares_models, deviations, fits, measured, of_study, published


def _cell(study="fedhydra/table1", **wanted):
    (cell,) = [cell for cell in of_study(study) if all(getattr(cell, name) == value for name, value in wanted.items())]
    return cell


MNIST = {"data": "mnist", "partition_value": "0.1", "method": "fedhydra"}


def test_every_printed_number_of_the_two_papers_is_there():
    # counted in the tables: FedHydra T1-T18 594, Co-Boosting T1-T19 without T8 453, 22 of them averages over domains
    count = {paper: sum(cell.paper == paper for cell in published()) for paper in ("fedhydra", "coboosting")}
    assert count == {"fedhydra": 594, "coboosting": 453 - 22}
    assert (_cell(**MNIST).value, _cell(**MNIST).model) == (59.97, "cnn2")
    assert _cell("fedhydra/table2", data="fashion_mnist", method="fedavg").doubtful


def test_a_run_under_the_papers_protocol_deviates_in_nothing(make_run):
    assert fits(_cell(**MNIST), make_run(), by_model=False)
    assert deviations(_cell(**MNIST), make_run()) == ()
    assert measured(_cell(**MNIST), make_run(0.6), which="last") == 0.6
    assert measured(_cell(**MNIST), make_run(0.6), which="best") == pytest.approx(0.7)
    assert measured(_cell(**MNIST), make_run(None), which="last") is None


@pytest.mark.parametrize(
    "other",
    [
        {"data": "svhn"},
        {"method": "dense"},
        {"changed": {"source.reset": True}},
        {"models": {"clients": ["cnn2"] * 10, "server": "cnn2"}},
        {"settings": {"partition": {"alpha": 0.3}}},
        {"settings": {"partition": {"name": "lognormal", "sigma": 0.1}}},
    ],
)
def test_a_run_of_another_setting_stands_beside_nothing(make_run, other):
    assert not fits(_cell(**MNIST), make_run(**other), by_model=False)


@pytest.mark.parametrize(
    ("other", "told"),
    [
        ({"settings": {"clients": {"epochs": 8}}}, "clients.epochs=8 instead of 200"),
        (
            {"settings": {"partition": {"name": "dirichlet_class_prior"}}},
            "partition.name=dirichlet_class_prior instead",
        ),
        ({"models": {"clients": ["lenet5"] * 5, "server": "cnn2"}}, "lenet5 instead of cnn2"),
        ({"models": {"clients": ["cnn2"] * 5, "server": "vgg11"}}, "server vgg11 instead of cnn2"),
        ({"settings": {"proxy": {"name": "holdout", "fraction": 0.2}}}, "20% of the training set held out"),
        ({"settings": {"clients": {"sam": 0.05}}}, "clients.sam=0.05 instead of None"),
    ],
)
def test_another_protocol_is_told(make_run, other, told):
    cell, run = _cell(**MNIST), make_run(**other)
    assert fits(cell, run, by_model=False)
    (phrase,) = deviations(cell, run)
    assert phrase.startswith(told)


def test_variants_ask_for_their_values_and_nothing_else(make_run):
    half = _cell("fedhydra/table6", data="mnist", variant="lambda1=0.5 lambda2=1.0")

    def objective(bn: float, adv: float, **changed):
        weights = {"bn": {"weight": bn}, "adv": {"weight": adv}}
        settings = {"method": {"objective": weights}, "partition": {"alpha": 0.5}}
        return make_run(settings=settings, changed={"objective.bn.weight": bn, **changed})

    assert fits(half, objective(0.5, 1.0), by_model=False)
    assert not fits(half, objective(0.25, 1.0), by_model=False)
    assert not fits(half, objective(0.5, 0.5), by_model=False)
    assert not fits(half, objective(0.5, 1.0, **{"source.reset": True}), by_model=False)


@pytest.mark.parametrize(
    ("power", "perturb", "step", "variant"),
    [
        (1.0, {"epsilon": 0.01}, 0.01, "GHS+DHS+EE"),
        (0.0, None, 0.0, "no_GHS_no_DHS_no_EE"),
        (0.0, None, 0.01, "EE"),
        (1.0, {"epsilon": 0.01}, 0.0, "GHS+DHS"),
    ],
)
def test_co_boostings_switches(make_run, power, perturb, step, variant):
    slots = {"objective": {"hard_ce": {"power": power}}, "perturb": perturb, "ensemble": {"step": step}}
    partition = {"name": "dirichlet_class_prior", "alpha": 0.05}
    run = make_run(
        method="co_boosting",
        data="svhn",
        settings={"method": slots, "partition": partition},
        models={"clients": ["cnn5"] * 10, "server": "cnn5"},
    )
    cells = [cell for cell in of_study("coboosting/table7") if fits(cell, run, by_model=False)]
    assert [cell.variant for cell in cells] == [variant]


def test_a_symbol_in_other_units(make_run):
    run = make_run(
        method="co_boosting",
        data="svhn",
        changed={"perturb.epsilon": 4 / 510},
        settings={
            "method": {"perturb": {"epsilon": 4 / 510}},  # 4/255 of images in [-1, 1]
            "partition": {"name": "dirichlet_class_prior", "alpha": 0.05},
        },
        models={"clients": ["cnn5"] * 10, "server": "cnn5"},
    )
    cells = [cell for cell in of_study("coboosting/table19") if fits(cell, run, by_model=False)]
    assert [cell.variant for cell in cells] == ["epsilon=4/255"]


def test_rounds_clients_and_ensembles_are_read_where_they_stand(make_run):
    third = _cell("fedhydra/table8", rounds="3", method="fedhydra")
    multi = make_run(0.5, data="svhn", settings={"communication_rounds": 3, "clients": {"epochs": 50}})
    assert fits(third, multi, by_model=False)
    assert measured(third, multi, which="last") == pytest.approx(0.52)
    assert not fits(third, make_run(data="svhn"), by_model=False)
    fourth = _cell("fedhydra/table3", method="client_m4", partition_value="0.1")
    mix = ["googlenet", "resnet18", "cnn3", "cnn2", "lenet5"]
    mixed = make_run(data="cifar10", method="dense", models={"clients": mix, "server": "resnet18"})
    assert fits(fourth, mixed, by_model=False)
    assert measured(fourth, mixed, which="last") == 0.4
    ensemble = _cell("coboosting/table4", method="dw_fedens", partition_value="0.4")
    assert measured(ensemble, make_run(rows={"size_weighted": 0.7}), which="last") == 0.7


def test_only_some_tables_compare_models_in_one_setting():
    assert compares_models(of_study("coboosting/table17"))
    assert compares_models(of_study("coboosting/table15"))
    assert not compares_models(of_study("fedhydra/table1"))
    assert not compares_models(of_study("fedhydra/table3"))


def test_co_boostings_dirichlet_is_that_of_its_code(make_run):
    cell = _cell("coboosting/table1", data="svhn", partition_value="0.1", method="co_boosting")
    models = {"clients": ["cnn5"] * 10, "server": "cnn5"}
    budget = {"clients": {"epochs": 300}, "distill": {"rounds": 500}}
    theirs, ours = (
        make_run(method="co_boosting", data="svhn", models=models, settings={**budget, "partition": {"name": name}})
        for name in ("dirichlet_class_prior", "dirichlet")
    )
    assert fits(cell, theirs, by_model=False)
    assert deviations(cell, theirs) == ()
    assert fits(cell, ours, by_model=False)
    assert deviations(cell, ours) == ("partition.name=dirichlet instead of dirichlet_class_prior",)
