import pytest

from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.tables.figures import accuracy_against_rounds, ae_against_sa, aggregation_bars, draw


def _with(run, accuracies):
    run.summary["rounds"] = [{"round": n, "accuracy": value} for n, value in enumerate(accuracies, 1)]
    return run


def test_a_line_a_method_with_the_mean_over_seeds(make_run):
    runs = [
        _with(make_run(method="dense"), [0.2, 0.4]),
        _with(make_run(method="dense", seed=1), [0.4, 0.8]),
        _with(make_run(0.3, method="fedavg"), []),
    ]
    (axes,) = accuracy_against_rounds(runs, "digits").axes
    lines = {line.get_label(): line for line in axes.lines}
    assert lines["dense"].get_ydata().round(6).tolist() == [0.3, 0.6]
    assert set(lines["fedavg"].get_ydata()) == {0.3}


def test_ae_and_sa_are_compared_where_nothing_else_differs(make_run):
    def hydra(accuracy, ensemble, **changed):
        settings = {"method": {"ensemble": {"name": ensemble}}}
        return make_run(accuracy, settings=settings, changed=changed)

    both = [hydra(0.6, "stratified"), hydra(0.4, "uniform", **{"ensemble.name": "uniform"})]
    assert aggregation_bars([both]) == {"mnist\ndirichlet 0.1": {"SA": [0.6], "AE": [0.4]}}
    assert aggregation_bars([both[:1]]) == {}
    assert aggregation_bars([[both[0], hydra(0.4, "uniform", **{"source.reset": True})]]) == {}
    without_classes = hydra(0.8, "stratified", **{"ensemble.in_model": False})
    assert aggregation_bars([[*both, without_classes]]) == {"mnist\ndirichlet 0.1": {"SA": [0.6], "AE": [0.4]}}


def _hydra(make_run, accuracy, name, seed, partition="same"):
    changed = {"ensemble.name": "uniform"} if name == "uniform" else {}
    run = make_run(accuracy, seed=seed, changed=changed, settings={"method": {"ensemble": {"name": name}}})
    run.summary["partition"] = {"sha256": partition}
    return run


def test_bars_are_of_the_seeds_that_both_have_on_one_partition(make_run):
    """Seed 0 is only SA's, seed 3 only AE's, and seed 2 is on two partitions."""
    sa = [_hydra(make_run, 0.6 + seed / 100, "stratified", seed) for seed in (0, 1, 2)]
    ae = [_hydra(make_run, 0.4, "uniform", 1), _hydra(make_run, 0.5, "uniform", 2, "other")]
    ae.append(_hydra(make_run, 0.3, "uniform", 3))
    assert aggregation_bars([[*sa, *ae]]) == {"mnist\ndirichlet 0.1": {"SA": [0.61], "AE": [0.4]}}
    assert aggregation_bars([[sa[0], *ae]]) == {}


def test_bars_tell_their_seeds_and_one_seed_has_no_error_bar(make_run):
    bars = {"one": {"AE": [0.4], "SA": [0.6]}, "two": {"AE": [0.4, 0.6], "SA": [0.5, 0.7]}}
    (axes,) = ae_against_sa(bars).axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["one\n(n = 1)", "two\n(n = 2)"]
    for drawn, mean in zip(axes.containers[1::2], (0.5, 0.6), strict=True):
        one, two = drawn.errorbar.lines[2][0].get_segments()
        assert not len(one)
        # of two values the sample standard deviation is their distance over the root of 2
        assert two[:, 1] == pytest.approx([mean - 0.2 / 2**0.5, mean + 0.2 / 2**0.5])


def test_two_stratifications_are_two_pairs_of_bars_and_no_seed_counts_twice(make_run):
    def hydra(accuracy, name, seed, steps=30):
        settings = {"method": {"ensemble": {"name": name}}, "stratify": {"steps": steps}}
        changed = {"ensemble.name": "uniform"} if name == "uniform" else {}
        return make_run(accuracy, seed=seed, settings=settings, changed=changed)

    runs = [hydra(0.5 + seed / 100, "uniform", seed) for seed in (0, 1)]
    runs += [hydra(steps / 100 + seed / 100, "stratified", seed, steps) for seed in (0, 1) for steps in (20, 60)]
    bars = aggregation_bars([runs])
    assert [pair["SA"] for pair in bars.values()] == [pytest.approx([0.2, 0.21]), pytest.approx([0.6, 0.61])]
    assert [pair["AE"] for pair in bars.values()] == [[0.5, 0.51]] * 2
    assert [name.rpartition("\n")[2] for name in bars] == [
        "fedhydra stratify.steps=20",
        "fedhydra stratify.steps=60",
    ]


def test_bars_of_settings_that_would_be_called_alike_are_two(make_run):
    def group(epochs):
        settings = {"clients": {"epochs": epochs}}
        kinds = ({}, {"ensemble.name": "uniform"})
        names = ("stratified", "uniform")
        return [
            make_run(changed=changed, settings={**settings, "method": {"ensemble": {"name": name}}})
            for name, changed in zip(names, kinds, strict=True)
        ]

    bars = aggregation_bars([group(1), group(2)])
    assert [name.rpartition("; ")[2] for name in bars] == ["clients.epochs=1", "clients.epochs=2"]


def test_pictures_are_written(make_run, tmp_path):
    settings = {"method": {"ensemble": {"name": "uniform"}}}
    runs = [
        make_run(settings={"method": {"ensemble": {"name": "stratified"}}}),
        make_run(settings=settings, changed={"ensemble.name": "uniform"}),
    ]
    assert [path.name for path in draw(runs, tmp_path)] == ["rounds-1.png", "aggregation.png"]


def test_figures_of_earlier_runs_are_not_left_beside_new_ones(make_run, tmp_path):
    for name in ("rounds-1.png", "rounds-12.png", "aggregation.png", "rounds-mine.png"):
        (tmp_path / name).touch()
    draw([make_run()], tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["rounds-1.png", "rounds-mine.png"]


def test_a_place_for_pictures_that_is_none_is_one_line(make_run, tmp_path):
    runs = [_with(make_run(), [0.2, 0.4])]
    (tmp_path / "file").touch()
    with pytest.raises(OneshotError, match=r"^\S+/file: cannot be written \(File exists\)"):
        draw(runs, tmp_path / "file")
    (tmp_path / "rounds-1.png").mkdir()
    with pytest.raises(OneshotError, match=rf"^{tmp_path}: cannot be written \(Is a directory\)"):
        draw(runs, tmp_path)
