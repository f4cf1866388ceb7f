from oneshot_fl.reporting.tables.papers.matching import fits
from oneshot_fl.reporting.tables.papers.parts import split
from oneshot_fl.reporting.tables.papers.published import of_study


def _parts(*runs, study="fedhydra/table1"):
    return split([(cell, run) for cell in of_study(study) for run in runs if fits(cell, run, by_model=False)])


def _methods(part):
    return [(cell.method, cell.data) for cell in part.found]


def test_the_papers_protocol_comes_first(make_run):
    reduced = make_run(settings={"clients": {"epochs": 8}})
    first, second = _parts(reduced, make_run(), make_run(method="dense"))
    assert _methods(first) == [("dense", "mnist"), ("fedhydra", "mnist")]
    assert first.told == ()
    assert second.told == ("clients.epochs=8 instead of 200",)


def test_a_method_that_does_not_use_a_key_shares_the_sheet_of_those_that_deviate_in_it(make_run):
    (part,) = _parts(make_run(method="fedavg"), make_run(method="dense", settings={"distill": {"rounds": 5}}))
    assert part.told == ("distill.rounds=5 instead of 200",)


def test_a_deviation_is_told_with_its_method_where_others_use_the_key(make_fedmho_run):
    runs = [make_fedmho_run("dense", rounds=5), make_fedmho_run("co_boosting")]
    (part,) = _parts(*runs, study="fedmho/table4")
    assert part.told == ("dense: distill.rounds=5 instead of 200",)


def test_what_papers_do_not_state_parts_runs_too_and_says_so(make_run):
    plain, mixed = ({"trainer": {"precision": precision}} for precision in ("32-true", "bf16-mixed"))
    first, second = _parts(make_run(settings=plain), make_run(settings=mixed), make_run(method="dense", settings=plain))
    assert [len(part.found) for part in (first, second)] == [2, 1]
    assert (first.distinct, second.distinct) == (("trainer.precision=32-true",), ("trainer.precision=bf16-mixed",))
    assert first.told == second.told == ()


def test_other_data_under_one_name_part_runs_but_data_sets_do_not(make_run):
    at = {"data": {"root": "east"}}, {"data": {"root": "west"}}
    assert len(_parts(make_run(settings=at[0]), make_run(settings=at[1]))) == 2
    assert len(_parts(make_run(settings=at[0]), make_run(data="svhn", settings=at[1]))) == 1
