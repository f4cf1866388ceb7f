import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.tables.measures import measure_of
from oneshot_fl.reporting.tables.own import check_against, comparable, describe, names_of, own_sheets, rows_of
from oneshot_fl.reporting.tables.runs import same_data_alike

LAST = measure_of("accuracy", which="last")


def _sheet(runs, measure=LAST, against="fedavg"):
    (sheet,) = own_sheets(runs, measure=measure, against=against)
    return sheet


def _rows(sheet):
    return {row[0]: dict(zip(sheet.header[1:], row[1:], strict=True)) for row in sheet.rows}


def test_a_row_a_method_and_reference_rows_counted_once_a_seed(make_run):
    rows = _rows(
        _sheet(
            [
                make_run(0.5, method="fedhydra", seed=0),
                make_run(0.7, method="fedhydra", seed=1),
                make_run(0.3, method="fedavg", seed=0),
                make_run(0.4, method="fedavg", seed=1),
            ]
        )
    )
    assert list(rows) == ["fedavg", "fedhydra", "ensemble: uniform", "clients, mean"]
    assert rows["fedhydra"]["seeds"] == "0, 1"
    assert rows["fedhydra"]["server, last round"] == "60.00 ± 14.14"
    # paired: 0.2 and 0.3
    assert rows["fedhydra"]["minus fedavg, paired"] == "+25.00 ± 7.07"
    assert rows["fedavg"]["minus fedavg, paired"] == ""
    assert rows["clients, mean"]["server, last round"] == "30.00 ± 0.00"


def test_reference_rows_without_a_seed_in_common_are_not_taken_for_one(make_run):
    """Seed 0 with FedHydra's own stratification, the others with another one: a mean over both is of nothing."""
    apart = [
        make_run(0.5, seed=0, rows={"stratified": 0.25}),
        *(make_run(0.5, seed=seed, rows={"stratified": 0.85}, changed={"ensemble.in_model": False}) for seed in (1, 2)),
    ]
    names = {"ensemble: stratified of fedhydra", "ensemble: stratified of fedhydra (ensemble.in_model=False)"}
    assert names <= _rows(_sheet(apart)).keys()
    linked = [*apart, make_run(0.5, seed=0, rows={"stratified": 0.25}, changed={"ensemble.in_model": False})]
    assert _rows(_sheet(linked))["ensemble: stratified"]["seeds"] == "0, 1, 2"


def test_methods_with_rounds_of_their_own_stand_beside_the_others(make_run):
    """By default FedChorus takes 10 rounds in every budget; with 25 it is another row of the same table."""
    own = make_run(0.6, method="fedchorus", settings={"distill": {"rounds": 10}}, usual_rounds=25)
    set_by_hand = make_run(0.7, method="fedchorus", settings={"distill": {"rounds": 25}}, usual_rounds=25)
    others = make_run(0.4, method="fedavg", settings={"distill": {"rounds": 25}}, usual_rounds=25)
    (beside,) = own_sheets([own, others], measure=LAST, against="fedavg")
    assert "25 rounds" in beside.title
    assert _rows(beside)["fedchorus"]["minus fedavg, paired"] == "+20.00"
    assert list(rows_of([own, set_by_hand])) == ["fedchorus distill.rounds=10", "fedchorus"]
    shorter = make_run(0.4, method="fedavg", settings={"distill": {"rounds": 10}}, usual_rounds=10)
    assert len(comparable([own, shorter])) == 2


def test_for_machines_a_difference_has_the_seeds_of_its_own(make_run):
    runs = [make_run(0.5, seed=seed) for seed in (0, 1, 4)] + [make_run(0.4, method="fedavg", seed=4)]
    records = {record["row"]: record for record in _sheet(runs).records}
    assert records["fedhydra"]["seeds"] == "0 1 4"
    assert (records["fedhydra"]["n"], records["fedhydra"]["paired_n"]) == (3, 1)
    assert {record["metric"] for record in records.values()} == {"accuracy_last"}


