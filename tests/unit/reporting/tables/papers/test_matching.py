from dataclasses import replace

import pytest

from oneshot_fl.reporting.tables.papers.matching import deviations, fits
from oneshot_fl.reporting.tables.papers.published import of_study


def _cell(study="fedhydra/table1", **wanted):
    (cell,) = [cell for cell in of_study(study) if all(getattr(cell, name) == value for name, value in wanted.items())]
    return cell


MNIST = {"data": "mnist", "partition_value": "0.1", "method": "fedhydra"}


def test_a_run_under_the_papers_protocol_deviates_in_nothing(make_run):
    assert fits(_cell(**MNIST), make_run(), by_model=False)
    assert deviations(_cell(**MNIST), make_run()) == ()


def test_a_row_of_any_run_may_be_of_a_method_that_is_not_ours(make_run):
    fourth = _cell("fedhydra/table3", method="client_m4", partition_value="0.1")
    run = replace(make_run(), method="mine")
    assert deviations(fourth, run) == deviations(fourth, make_run())


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
    cells = [cell for cell in of_study("co_boosting/table7") if fits(cell, run, by_model=False)]
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
    cells = [cell for cell in of_study("co_boosting/table19") if fits(cell, run, by_model=False)]
    assert [cell.variant for cell in cells] == ["epsilon=4/255"]


def test_rounds_and_clients_are_asked_for(make_run):
    third = _cell("fedhydra/table8", rounds="3", method="fedhydra")
    multi = make_run(0.5, data="svhn", settings={"communication_rounds": 3, "clients": {"epochs": 50}})
    assert fits(third, multi, by_model=False)
    assert not fits(third, make_run(data="svhn"), by_model=False)
    fourth = _cell("fedhydra/table3", method="client_m4", partition_value="0.1")
    mix = ["googlenet", "resnet18", "cnn3", "cnn2", "lenet5"]
    mixed = make_run(data="cifar10", method="dense", models={"clients": mix, "server": "resnet18"})
    assert fits(fourth, mixed, by_model=False)


def test_co_boostings_dirichlet_is_that_of_its_code(make_paper_run):
    cell = _cell("co_boosting/table1", data="svhn", partition_value="0.1", method="co_boosting")
    theirs, ours = (
        make_paper_run(
            "co_boosting/table1", "co_boosting", "svhn", settings={"partition": {"alpha": 0.1, "name": name}}
        )
        for name in ("dirichlet_class_prior", "dirichlet")
    )
    assert fits(cell, theirs, by_model=False)
    assert deviations(cell, theirs) == ()
    assert fits(cell, ours, by_model=False)
    assert deviations(cell, ours) == ("partition.name=dirichlet instead of dirichlet_class_prior",)


def _beside(run, study):
    return [cell for cell in of_study(study) if fits(cell, run, by_model=False)]


@pytest.mark.parametrize(
    ("table", "data", "settings", "changed", "variants"),
    [
        ("table5", "emnist", {"student": {"kl": 0.5, "ce": 0.5}}, {}, ["beta1=1 beta2=1"]),
        ("table5", "emnist", {"student": {"kl": 0.5, "ce": 1.0}}, {"student.ce.weight": 1.0}, ["beta1=1 beta2=2"]),
        ("table5", "emnist", {"student": {"kl": 1.0, "ce": 0.5}}, {"student.kl.weight": 1.0}, ["beta1=2 beta2=1"]),
        ("table5", "emnist", {"student": {"kl": 1.0, "ce": 1.0}}, {"student.kl.weight": 1.0}, []),
        (
            "table6",
            "mnist",
            {"nearest": 1.0, "samples": 4800},
            {"pool.nearest": 1.0, "source.samples": 4800},
            ["without_kmeans"],
        ),
        (
            "table6",
            "emnist",
            {"nearest": 1.0, "samples": 9600},
            {"pool.nearest": 1.0, "source.samples": 9600},
            ["without_kmeans"],
        ),
        ("table6", "emnist", {"nearest": 1.0, "samples": 4800}, {"pool.nearest": 1.0, "source.samples": 4800}, []),
        ("table6", "mnist", {"nearest": 0.8, "samples": 6000}, {}, []),
        ("table8", "emnist", {"nearest": 0.6, "samples": 12000}, {"pool.nearest": 0.6}, ["R_th=0.6"]),
        ("table8", "emnist", {"nearest": 0.6, "samples": 100}, {"pool.nearest": 0.6, "source.samples": 100}, []),
    ],
)
def test_fedmhos_variants_are_settings_of_the_method(make_fedmho_run, table, data, settings, changed, variants):
    slots = {
        "student": {name: {"weight": weight} for name, weight in settings.get("student", {}).items()},
        "pool": {"nearest": settings.get("nearest")},
        "source": {"samples": settings.get("samples")},
    }
    run = make_fedmho_run("fedmho_md", data=data, changed=changed, settings={"method": slots})
    assert [cell.variant for cell in _beside(run, f"fedmho/{table}")] == variants


