from dataclasses import replace

import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.tables.estimates import estimate
from oneshot_fl.reporting.tables.measures import measure_of
from oneshot_fl.reporting.tables.rank_sheets import field_of, rank_sheets

LAST = measure_of("accuracy", which="last")
REACHED = {
    0.1: {"fedavg": (0.3, 0.4), "dense": (0.5, 0.3), "fedhydra": (0.7, 0.5)},
    0.5: {"fedavg": (0.8, 0.8), "dense": (0.7, 0.7), "fedhydra": (0.9, 0.6)},
}
"""By alpha and method, of seeds 0 and 1: the ranks are 3 2 1, 2 3 1, 2 3 1 and 1 2 3."""


@pytest.fixture
def runs(make_runs):
    return make_runs(REACHED)


def test_a_block_is_a_seed_of_a_setting(runs):
    field = field_of(runs, LAST)
    assert [(place.name, sorted(place.seeds)) for place in field.places] == [
        ("mnist, dirichlet 0.1, cnn2", [0, 1]),
        ("mnist, dirichlet 0.5, cnn2", [0, 1]),
    ]
    assert field.ranking.ranks == {"fedhydra": 1.5, "fedavg": 2.0, "dense": 2.5}


def test_the_tables_tell_ranks_tests_and_differences(runs):
    averages, by_setting, differences = rank_sheets(field_of(runs, LAST), LAST)
    assert averages.rows == [["fedhydra", "1.50", "3"], ["fedavg", "2.00", "1"], ["dense", "2.50", "0"]]
    # 12 / (4 * 3 * 4) * (36 + 64 + 100) - 3 * 4 * 4
    assert "4 blocks, Friedman's chi-square 2.00 (p = 0.368), Kendall's W 0.25" in averages.notes[1]
    # Seeds averaged first, FedHydra, FedAvg, DENSE have 60, 35, 40 and 75, 80, 70: 12 / 24 * (9 + 16 + 25) - 24
    assert "2 blocks, Friedman's chi-square 1.00 (p = 0.607), Kendall's W 0.25" in averages.notes[2]
    assert [row[1:] for row in by_setting.rows] == [
        ["2", "1.00", "2.50", "2.50", "+0.82"],
        ["2", "2.00", "1.50", "2.50", "+0.33"],
    ]
    assert [record["difference"] for record in differences.records] == pytest.approx([0.1, 0.125, 0.025])
    assert differences.rows[1][:2] == ["fedavg", ""]


def test_a_block_has_the_value_of_those_of_its_rows_that_use_a_setting(make_run):
    def steps(method, alpha):
        return {0.1: 20, 0.5: 30}[alpha] if method == "fedhydra" else 9

    runs = [
        make_run(
            value,
            method=method,
            seed=seed,
            settings={"partition": {"alpha": alpha}, "stratify": {"steps": steps(method, alpha)}},
        )
        for alpha, rows in REACHED.items()
        for method, values in rows.items()
        for seed, value in enumerate(values)
    ]
    by_steps = rank_sheets(field_of(runs, LAST), LAST, ["stratify.steps"])[1]
    assert [row[:2] for row in by_steps.rows] == [["20", "2"], ["30", "2"]]


def test_what_differs_between_the_rows_of_a_block_tells_nothing_of_it(make_run):
    runs = [
        make_run(value, method=method, seed=seed, study="new" if (method, seed) == ("dense", 1) else "old")
        for method, values in REACHED[0.1].items()
        for seed, value in enumerate(values)
    ]
    with pytest.raises(
        OneshotError, match=r"^--by study: in mnist, .*, seed 1, is old of fedhydra and new of dense, so it"
    ):
        rank_sheets(field_of(runs, LAST), LAST, ["study"])


def test_rows_whose_seeds_were_run_by_other_code_are_named(runs):
    for run in runs:
        run.summary["code"] = {"digest": "b" if (run.method, run.seed) == ("dense", 1) else "a", "commit": None}
    (notes,) = (sheet.notes for sheet in rank_sheets(field_of(runs, LAST), LAST)[:1])
    assert "Seeds of one setting were run by code that differs: dense." in notes


