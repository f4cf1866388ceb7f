import pytest

from oneshot_fl.reporting.tables.papers.beside import paper_sheets


def _methods(sheet):
    return sheet.header[sheet.header.index("") + 1 :]


def test_ours_stand_below_the_papers_with_the_difference(make_run):
    runs = [make_run(0.6, seed=0), make_run(0.7, seed=1), make_run(0.3, method="fedavg")]
    (sheet,) = paper_sheets(runs, which="last")
    assert sheet.title == "FedHydra, Table 1 (mnist, dirichlet 0.1, 5 clients)"
    assert _methods(sheet) == ["fedavg", "ot", "feddf", "dense", "co_boosting", "fedhydra"]
    paper, ours, delta = (row[1:] for row in sheet.rows)
    assert paper == ["25.96", "50.18", "31.52", "36.73", "44.76", "59.97"]
    assert ours == ["30.00 (1)", *["missing"] * 4, "65.00 ± 7.07 (2)"]  # no interval of two seeds
    assert delta == ["+4.04", "", "", "", "", "+5.03"]
    assert not any("Not the paper's protocol" in note for note in sheet.notes)


def test_three_seeds_have_an_interval(make_run):
    (sheet,) = paper_sheets(
        [make_run(accuracy, seed=seed) for seed, accuracy in enumerate((0.6, 0.7, 0.8))], which="last"
    )
    # std 10, t(0.975, 2) = 4.3027, half width 4.3027 * 10 / sqrt(3) = 24.84
    assert sheet.rows[1][-1] == "70.00 ± 10.00 (3, [45.16, 94.84])"


def test_a_run_of_the_tables_own_experiment_shows_it_whole(make_run):
    (sheet,) = paper_sheets([make_run(study="fedhydra/table1")], which="last")
    assert len(sheet.rows) == 3 * 16  # four data sets, four alphas
    assert sheet.header[:3] == ["data", "split", ""]


def test_failed_and_unfinished_runs_are_marked(make_run):
    runs = [make_run(None), make_run(0.3, method="fedavg"), make_run(None, method="fedavg", seed=1)]
    (sheet,) = paper_sheets(runs, which="last")
    ours = dict(zip(_methods(sheet), sheet.rows[1][1:], strict=True))
    assert (ours["fedhydra"], ours["fedavg"], ours["ot"]) == ("1 failed", "30.00 (1) 1 failed", "missing")


def test_protocols_never_share_a_column(make_run):
    runs = [
        make_run(0.6),
        make_run(0.4, budget="reduced", settings={"clients": {"epochs": 8}}),
        make_run(0.5, models={"clients": ["lenet5"] * 5, "server": "lenet5"}),
    ]
    sheets = paper_sheets(runs, which="last")
    assert [sheet.rows[1][-1] for sheet in sheets] == ["60.00 (1)", "40.00 (1)", "50.00 (1)"]
    assert "Not the paper's protocol: clients.epochs=8 instead of 200." in sheets[1].notes
    assert "Not the paper's protocol: lenet5 instead of cnn2; server lenet5 instead of cnn2." in sheets[2].notes
    told = {record["other_protocol"] for record in sheets[1].records if record["status"] == "done"}
    assert told == {"clients.epochs=8 instead of 200"}


def test_proxy_images_split_the_column_of_a_method_that_uses_them(make_run):
    def feddf(accuracy: float, proxy: str):
        source = {"_target_": "oneshot_fl.parts.sources.ProxySource"}
        return make_run(
            accuracy, method="feddf", settings={"method": {"source": source}, "proxy": {"name": proxy, "samples": 100}}
        )

    (sheet,) = paper_sheets([feddf(0.2, "noise"), feddf(0.4, "dataset")], which="last")
    cells = dict(zip(_methods(sheet), zip(*(row[1:] for row in sheet.rows), strict=True), strict=True))
    assert cells["feddf (noise 100)"] == ("31.52", "20.00 (1)", "-11.52")
    assert cells["feddf (dataset 100)"] == ("31.52", "40.00 (1)", "+8.48")


def _fedens(runs):
    """What stands beside the ensemble of Table 9 on MNIST, Dir(0.1), and the sheets after the first."""
    first, *others = paper_sheets(runs, which="last", studies=["co_boosting/table9"])
    number = next(n for n, row in enumerate(first.rows) if row[:2] == ["mnist", "0.1"])
    return first.rows[number + 1][first.header.index("fedens")], others


@pytest.fixture
def ensemble_run(make_paper_run):
    """A function from a method, its ensemble's accuracy and the seed to a run of Table 9 on MNIST, Dir(0.1)."""

    def make(method, accuracy, seed, settings=None):
        own = {"partition": {"alpha": 0.1}, **(settings or {})}
        known = {"rows": {"uniform": accuracy}} if accuracy else {}
        return make_paper_run("co_boosting/table9", method, "mnist", accuracy, seed=seed, settings=own, **known)

    return make


