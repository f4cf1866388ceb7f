from oneshot_fl.reporting.beside_papers import paper_sheets


def _methods(sheet):
    return sheet.header[sheet.header.index("") + 1 :]


def test_ours_stand_below_the_papers_with_the_difference(make_run):
    runs = [make_run(0.6, seed=0), make_run(0.7, seed=1), make_run(0.3, method="fedavg")]
    (sheet,) = paper_sheets(runs, which="last")
    assert sheet.title == "FedHydra, Table 1 (mnist, dirichlet 0.1, 5 clients)"
    assert _methods(sheet) == ["fedavg", "ot", "feddf", "dense", "co_boosting", "fedhydra"]
    paper, ours, delta = (row[1:] for row in sheet.rows)
    assert paper == ["25.96", "50.18", "31.52", "36.73", "44.76", "59.97"]
    # 60 and 70: std 7.07, t(0.975, 1) = 12.706, half width 12.706 * 7.07 / sqrt(2) = 63.53
    assert ours == ["30.00 (1)", *["missing"] * 4, "65.00 ± 7.07 (2, ±63.53)"]
    assert delta == ["+4.04", "", "", "", "", "+5.03"]
    assert not any("Not the paper's protocol" in note for note in sheet.notes)


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
    assert sheets[1].records[0]["other_protocol"] == "clients.epochs=8 instead of 200"


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


def test_a_table_that_is_asked_for_is_shown_even_without_a_run(make_run):
    (sheet,) = paper_sheets([make_run()], which="last", studies=["coboosting/table7"])
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