def test_epochs_of_the_vaes_find_their_row_and_are_then_the_protocol(make_fedmho_run):
    at = {"partition": {"alpha": 0.5}, "clients": {"cvae": {"epochs": 20}}}
    run = make_fedmho_run("fedmho_sd", data="emnist", settings=at)
    (cell,) = _beside(run, "fedmho/table11")
    assert (cell.variant, cell.value) == ("cvae_local_epochs=20", 74.61)
    assert deviations(cell, run) == ()
    (cell,) = _beside(run, "fedmho/table4")
    assert deviations(cell, run) == ("clients.cvae.epochs=20 instead of 50",)


@pytest.mark.parametrize(
    ("method", "data"), [("fedavg", "mnist"), ("feddf", "svhn"), ("fedcvae_fedmho", "emnist"), ("fedmho_md", "mnist")]
)
def test_fedmhos_protocol_is_one_for_a_method_and_a_data_set(make_fedmho_run, method, data):
    run = make_fedmho_run(method, data=data)
    (cell,) = _beside(run, "fedmho/table4")
    assert (cell.data, cell.partition_value) == (data, "0.1")
    assert deviations(cell, run) == ()


@pytest.mark.parametrize(
    ("method", "other", "told"),
    [
        ("dense", {"rounds": 5}, ["distill.rounds=5 instead of 200"]),
        ("feddf", {"rounds": 5}, ["distill.rounds=5 instead of 38"]),
        ("fedavg", {"rounds": 5}, []),  # it has no rounds
        ("fedmho", {"rounds": 5}, ["distill.rounds=5 instead of 10"]),
        (
            "fedmho",
            {"settings": {"method": {"student_optimizer": {"lr": 0.1}}}, "changed": {"student_optimizer.lr": 0.1}},
            ["method.student_optimizer.lr=0.1 instead of 1e-05"],
        ),
        ("fedmho", {"settings": {"clients": {"cvae": {"epochs": 3}}}}, ["clients.cvae.epochs=3 instead of 30"]),
        ("dense", {"settings": {"clients": {"cvae": {"epochs": 3}}}}, []),  # it has no VAEs
        ("fedcvae_fedmho", {"settings": {"clients": {"optimizer": {"lr": 1.0}}}}, []),  # it has no classifiers
        ("dense", {"settings": {"clients": {"optimizer": {"lr": 1.0}}}}, ["clients.optimizer.lr=1.0 instead of 0.005"]),
        (
            "fedmho",
            {"settings": {"clients": {"kinds": ["classifier", "cvae"]}}},
            ["clients.kinds=['classifier', 'cvae']"],
        ),
        (
            "fedavg",
            {"models": {"clients": ["vgg9"] * 5 + ["fedmho_cnn"] * 5, "server": "vgg9"}},
            ["server vgg9 instead of vgg9+fedmho_cnn"],
        ),
    ],
)
def test_what_fedmho_states_of_a_method_is_told_of_that_method(make_fedmho_run, method, other, told):
    run = make_fedmho_run(method, **other)
    (cell,) = _beside(run, "fedmho/table4")
    phrases = deviations(cell, run)
    assert len(phrases) == len(told)
    assert all(phrase.startswith(start) for phrase, start in zip(phrases, told, strict=True))


def test_what_fedmho_states_of_all_methods_is_told_alike(make_fedmho_run):
    run = make_fedmho_run("dense", settings={"clients": {"epochs": 8}})
    (cell,) = _beside(run, "fedmho/table4")
    assert deviations(cell, run) == ("clients.epochs=8 instead of 200",)


def test_a_run_with_the_models_of_another_table_stands_there_only(make_fedmho_run):
    large = make_fedmho_run("dense", models={"clients": ["vgg9"] * 10, "server": "vgg9"})
    assert [cell.value for cell in _beside(large, "fedmho/table9")] == [74.99]
    assert _beside(large, "fedmho/table4") == []
    assert _beside(make_fedmho_run("dense"), "fedmho/table9") == []
    of_no_table = make_fedmho_run("dense", models={"clients": ["lenet5"] * 10, "server": "lenet5"})
    assert len(_beside(of_no_table, "fedmho/table4")) == len(_beside(of_no_table, "fedmho/table9")) == 1
    # the same run of FedMHO's own method is in both
    own = make_fedmho_run("fedmho_md")
    assert _beside(own, "fedmho/table9")[0].value == _beside(own, "fedmho/table4")[0].value == 91.22


