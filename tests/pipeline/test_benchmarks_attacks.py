"""The attacks' benchmark: which rows are results, which are kept for done, and how they become tables."""

import json
import re
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

import oneshot_fl
from benchmarks import attacks
from benchmarks.attack_table import read_rows, table
from benchmarks.honest_uploads import samples
from oneshot_fl.errors import OneshotError
from oneshot_fl.seeds import torch_generator

KEPT = Path(__file__).parents[2] / "docs" / "results" / "attacks.ndjson"
CASE = {
    "method": "fedavg",
    "clients": 5,
    "hostile": 1,
    "seed": 0,
    "overrides": ["trainer=cpu"],
    "gate": "none",
    "attack": "scale",
}


def _row(**changes) -> dict:
    return {**CASE, "code": "now", "server": 0.5, **changes}


def test_only_runs_of_the_same_settings_are_averaged():
    rows = [
        _row(server=0.8, overrides=["a=1", "b=1"]),
        _row(server=0.9, overrides=["a=1", "b=1"], seed=1),
        _row(server=0.2, overrides=["a=1", "b=2"]),
        _row(server=0.4, overrides=["a=1", "b=1"], hostile=2),
    ]
    assert table(rows).splitlines() == [
        "| clients | hostile | method | gate | overrides | scale |",
        "| --- | --- | --- | --- | --- | --- |",
        "| 5 | 1 | fedavg | none | b=1 | 85.0 ± 7.1 (2) |",
        "| 5 | 1 | fedavg | none | b=2 | 20.0 (1) |",
        "| 5 | 2 | fedavg | none | b=1 | 40.0 (1) |",
    ]


def test_of_a_run_that_was_done_again_the_last_row_counts():
    assert table([_row(server=0.8, code="before"), _row(server=0.2)]).endswith("| 20.0 (1) |")


def test_a_measure_that_a_method_lacks_is_a_dash_and_no_error():
    rows = [_row(stratified=0.5), _row(method="dense"), _row(attack="zero", error="diverged")]
    assert table(rows, "stratified").splitlines()[2:] == [
        "| 5 | fedavg | none | 50.0 (1) | error (1) |",
        "| 5 | dense | none | - | - |",
    ]


@pytest.mark.parametrize(
    ("content", "what", "says"),
    [
        ("absent", "server", "cannot be read"),
        ("[\n{}\n]", "server", "OUT.jsonl:1: is no"),
        (json.dumps(_row(uniform=0.5)), "no_such", "must be one of backdoor, server, uniform"),
    ],
)
def test_what_no_table_can_be_made_of_is_one_line(content, what, says, tmp_path, monkeypatch, capsys):
    if content != "absent":
        (tmp_path / "OUT.jsonl").write_text(content)
    assert _ends(monkeypatch, str(tmp_path / "OUT.jsonl"), "--table", what) == 2
    told = capsys.readouterr().err.splitlines()
    assert len(told) == 1
    assert says in told[0]


def test_the_kept_rows_make_a_table():
    lines = table(read_rows(KEPT)).splitlines()
    assert "overrides" in lines[0]
    assert any("40.4 ± 0.7 (3)" in line for line in lines)


def _ends(monkeypatch, *arguments: str) -> object:
    monkeypatch.setattr(sys, "argv", ["attacks", *arguments])
    with pytest.raises(SystemExit) as end:
        attacks.main()
    return end.value.code