def test_a_seed_on_another_partition_is_left_out_of_the_difference_and_told(make_run):
    """By seed the differences are 0.2, 0.3 and 0.7; the last one is between two partitions."""
    reached = {"fedhydra": (0.5, 0.7, 0.9), "fedavg": (0.3, 0.4, 0.2)}
    runs = [
        make_run(value, method=method, seed=seed) for method in reached for seed, value in enumerate(reached[method])
    ]
    for run in runs:
        other = (run.method, run.seed) == ("fedavg", 2)
        run.summary["partition"] = {"sha256": "other" if other else f"of seed {run.seed}"}
    sheet = _sheet(runs)
    records = {record["row"]: record for record in sheet.records}
    assert (records["fedhydra"]["n"], records["fedhydra"]["paired_n"]) == (3, 2)
    assert records["fedhydra"]["paired_difference"] == pytest.approx(0.25)
    assert _rows(sheet)["fedhydra"]["minus fedavg, paired"] == "+25.00 ± 7.07 (n = 2)"
    assert sheet.notes[1:] == [
        "Partitions differ in seed 2, where these are not compared with one another: fedavg; fedhydra."
    ]


def test_a_difference_over_fewer_seeds_than_the_row_has_says_over_how_many(make_run):
    """FedHydra has seed 1 besides FedAvg's 0, DENSE no seed of FedAvg's, Co-Boosting none that FedAvg lacks."""
    seeds = {"fedavg": (0, 4), "fedhydra": (0, 1), "dense": (2, 3), "co_boosting": (0,)}
    reached = {"fedavg": 0.5, "fedhydra": 0.6, "dense": 0.7, "co_boosting": 0.8}
    runs = [make_run(reached[method], method=method, seed=seed) for method in seeds for seed in seeds[method]]
    gaps = {label: row["minus fedavg, paired"] for label, row in _rows(_sheet(runs)).items()}
    assert [gaps[label] for label in seeds] == ["", "+10.00 (n = 1)", "(n = 0)", "+30.00"]
    assert "minus ot, paired" not in _sheet(runs, against="ot").header  # nothing to pair with is no difference over 0


def test_the_best_round_only_where_it_is_asked_for(make_run):
    rows = _rows(_sheet([make_run(0.5)], measure_of("accuracy", which="best")))
    assert rows["fedhydra"]["server, best round"] == "60.00"


def test_another_figure_takes_the_place_of_accuracy_where_runs_tell_it(make_run):
    run = make_run(0.5)
    run.summary["server"]["balanced_accuracy"] = 0.25
    run.summary["ensemble"]["balanced"] = {"uniform": 0.75}
    sheet = _sheet([run, make_run(0.5, seed=1)], measure_of("balanced_accuracy", which="last"))
    rows = _rows(sheet)
    assert {label: row["server, last round"] for label, row in rows.items()} == {
        "fedhydra": "25.00",
        "ensemble: uniform": "75.00",
    }
    assert sheet.notes[1:] == ["1 finished runs do not tell it; run them again."]


def test_what_is_not_defined_on_the_test_images_is_no_reason_to_run_again(make_run):
    runs = [make_run(0.5, seed=seed) for seed in (0, 1)]
    runs[0].summary["server"]["macro_auroc"] = None
    assert _sheet(runs, measure_of("macro_auroc", which="last")).notes[1:] == [
        "1 finished runs do not tell it; run them again.",
        "For 1 finished runs it is not defined on their test images.",
    ]


def test_failed_and_unfinished_seeds_are_told(make_run):
    rows = _rows(_sheet([make_run(0.5), make_run(None, seed=1), make_run(None, seed=2, status="unfinished")]))
    assert rows["fedhydra"]["seeds"] == "0"
    assert rows["fedhydra"]["not done"] == "failed 1, unfinished 2"
    only = _sheet([make_run(None, error="no memory"), make_run(None, seed=1, error="no memory")])
    assert _rows(only) == {"fedhydra": {"server, last round": "–", "not done": "failed 0, failed 1"}}
    assert only.notes[1:] == ["Failed: no memory."]


def test_a_row_whose_seeds_were_run_by_different_code_says_so(make_run):
    runs = [make_run(0.5, seed=0), make_run(0.6, seed=1), make_run(0.4, method="dense", seed=0)]
    for run, digest in zip(runs, ("1" * 64, "2" * 64, "3" * 64), strict=True):
        run.summary["code"] = {"digest": digest, "commit": None}
    assert _sheet(runs).notes[1:] == ["fedhydra: run by code that differs: 11111111, 22222222."]
    runs[1].summary["code"]["digest"] = "1" * 64
    assert _sheet(runs).notes[1:] == []