def test_a_row_with_other_settings_of_its_own_in_another_setting_is_named(runs):
    runs = [
        replace(run, settings=run.settings | {"stratify": {"steps": 5 if run.spread == "0.1" else 60}}) for run in runs
    ]
    (notes,) = (sheet.notes for sheet in rank_sheets(field_of(runs, LAST), LAST)[:1])
    assert "fedhydra is not the same everywhere: stratify.steps=5; stratify.steps=60." in notes
    assert not any("dense is not" in note for note in notes)  # it does not use them


def test_ranks_are_told_by_the_values_of_a_setting(runs):
    """Of FedAvg, DENSE and FedHydra: at seed 0 they are 3 2 1 and 2 3 1, at seed 1 2 3 1 and 1 2 3."""
    by_alpha, by_seed = rank_sheets(field_of(runs, LAST), LAST, ["partition", "seed"])[1:3]
    assert [row[:5] for row in by_alpha.rows] == [
        ["dirichlet 0.1", "2", "1.00", "2.50", "2.50"],
        ["dirichlet 0.5", "2", "2.00", "1.50", "2.50"],
    ]
    assert [(row[0], row[2:5]) for row in by_seed.rows] == [
        ("0", ["1.00", "2.50", "2.50"]),
        ("1", ["2.00", "1.50", "2.50"]),
    ]
    # Of three pairs FedHydra and DENSE agree, FedHydra and FedAvg do not, and seed 0 has the third level
    assert by_seed.notes[1] == "Tau of two: 0 and 1 +0.00."


@pytest.mark.parametrize(
    ("key", "line"),
    [
        ("partition.alhpa", "--by partition.alhpa: no run has a setting partition.alhpa, did you mean partition.alpha"),
        ("data", "--by data: is mnist in all settings that are ranked"),
    ],
)
def test_a_setting_without_two_values_is_told(runs, key, line):
    with pytest.raises(OneshotError, match=line):
        rank_sheets(field_of(runs, LAST), LAST, [key])


def test_seeds_and_settings_without_all_rows_are_left_out(runs, make_run):
    alone = make_run(0.9, method="dense", seed=2, settings={"partition": {"alpha": 0.1}})
    elsewhere = make_run(0.9, method="dense", data="svhn")
    field = field_of([*runs, alone, elsewhere], LAST)
    assert (len(field.blocks), field.left_out) == (4, 1)
    assert "Left out, as a row is missing: 1 settings." in rank_sheets(field, LAST)[0].notes


def test_one_unfinished_method_leaves_the_seeds_of_the_others(runs, make_run):
    """Three rows over four blocks are twelve runs; four rows over one block were four."""
    begun = make_run(0.9, method="co_boosting", seed=0, settings={"partition": {"alpha": 0.1}})
    field = field_of([*runs, begun], LAST)
    assert (field.rows, len(field.blocks)) == (["fedavg", "dense", "fedhydra"], 4)
    notes = rank_sheets(field, LAST)[0].notes
    assert "Not ranked, as too few seeds and settings have them: co_boosting." in notes
    named = rank_sheets(field_of([*runs, begun], LAST, ["dense", "fedhydra", "fedavg"]), LAST)[0].notes
    assert not any(note.startswith("Not ranked") for note in named)


def test_rows_that_no_block_has_alone_are_ranked_where_two_blocks_share_them(make_run):
    methods = {0: ("fedavg", "dense", "fedhydra", "ot"), 1: ("fedavg", "dense", "fedhydra", "co_boosting")}
    found = [make_run(0.5, method=method, seed=seed) for seed, of in methods.items() for method in of]
    assert field_of(found, LAST).rows == ["fedavg", "dense", "fedhydra"]


def test_seeds_without_a_row_are_told(runs, make_run):
    more = [
        make_run(0.9, method=method, seed=2, settings={"partition": {"alpha": 0.1}}) for method in ("dense", "fedavg")
    ]
    field = field_of([*runs, *more], LAST)
    assert (len(field.blocks), field.seeds_left_out) == (4, 1)
    assert "Left out of the others, as a row is missing: 1 seeds." in rank_sheets(field, LAST)[0].notes