def test_an_ensemble_is_of_all_runs_whatever_images_one_of_their_methods_uses(ensemble_run):
    source = {"source": {"_target_": "oneshot_fl.parts.sources.ProxySource"}}
    runs = [ensemble_run("dense_co_boosting", 0.7 + seed / 100, seed) for seed in range(3)]
    feddf, held_out = (
        ensemble_run("feddf", 0.8, 3, {"method": source, "proxy": proxy})
        for proxy in ({"name": "noise", "samples": 100}, {"name": "holdout", "fraction": 0.2})
    )
    assert _fedens(runs) == ("71.00 ± 1.00 (3, [68.52, 73.48])", [])
    assert _fedens([*runs, feddf]) == ("73.25 ± 4.57 (4, [65.97, 80.53])", [])
    told, (other,) = _fedens([*runs, held_out])  # whose clients have four fifths of the images
    assert told == "71.00 ± 1.00 (3, [68.52, 73.48])"
    assert any("20% of the training set held out" in note for note in other.notes)


def test_what_another_run_of_the_seed_tells_is_not_missing(ensemble_run):
    runs = [ensemble_run("co_boosting", 0.7 + seed / 100, seed) for seed in range(3)]
    runs += [ensemble_run("dense_co_boosting", None, seed) for seed in (2, 3)]
    assert _fedens(runs)[0] == "71.00 ± 1.00 (3, [68.52, 73.48]) 1 failed"


def test_a_sheet_says_which_round_it_tells_and_which_seeds_other_code_ran(make_run):
    runs = [make_run(0.6 + seed / 10, seed=seed) for seed in range(2)]
    for run, digest in zip(runs, "ab", strict=True):
        run.summary["code"] = {"digest": digest, "commit": None}
    for which in ("last", "best"):
        (sheet,) = paper_sheets(runs, which=which)
        assert sheet.notes[0].startswith(f"Accuracy in percent after the {which} round; ")
        assert sheet.notes[1] == "Seeds of one number were run by code that differs: fedhydra."
        assert {record["which"] for record in sheet.records} == {which}


def test_a_table_that_is_asked_for_is_shown_even_without_a_run(make_run):
    (sheet,) = paper_sheets([make_run()], which="last", studies=["co_boosting/table7"])
    assert {cell for row in sheet.rows if row[2] == "ours" for cell in row[3:]} == {"missing"}
    assert len(sheet.rows) == 3 * 16  # two data sets, eight combinations


def test_single_clients_and_the_server_share_a_row(make_run):
    mix = ["googlenet", "resnet18", "cnn3", "cnn2", "lenet5"]
    run = make_run(0.5, data="cifar10", study="fedhydra/table3", models={"clients": mix, "server": "resnet18"})
    (sheet,) = paper_sheets([run], which="last")
    assert _methods(sheet)[:5] == [f"client_m{k}" for k in range(1, 6)]
    ours = next(row for row, above in zip(sheet.rows[1:], sheet.rows, strict=False) if above[0] == "0.1")
    assert ours[2:7] == ["20.00 (1)", "40.00 (1)", "20.00 (1)", "40.00 (1)", "30.00 (1)"]
    assert ours[-1] == "50.00 (1)"


def test_a_run_claims_the_first_table_of_its_own_setting_only(make_run):
    alike = {"data": "cifar10", "models": {"clients": ["cnn3"] * 5, "server": "cnn3"}}
    runs = [
        make_run(**alike),
        make_run(**alike, method="co_boosting", settings={"partition": {"name": "dirichlet_class_prior"}}),
    ]
    titles = [[sheet.title for sheet in paper_sheets([run], which="last")] for run in runs]
    assert titles == [
        ["FedHydra, Table 1 (cifar10, dirichlet 0.1, 5 clients)"],
        ["Co-Boosting, Table 3 (cifar10, dirichlet_class_prior 0.1, 5 clients)"],
    ]


FEDMHO_ROW = ("fedavg", "feddf", "dense", "co_boosting", "fedcvae_fedmho", "fedmho", "fedmho_md", "fedmho_sd")


def _row(sheet, line, data):
    """A line of the sheet's Dir(0.1) for one data set, by method."""
    filled, at = [], ["", ""]
    for row in sheet.rows:
        at = row[:2] if row[0] else at
        filled.append((*at, *row[2:]))
    (found,) = [row for row in filled if row[:3] == (data, "0.1", line)]
    return dict(zip(_methods(sheet), found[3:], strict=True))