@pytest.mark.parametrize(
    "other",
    [
        {"data": "digits"},
        {"models": {"clients": ["lenet5"] * 5, "server": "lenet5"}},
        {"settings": {"partition": {"alpha": 0.5}}},
        {"settings": {"distill": {"rounds": 25}}},
        {"settings": {"proxy": {"name": "holdout", "fraction": 0.2}}},
        {"settings": {"communication_rounds": 2}},
    ],
)
def test_protocols_are_never_mixed(make_run, other):
    assert len(comparable([make_run(), make_run(**other)])) == 2


def test_other_content_under_the_same_name_is_another_protocol(make_run):
    first, second = make_run(), make_run(seed=1)
    second.summary["protocol"] = "other"
    assert len(comparable(same_data_alike([first, second]))) == 2


def test_what_was_changed_in_a_method_names_its_row(make_run):
    proxy = {"method": {"source": {"_target_": "oneshot_fl.parts.sources.ProxySource"}}}
    rows = _rows(
        _sheet(
            [
                make_run(),
                make_run(changed={"ensemble.scale": 10, "init._target_": "oneshot_fl.parts.inits.Average"}),
                make_run(method="feddf", settings=proxy),
            ]
        )
    )
    assert list(rows)[:3] == ["feddf (proxy=noise 10000)", "fedhydra", "fedhydra (ensemble.scale=10, init=Average)"]


@pytest.mark.parametrize(
    ("key", "source", "ensemble"),
    [
        ("stratify", None, "oneshot_fl.methods.fedhydra.StratifiedAggregation"),
        ("recite", "oneshot_fl.parts.recitals.RecitalSource", None),
        ("recite", "somebody.elses.Source", None),
    ],
)
def test_what_only_some_methods_use_tells_their_rows_apart_and_no_others(make_run, key, source, ensemble):
    parts = {"source": source, "ensemble": ensemble}
    asks = {"method": {slot: {"_target_": part} for slot, part in parts.items() if part}}
    changes = [{key: {"steps": steps}} for steps in (30, 60)]
    asking = [make_run(method="ot", settings={**asks, **change}) for change in changes]
    others = [make_run(method="fedavg", seed=seed, settings=change) for seed, change in enumerate(changes)]
    (group,) = comparable([*asking, *others])
    assert list(rows_of(group)) == [f"ot {key}.steps=30", f"ot {key}.steps=60", "fedavg"]


def test_a_group_is_described_by_what_it_shares(make_run):
    settings = {"proxy": {"name": "holdout", "fraction": 0.2}}
    models = {"clients": ["cnn2", "lenet5", "cnn2"], "server": "vgg9"}
    assert describe(make_run(settings=settings, models=models)) == (
        "mnist, dirichlet(clients=5, alpha=0.1), 20% held out, cnn2+lenet5, server vgg9, budget paper "
        "(200 local epochs, 200 rounds of 30 generator steps)"
    )


def test_groups_that_would_be_called_alike_say_in_what_they_differ(make_run):
    runs = [make_run(settings={"data": {"root": root}}) for root in ("east", "west")]
    runs.append(make_run(settings={"data": {"root": "east"}, "partition": {"alpha": 0.5}}))
    titles = [sheet.title for sheet in own_sheets(runs, measure=LAST, against="fedavg")]
    assert [title.endswith("; data.root=east") for title in titles] == [True, False, False]
    assert titles[1].endswith("; data.root=west")
    assert "data.root" not in titles[2]  # nothing else is called like it


def test_a_method_of_the_same_name_with_other_settings_is_another_row(make_run):
    runs = [make_run(accuracy, settings={"method": {"mine": number}}) for number, accuracy in ((1, 0.2), (2, 0.4))]
    rows = _rows(_sheet(runs))
    assert rows["fedhydra method.mine=1"]["server, last round"] == "20.00"
    assert rows["fedhydra method.mine=2"]["server, last round"] == "40.00"


def test_no_run_is_lost_where_a_number_is_written_in_two_ways(make_run):
    settings = [
        {"method": {"weight": weight}, "partition": {"alpha": alpha}} for weight in (1, 1.0) for alpha in (1, 1.0)
    ]
    runs = [make_run(seed=seed, settings=each) for seed, each in enumerate(settings)]
    (group,) = comparable(runs)
    assert [run.seed for run in rows_of(group)["fedhydra"]] == [0, 1, 2, 3]