def test_rows_that_are_not_ranked_leave_out_no_seed_or_setting(runs, make_run):
    more = [make_run(0.9, method="ot", seed=seed, settings={"partition": {"alpha": 0.1}}) for seed in range(10)]
    elsewhere = make_run(0.9, method="ot", data="svhn")
    field = field_of([*runs, *more, elsewhere], LAST, ["fedavg", "dense", "fedhydra"])
    assert (len(field.blocks), field.left_out, field.seeds_left_out) == (4, 0, 0)


def _on_another_partition(runs, *blocks):
    """DENSE's runs of these (alpha, seed) are on another partition than those of the other rows."""
    for run in runs:
        other = run.method == "dense" and (run.setting("partition.alpha"), run.seed) in blocks
        run.summary["partition"] = {"sha256": "other" if other else "same"}
    return runs


def test_a_seed_whose_rows_are_on_two_partitions_is_no_block_and_told(runs):
    field = field_of(_on_another_partition(runs, (0.1, 1)), LAST)
    assert [sorted(place.seeds) for place in field.places] == [[0], [0, 1]]
    assert (field.left_out, field.seeds_left_out) == (0, 0)
    notes = rank_sheets(field, LAST)[0].notes
    assert (
        "mnist, dirichlet 0.1, cnn2: Partitions differ in seed 1, where these are not compared with one another: "
        "fedavg, fedhydra; dense."
    ) in notes
    whole = field_of(_on_another_partition(runs, (0.1, 0), (0.1, 1)), LAST)
    assert [place.name for place in whole.places] == ["mnist, dirichlet 0.5, cnn2"]
    assert (whole.left_out, len(whole.not_compared)) == (0, 1)


def test_rows_that_are_on_two_partitions_everywhere_are_not_ranked_together(runs, make_run):
    alphas_and_seeds = [(alpha, seed) for alpha in REACHED for seed in (0, 1)]
    ot = [make_run(0.5, method="ot", seed=s, settings={"partition": {"alpha": a}}) for a, s in alphas_and_seeds]
    found = _on_another_partition([*runs, *ot], *alphas_and_seeds)
    assert field_of(found, LAST).rows == ["fedavg", "ot", "fedhydra"]
    line = (
        r"have all of fedavg, dense, ot on one partition\. mnist, dirichlet 0\.1, cnn2: Partitions differ in seeds 0, 1"
    )
    with pytest.raises(OneshotError, match=line):
        field_of(found, LAST, ["fedavg", "dense", "ot"])


def test_a_figure_that_no_run_tells_is_the_cause(runs):
    with pytest.raises(OneshotError, match=r"^--ranks: 0 rows to rank; 12 finished runs do not tell it; run"):
        field_of(runs, measure_of("ece", which="last"))


def test_rows_are_chosen_by_method_or_label(runs, make_run):
    settings = {"partition": {"alpha": 0.1}, "method": {"source": {"reset": False}}}
    kept = [make_run(0.9, method="dense", seed=s, settings=settings, changed={"source.reset": False}) for s in (0, 1)]
    label = "dense (source.reset=False)"
    assert field_of([*runs, *kept], LAST, ["fedavg", label, "fedhydra"]).ranking.ranks[label] == 1
    assert field_of(runs, LAST, ["dense", "fedhydra", "fedavg", "dense"]).rows == ["dense", "fedhydra", "fedavg"]


def _kept(make_run, alpha, method="dense"):
    settings = {"partition": {"alpha": alpha}, "method": {"source": {"reset": False}}}
    changed = {"source.reset": False}
    return [make_run(0.9, method=method, seed=seed, settings=settings, changed=changed) for seed in (0, 1)]


def test_a_row_is_never_one_of_another_label_elsewhere(runs, make_run):
    plain = [run for run in runs if run.method != "dense" or run.setting("partition.alpha") == 0.1]
    for wanted in ([], ["fedavg", "dense", "fedhydra"]):
        field = field_of([*plain, *_kept(make_run, 0.5)], LAST, wanted)
        assert [place.name for place in field.places] == ["mnist, dirichlet 0.1, cnn2"]
        assert field.left_out == 1