def test_fedmhos_methods_share_a_sheet_although_each_has_clients_rounds_and_a_server_of_its_own(make_fedmho_run):
    runs = [make_fedmho_run(method, 0.5 + number / 100) for number, method in enumerate(FEDMHO_ROW)]
    on_mnist = {"proxy": {"name": "dataset", "data": "mnist", "samples": 10000}}
    runs += [
        make_fedmho_run("feddf", 0.4, data="emnist", settings=on_mnist),
        make_fedmho_run("feddf", 0.3, data="emnist"),
    ]
    (sheet,) = paper_sheets(runs, which="last")
    assert sheet.title == "FedMHO, Table 4 (dirichlet, 10 clients)"
    assert _row(sheet, "paper", "mnist") == {
        "fedavg": "49.12 ± 2.99",
        "feddf (dataset mnist 10000)": "62.58 ± 4.50",
        "feddf (noise 10000)": "62.58 ± 4.50",
        "dense": "73.76 ± 1.72",
        "co_boosting": "81.30 ± 0.54",
        "fedcvae": "89.73 ± 0.40",
        "fedmho": "88.48 ± 0.99",
        "fedmho_md": "91.22 ± 0.56",
        "fedmho_sd": "91.55 ± 0.27",
    }
    ours = ["50.00 (1)", "missing", *(f"{50 + number}.00 (1)" for number in range(1, 8))]
    assert list(_row(sheet, "ours", "mnist").values()) == ours
    assert list(_row(sheet, "ours", "emnist").values())[:4] == ["missing", "40.00 (1)", "30.00 (1)", "missing"]
    assert not any("Not the paper's protocol" in note for note in sheet.notes)


def test_a_deviation_of_one_method_is_told_with_its_name_and_tears_nothing(make_fedmho_run):
    runs = [make_fedmho_run(method, rounds=5 if method == "dense" else 0) for method in FEDMHO_ROW]
    (sheet,) = paper_sheets(runs, which="last")
    assert "missing" not in _row(sheet, "ours", "mnist").values()
    assert "Not the paper's protocol: dense: distill.rounds=5 instead of 200." in sheet.notes
    told = {record["method"]: record["other_protocol"] for record in sheet.records if record["status"] == "done"}
    assert told == dict.fromkeys(_METHODS, "") | {"dense": "distill.rounds=5 instead of 200"}


_METHODS = [method.removesuffix("_fedmho") for method in FEDMHO_ROW]


def test_another_budget_is_one_sheet_too_and_its_numbers_are_told_by_method_and_data_set(make_fedmho_run):
    runs = [
        make_fedmho_run(method, data=data, rounds=25, budget="reduced", settings={"clients": {"epochs": 8}})
        for method in ("dense", "fedmho", "fedmho_md")
        for data in ("mnist", "svhn")
    ]
    (sheet,) = paper_sheets(runs, which="last")
    assert (
        "Not the paper's protocol: clients.epochs=8 instead of 200; "
        "dense: distill.rounds=25 instead of 200; "
        "fedmho, fedmho_md on mnist: distill.rounds=25 instead of 10; "
        "fedmho, fedmho_md on svhn: distill.rounds=25 instead of 20."
    ) in sheet.notes


def test_two_ways_of_one_method_never_share_a_sheet_and_the_papers_comes_first(make_fedmho_run):
    runs = [
        make_fedmho_run("dense", 0.1, rounds=5),
        make_fedmho_run("dense", 0.2, seed=1),
        make_fedmho_run("fedmho", 0.3),
        make_fedmho_run("fedavg", 0.4, settings={"clients": {"epochs": 8}}),
    ]
    first, second, third = paper_sheets(runs, which="last")
    assert (_row(first, "ours", "mnist")["dense"], _row(first, "ours", "mnist")["fedmho"]) == ("20.00 (1)", "30.00 (1)")
    assert (_row(third, "ours", "mnist")["dense"], _row(third, "ours", "mnist")["fedmho"]) == ("10.00 (1)", "missing")
    assert _row(second, "ours", "mnist")["fedavg"] == "40.00 (1)"


def test_homogeneous_clients_share_their_row_with_fedmhos_mixed_ones(make_paper_run):
    at = {"settings": {"partition": {"alpha": 0.1}}}
    runs = [
        make_paper_run("fedmho/table9", "dense", "mnist", 0.4, **at),
        make_paper_run("fedmho/table4", "fedmho_md", "mnist", 0.6, **at),
    ]
    ninth, fourth = paper_sheets(runs, which="last")
    assert ("Table 9" in ninth.title, "Table 4" in fourth.title) == (True, True)
    assert len(ninth.rows) == 3 * 12  # four data sets, three alphas
    assert (_row(ninth, "ours", "mnist")["dense"], _row(ninth, "ours", "mnist")["fedmho_md"]) == (
        "40.00 (1)",
        "60.00 (1)",
    )
    assert (_row(fourth, "ours", "mnist")["dense"], _row(fourth, "ours", "mnist")["fedmho_md"]) == (
        "missing",
        "60.00 (1)",
    )