@pytest.mark.parametrize("wrong", ["partition.alpah=0.1", "attack.clients=-1", "data=image_folder data.root=/nowhere"])
def test_a_mistake_ends_it_before_anything_is_run_or_written(wrong, tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(oneshot_fl, "run", None)
    few = ("--methods", "fedavg", "--gates", "none", "--attacks", "scale")
    assert _ends(monkeypatch, str(tmp_path / "OUT.jsonl"), *few, "--overrides", *wrong.split(), "trainer=cpu") == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert wrong.split()[-1].partition("=")[0] in line
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_told_before_anything_is_run(tmp_path):
    with pytest.raises(OneshotError, match="there is no folder"):
        attacks.work_off([CASE], tmp_path / "absent" / "OUT.jsonl")


def test_only_rows_of_the_same_code_are_taken_for_done(tmp_path, monkeypatch):
    ran = []
    monkeypatch.setattr(attacks, "codes_of", lambda cases: ["now"] * len(cases))
    monkeypatch.setattr(attacks, "outcome", lambda case, folder: ran.append(case["seed"]) or {"server": 0.5})
    out = tmp_path / "OUT.jsonl"
    rows = [_row(seed=0), _row(seed=1, code="before"), {key: CASE[key] for key in CASE} | {"seed": 2}]
    out.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for _ in range(2):
        assert attacks.work_off([{**CASE, "seed": seed} for seed in range(3)], out) == 0
    assert ran == [1, 2]
    assert [row.get("code") for row in read_rows(out)] == ["now", "before", None, "now", "now"]
    assert read_rows(out)[-1].keys() >= {"commit"}


def test_settings_are_tried_once_for_all_seeds_and_data_once_for_all_attacks(monkeypatch):
    tried, prepared = [], []
    experiment = SimpleNamespace(record={"code": {"digest": "now"}}, data=0, partition=0, proxy=0)
    monkeypatch.setattr(attacks, "from_overrides", lambda *words: tried.append(words) or (lambda: experiment, {}, {}))
    monkeypatch.setattr(attacks, "prepare", lambda *plans, device: prepared.append(plans))
    cases = [{**CASE, "seed": seed, "attack": attack} for seed in range(2) for attack in ("scale", "zero", "noise")]
    assert attacks.codes_of(cases) == ["now"] * 6
    assert (len(tried), len(prepared)) == (4, 2)


def _outcome(monkeypatch, error: Exception, tmp_path: Path, **changes) -> dict:
    def fails(*_overrides, folder):
        raise error

    monkeypatch.setattr(oneshot_fl, "run", fails)
    return attacks.outcome({**CASE, **changes}, tmp_path)


def test_an_error_that_an_attack_caused_is_a_result(tmp_path, monkeypatch):
    for error in (OneshotError("the student diverged"), ValueError("not finite")):
        assert _outcome(monkeypatch, error, tmp_path) == {"error": str(error)}


def test_an_error_of_the_machine_or_without_an_attack_is_none(tmp_path, monkeypatch):
    full = OneshotError("store: cannot be written (No space left on device)")
    full.__cause__ = OSError(28, "No space left on device")
    machine = [full, OSError("gone"), MemoryError(), torch.OutOfMemoryError(), RuntimeError("can't allocate memory")]
    for error in machine:
        with pytest.raises(attacks.NotMeasuredError):
            _outcome(monkeypatch, error, tmp_path)
    with pytest.raises(attacks.NotMeasuredError, match="diverged"):
        _outcome(monkeypatch, OneshotError("diverged"), tmp_path, attack="none")


def test_what_was_not_measured_is_told_and_tried_again(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(attacks, "codes_of", lambda cases: ["now"] * len(cases))
    monkeypatch.setattr(oneshot_fl, "run", lambda *_, folder: (_ for _ in ()).throw(OSError("no room")))
    assert attacks.work_off([CASE], tmp_path / "OUT.jsonl") == 1
    assert "no room" in capsys.readouterr().err
    assert not (tmp_path / "OUT.jsonl").exists()


def test_every_case_has_a_folder_of_its_own(tmp_path):
    cases = [CASE, {**CASE, "hostile": 2}, {**CASE, "overrides": []}, {**CASE, "seed": 1}]
    assert len({attacks.place_of(case, tmp_path) for case in cases}) == len(cases)


def test_every_honest_client_has_a_draw_of_its_own():
    """Of Dir(0.05) one class is nearly all, which tells the draws apart."""
    labels = torch.arange(10).repeat(50)
    data, rng = SimpleNamespace(train_labels=labels, spec=SimpleNamespace(classes=10)), torch_generator(100, "honest")
    most = [int(labels[samples(data, 0, rng)].mode().values) for _ in range(6)]
    assert len(set(most)) > 2


RESULTS, HOWTO = KEPT.with_suffix(".md"), KEPT.parents[1] / "howto" / "attacks.md"
SERVERS = {
    "FedChorus, server": "fedchorus",
    "DENSE, server": "dense",
    "Co-Boosting, server": "co_boosting",
    "FedHydra, server": "fedhydra",
    "FedISCA, server": "fedisca",
}


def _cells(page: str) -> list[list[str]]:
    return [[cell.strip(" `") for cell in line.strip("|").split("|")] for line in page.splitlines() if line[:1] == "|"]


def _of_one_seed(row):
    """A result of the digits' first seed, one of five, in which the hearing turned nobody away."""
    here = row["hostile"] == 1 and row["seed"] == 0 and "partition.alpha=0.1" in row["overrides"] and "server" in row
    return here and not any("contradicts" in (reason or "") for reason in row["quarantined"])


def test_every_accuracy_of_one_seed_on_the_results_page_is_in_the_rows():
    lines = _cells(RESULTS.read_text().partition("Seed 0 only")[2].partition("\n- ")[0])
    found: dict[tuple[str, str, str], set[str]] = {}  # some in both precisions
    for row in filter(_of_one_seed, read_rows(KEPT)):
        quarantined = row["gate"] == "checks" and any(row["quarantined"])
        attack = "scale" if quarantined else row["attack"]  # the column of all quarantined kinds
        found.setdefault((row["method"], row["gate"], attack), set()).add(f"{100 * row['server']:.1f}")
    method, checked = "", 0
    for name, gate, *cells in lines[2:]:
        method = SERVERS.get(name, method)
        for attack, cell in zip(["none", "scale", *(each.split("`")[0] for each in lines[0][4:])], cells, strict=True):
            if cell[:1].isdigit():
                assert cell.split()[0] in found[method, gate, attack], (method, gate, attack)
                checked += 1
            elif gate == "none" and attack not in ("scale", "negative_variance"):
                assert (method, gate, attack) not in found
    assert checked >= 20


def _numbers(page: Path) -> set[str]:
    return set(re.findall(r"\d+\.\d(?: ± \d+\.\d)?", "\n".join(map(str, _cells(page.read_text())))))


def test_the_how_to_has_the_results_pages_numbers():
    assert len(_numbers(HOWTO)) >= 20
    assert _numbers(HOWTO) <= _numbers(RESULTS)