@pytest.mark.parametrize(
    ("key", "value", "told"),
    [
        ("clients.optimizer.lr", 0.1, "clients.optimizer.lr=0.1 instead of 0.01"),
        ("clients.optimizer.momentum", 0.0, "clients.optimizer.momentum=0.0 instead of 0.9"),
        ("distill.student_schedule", "cosine", "distill.student_schedule=cosine instead of constant"),
        ("distill.student_optimizer.lr", 0.1, "distill.student_optimizer.lr=0.1 instead of 0.01"),
        ("distill.generator_optimizer.lr", 0.1, "distill.generator_optimizer.lr=0.1 instead of 0.001"),
        ("stratify.steps", 5, "stratify.steps=5 instead of 30"),
        ("stratify.batch_size", 8, "stratify.batch_size=8 instead of 128"),
        ("generator.noise", 16, "generator.noise=16 instead of 256"),
        ("generator.width", 16, "generator.width=16 instead of 64"),
        ("data.mean", [0.1], "data.mean=[0.1] instead of [0.5]"),
        ("a_new_group.of_settings", 1, "a_new_group.of_settings=1 instead of None"),
    ],
)
def test_every_key_of_the_experiment_is_compared(make_run, key, value, told):
    settings = value
    for name in reversed(key.split(".")):
        settings = {name: settings}
    assert deviations(_cell(**MNIST), make_run(settings=settings)) == (told,)


@pytest.mark.parametrize(
    "settings",
    [
        {"trainer": {"precision": "bf16-mixed", "accelerator": "cpu"}},
        {"data": {"root": "/elsewhere"}},
        {"distill": {"bank": "loop", "clients_at_once": 4}},
        {"stratify": {"classes_at_once": 1}},
    ],
)
def test_what_no_paper_states_is_not_compared(make_run, settings):
    assert deviations(_cell(**MNIST), make_run(settings=settings)) == ()


@pytest.mark.parametrize(
    ("method", "settings"),
    [
        ("fedavg", {"distill": {"rounds": 5, "student_optimizer": {"lr": 1.0}}, "generator": {"width": 1}}),
        ("fedavg", {"stratify": {"steps": 1}, "clients": {"cvae": {"epochs": 1}}}),
        ("dense", {"stratify": {"steps": 1}}),
        ("fedhydra", {"recite": {"start": None, "steps": 7}}),
        ("feddf", {"generator": {"noise": 1}, "distill": {"generator_steps": 1}}),
    ],
)
def test_what_a_method_does_not_use_is_not_compared(make_run, method, settings):
    assert deviations(_cell(**MNIST | {"method": method}), make_run(method=method, settings=settings)) == ()


def test_a_key_that_follows_another_is_told_once(make_run):
    settings = {"distill": {"generator_steps": 5}, "method": {"source": {"steps": 5}}}
    assert deviations(_cell(**MNIST), make_run(settings=settings)) == ("distill.generator_steps=5 instead of 30",)
    alone = {"method": {"source": {"steps": 5}}}
    assert deviations(_cell(**MNIST), make_run(settings=alone)) == ("method.source.steps=5 instead of 30",)


def test_another_architecture_of_the_same_name_is_told(make_run):
    run = make_run(settings={"models": {"cnn2": {"norm": False}}})
    assert deviations(_cell(**MNIST), run) == ("models.cnn2.norm=False instead of True",)
    run = make_run(settings={"models": {"cnn2": {"norm": True}, "server:cnn2": {"norm": False}}})
    assert deviations(_cell(**MNIST), run) == ("models.server:cnn2.norm=False instead of True",)


def test_a_record_of_an_earlier_version_is_compared_in_what_it_holds(make_run):
    settings = {"partition": {"name": "dirichlet", "alpha": 0.1}, "clients": {"epochs": 8}}
    run = replace(make_run(), settings=settings, complete=False)
    assert deviations(_cell(**MNIST), run) == ("clients.epochs=8 instead of 200",)


@pytest.mark.parametrize("method", ["feddf", "dense"])
def test_co_boosting_takes_a_fifth_away_for_the_images_of_feddf(make_paper_run, method):
    held_out = {"proxy": {"name": "holdout", "fraction": 0.2}, "partition": {"alpha": 0.1}}
    cell = _cell("co_boosting/table1", data="svhn", partition_value="0.1", method=method)
    ours = {"dense": "dense_co_boosting"}.get(method, method)
    run = make_paper_run("co_boosting/table1", ours, "svhn", settings=held_out)
    taken = ("20% of the training set held out",)
    assert deviations(cell, run) == (() if method == "feddf" else taken)
    ensemble = _cell("co_boosting/table9", data="mnist", partition_value="0.1", method="fedens")
    assert deviations(ensemble, make_paper_run("co_boosting/table9", ours, "mnist", settings=held_out)) == taken