def test_a_run_of_one_table_stands_in_another_only_where_it_is_its_protocol(make_paper_run):
    shared = {"settings": {"partition": {"clients": 5}}}
    runs = [
        make_paper_run("fedhydra/table1", "dense", "svhn", 0.2),
        make_paper_run("fedhydra/table4", "fedhydra", "svhn", 0.4, **shared),
        make_paper_run("fedhydra/table8", "dense", "svhn", 0.6, settings={"partition": {"alpha": 0.1}}),  # 50 epochs
    ]
    sheets = paper_sheets(runs, which="last")
    assert [sheet.title.split(" (")[0] for sheet in sheets] == [f"FedHydra, Table {number}" for number in (1, 4, 8)]
    assert not any("Not the paper's protocol" in note for sheet in sheets for note in sheet.notes)
    filled = [[text for row in sheet.rows if "ours" in row for text in row if "(1)" in text] for sheet in sheets]
    assert filled[:2] == [["20.00 (1)", "40.00 (1)"]] * 2  # Dir(0.5), 5 clients: in both
    assert filled[2] == [f"{60 + number}.00 (1)" for number in range(5)]


def test_what_a_table_does_not_vary_in_its_kind_of_split_is_its_protocol(make_paper_run):
    """Sizes that follow a lognormal have labels that follow Dir(alpha), which Table 4 does not vary."""
    splits = [{"sigma": 0.4}, {"sigma": 0.4, "alpha": 5.0}]
    pairs = zip((0.3, 0.9), splits, strict=True)
    runs = [
        make_paper_run("co_boosting/table4", "dense", "cifar10", accuracy, settings={"partition": split})
        for accuracy, split in pairs
    ]
    sheets = paper_sheets(runs, which="last")
    told = [[note for note in sheet.notes if "Not the paper's protocol" in note] for sheet in sheets]
    assert [bool(notes) for notes in told] == [False, True]
    assert told[1][0].startswith("Not the paper's protocol: partition.alpha=5.0 instead of 0.1")


def test_a_run_that_stands_for_one_of_another_table_fills_that_one_too(make_paper_run):
    few = {"clients": {"epochs": 8}, "partition": {"clients": 5}}
    run = make_paper_run("fedhydra/table4", "dense", "svhn", 0.2, settings=few, studies=frozenset({"fedhydra/table1"}))
    sheets = paper_sheets([run], which="last")
    assert ["Table 4" in sheets[0].title, "Table 1" in sheets[1].title, len(sheets)] == [True, True, 2]
    assert all("Not the paper's protocol: clients.epochs=8 instead of 200." in sheet.notes for sheet in sheets)


def test_an_average_over_domains_is_of_the_seeds_that_have_all(make_paper_run):
    domains = ("mnist", "mnist_m", "svhn", "syn")
    found = [(domain, 0, number / 10) for number, domain in enumerate(domains)] + [("mnist", 1, 0.9)]
    runs = [
        make_paper_run(
            *("co_boosting/table13", "co_boosting", "digit_domains", accuracy),
            seed=seed,
            settings={"partition": {"held_out": domain}, "data": {"held_out": domain}},
        )
        for domain, seed, accuracy in found
    ]
    (sheet,) = paper_sheets(runs, which="last")
    ours = {row["partition_value"]: row["ours_percent"] for row in sheet.records if row["ours_percent"] is not None}
    assert ours == pytest.approx({"mnist": 45, "mnist_m": 10, "svhn": 20, "syn": 30, "avg": 15})


def test_what_cannot_be_run_is_said_once(make_paper_run):
    runs = [
        make_paper_run("fedmho/table5", "fedmho_md", "emnist", 0.2),
        make_paper_run("fedmho/table4", "dense", "svhn"),
    ]
    fifth, fourth = paper_sheets(runs, which="last")
    learnable = [row["status"] for row in fifth.records if "learnable" in row["variant"]]
    assert set(learnable) == {"–"}
    assert sum("Learnable weights" in note for sheet in (fifth, fourth) for note in sheet.notes) == 1
    assert sum("Table 2" in note for sheet in (fifth, fourth) for note in sheet.notes) == 1


def test_the_multiply_adds_of_models_stand_beside_fedmhos(make_fedmho_run):
    run = make_fedmho_run("fedmho")
    run.summary["clients"] = [{"macs": 126_470_000 if model == "vgg9" else 1} for model in run.models["clients"]]
    (sheet,) = paper_sheets([run], which="last", studies=["fedmho/table2"])
    assert sheet.title == "FedMHO, Table 2 (MFLOPs)"
    assert dict(zip(sheet.header[2:], sheet.rows[1][2:], strict=True))["vgg9"] == "126.47"
    assert sheet.rows[2][2] == "+0.00"