def test_what_a_row_does_not_set_is_left_out_of_its_label(make_run):
    part = {"_target_": "lab.Turned", "draw": 1, "samples": None}
    settings = [{"method": {"variations": part}}, {}, {"method": {"variations": {"_target_": "lab.Bent"}}}]
    rows = rows_of([make_run(settings=each) for each in settings])
    turned, plain, bent = rows
    assert (turned, plain, bent) == (
        "fedhydra method.variations=Turned, method.variations.draw=1",
        "fedhydra",
        "fedhydra method.variations=Bent",
    )


def test_parts_of_one_name_and_of_two_modules_are_two_rows(make_run):
    def run(module, seed):
        target = f"{module}.Warm"
        settings = {"method": {"init": {"_target_": target}}}
        return make_run(0.2 + 0.5 * seed, seed=seed, changed={"init._target_": target}, settings=settings)

    rows = _rows(_sheet([run("lab.v1", 0), run("lab.v2", 1)]))
    assert {label: row["seeds"] for label, row in list(rows.items())[:2]} == {
        "fedhydra (init=Warm) method.init=lab.v1.Warm": "0",
        "fedhydra (init=Warm) method.init=lab.v2.Warm": "1",
    }


def test_rows_that_nothing_tells_apart_are_numbered(make_run):
    runs = [make_run(seed=n, settings={"method": {"mine": mine}}) for n, mine in enumerate((1, "1"))]
    told = {label: [run.seed for run in mine] for label, mine in rows_of(runs).items()}
    assert told == {"fedhydra method.mine=1 #1": [0], "fedhydra method.mine=1 #2": [1]}


def test_groups_whose_server_or_order_of_clients_differs_say_so(make_run):
    models = [
        {"clients": ["cnn2", "lenet5"], "server": "cnn2"},
        {"clients": ["lenet5", "cnn2"], "server": "cnn2"},
    ]
    groups = comparable([make_run(models=each) for each in models])
    assert len(set(names_of(["mnist", "mnist"], groups))) == 2


def test_an_ensemble_that_methods_learn_apart_has_a_row_for_each(make_run):
    ensembles = [{"uniform": 0.5, "boosted": 0.6}, {"uniform": 0.5, "boosted": 0.7}]
    steps = [{}, {"ensemble.step": 0.1}]
    runs = [
        make_run(method="co_boosting", rows=rows, changed=changed, settings={"method": {"ensemble": {"step": number}}})
        for number, (rows, changed) in enumerate(zip(ensembles, steps, strict=True))
    ]
    rows = _rows(_sheet(runs))
    assert rows["ensemble: uniform"]["server, last round"] == "50.00"
    assert rows["ensemble: boosted of co_boosting"]["server, last round"] == "60.00"
    assert rows["ensemble: boosted of co_boosting (ensemble.step=0.1)"]["server, last round"] == "70.00"


def test_clients_that_methods_leave_apart_have_a_row_for_each(make_run):
    runs = [make_run(method=method, seed=seed) for method in ("fedavg", "dense") for seed in (0, 1)]
    runs[2].summary["clients"] = [{"accuracy": 0.9}, {"accuracy": None}]
    rows = _rows(_sheet(runs))
    assert "clients, mean" not in rows
    assert rows["clients, mean of fedavg"]["server, last round"] == "30.00 ± 0.00"
    assert rows["clients, mean of dense"]["server, last round"] == "60.00 ± 42.43"


def test_an_interrupted_seed_is_told(make_run):
    rows = _rows(_sheet([make_run(0.5), make_run(None, seed=1, status="interrupted")]))
    assert rows["fedhydra"]["not done"] == "interrupted 1"


def test_differences_are_only_taken_from_a_row_that_is_there(make_run):
    runs = [make_run(), make_run(method="dense")]
    check_against("dense", runs)
    check_against("fedavg", runs)  # what is meant where nothing is said
    with pytest.raises(
        OneshotError, match=r"--against denes: is no row of these runs, did you mean dense\?; choose from"
    ):
        check_against("denes", runs)