def test_a_method_that_is_no_label_says_what_it_stands_for(runs, make_run):
    kept = [run for alpha in REACHED for run in _kept(make_run, alpha, "ot")]
    unused = make_run(method="ot", data="svhn", changed={"solver.steps": 2})
    field = field_of([*runs, *kept, unused], LAST, ["fedavg", "ot", "fedhydra"])
    assert len(field.blocks) == 4
    assert "ot stands for ot (source.reset=False)." in rank_sheets(field, LAST)[0].notes
    assert not any("stands for" in note for note in rank_sheets(field_of(runs, LAST), LAST)[0].notes)


def test_a_row_that_is_none_or_several_is_told_with_those_that_there_are(runs, make_run):
    with pytest.raises(
        OneshotError, match=r"--row dens: is no row of these runs, did you mean dense\?; choose from fed"
    ):
        field_of(runs, LAST, ["fedavg", "dens", "fedhydra"])
    other = make_run(method="ot", settings={"partition": {"alpha": 0.1}}, changed={"solver.steps": 2})
    several = [*runs, *_kept(make_run, 0.1, "ot"), other]
    line = r"--row ot: is several rows of one setting; choose from ot \(source.reset=False\), ot \(solver.steps=2\)"
    with pytest.raises(OneshotError, match=line):
        field_of(several, LAST, ["fedavg", "ot", "fedhydra"])


def test_without_choice_the_rows_are_those_that_rank_most_runs(runs, make_run):
    begun = make_run(0.9, method="fedavg", data="svhn")
    only_here = make_run(0.9, method="ot", settings={"partition": {"alpha": 0.5}})
    assert field_of([*runs, begun], LAST).rows == ["fedavg", "dense", "fedhydra"]
    assert field_of([*runs, only_here], LAST).rows == ["fedavg", "dense", "fedhydra"]


def test_what_is_better_low_is_ranked_so(runs):
    errors = [run for run in runs if run.summary]
    for run in errors:
        run.summary["server"]["ece"] = run.summary["server"]["accuracy_last"]
    ece = measure_of("ece", which="last")
    field = field_of(errors, ece)
    assert list(field.ranking.ranks) == ["dense", "fedavg", "fedhydra"]
    differences = rank_sheets(field, ece)[-1].records
    assert next((each["row"], each["minus"]) for each in differences) == ("dense", "fedavg")
    assert all(each["difference"] < 0 for each in differences)  # the better row's error is the smaller one


@pytest.mark.parametrize(
    ("wanted", "line"),
    [
        (["fedavg", "dense"], "--ranks: 2 rows to rank; name 3 or more by --row"),
        (["fedavg", "dense", "ot"], "--ranks: no two seeds or settings have all of fedavg, dense, ot; name fewer by"),
    ],
)
def test_too_little_to_rank_is_one_line(runs, make_run, wanted, line):
    with pytest.raises(OneshotError, match=line):
        field_of([*runs, make_run(method="ot", data="svhn")], LAST, wanted)


def test_intervals_of_the_differences_hold_for_all_pairs_together(runs):
    field = field_of(runs, LAST)
    records = next(
        sheet.records
        for sheet in rank_sheets(field, LAST)
        if "simultaneous_ci95_half_width" in (sheet.records or [{}])[0]
    )
    assert len(records) == 3  # pairs of three rows
    for each in records:
        gaps = [block[each["row"]] - block[each["minus"]] for block in field.blocks]
        assert each["simultaneous_ci95_half_width"] == estimate(gaps, comparisons=3).half_width


def test_who_shares_the_first_rank_is_not_the_best_of_a_block(make_runs):
    tied = {0.1: {"fedavg": (0.5, 0.5), "dense": (0.5, 0.3), "fedhydra": (0.2, 0.2)}}
    averages, *_ = rank_sheets(field_of(make_runs(tied), LAST), LAST)
    assert {row: best for row, _, best in averages.rows} == {"fedavg": "1", "dense": "0", "fedhydra": "0"}
