import csv
import io
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from oneshot_fl.process import UNREAD
from oneshot_fl.reporting.tables.__main__ import main
from oneshot_fl.reporting.tables.runs import FACTS


@pytest.fixture
def sweep(make_run, tmp_path):
    for method in ("fedavg", "dense"):
        run = make_run(method=method, data="digits", settings={"partition": {"alpha": 0.5}})
        folder = tmp_path / "sweep" / method
        folder.mkdir(parents=True)
        record = {name: getattr(run, name) for name in FACTS}
        (folder / "summary.json").write_text(json.dumps({**record, "overrides": [], **run.summary}))
    return tmp_path / "sweep"


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        ("markdown", "| fedavg | 0 |"),
        ("latex", r"\caption{digits, dirichlet(clients=5, alpha=0.5)"),
        ("csv", "table,metric,row,n,seeds,mean,std,ci95_half_width,paired_n,paired_difference"),
        ("terminal", "│ fedavg "),
    ],
)
def test_one_command_prints_all_formats_and_draws(sweep, tmp_path, capsys, layout, told):
    main([str(sweep), "--format", layout, "--figures", str(tmp_path / "figures")])
    assert told in capsys.readouterr().out
    assert (tmp_path / "figures" / "rounds-1.png").stat().st_size > 1000


def test_what_runs_cost_instead_of_what_they_reach(sweep, capsys):
    entry = {"seconds": 2.0, "cpu_seconds": 1.0, "macs": 3, "upload_bytes": 5_000_000, "download_bytes": 0}
    unknown = dict.fromkeys(("peak_host_bytes", "peak_device_bytes", "cpu_joules", "gpu_joules"))
    for path in sweep.rglob("summary.json"):
        path.write_text(json.dumps({**json.loads(path.read_text()), "cost": {"clients": {**entry, **unknown}}}))
    main([str(sweep), "--cost", "--format", "markdown"])
    out = capsys.readouterr().out
    assert "| clients, s | all, s | CPU, s |" in out
    assert "| fedavg | 1 | 2 | 2 | 1 |" in out
    assert "server, last round" not in out


def test_how_methods_rank(tmp_path, capsys):
    main([str(RESULTS[0].parent / "digits.jsonl"), "--ranks", "--format", "csv", "--figures", str(tmp_path)])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    ranks = {row["row"]: float(row["average_rank"]) for row in rows if row["table"] == "Average ranks"}
    assert {"fedavg", "dense (source.reset=False)", "fedhydra"} < set(ranks)
    assert sum(ranks.values()) == pytest.approx(len(ranks) * (len(ranks) + 1) / 2)
    assert (tmp_path / "ranks.png").stat().st_size > 1000


@pytest.mark.parametrize(
    ("layout", "told"),
    [
        ("markdown", "| dense | **60.00** |\n| clients, mean | 30.00 |"),
        ("latex", "dense & \\textbf{60.00} \\\\\nclients, mean & 30.00 \\\\"),
        ("csv", 'accuracy_last,dense,"server, last round",1,0,0.6,'),
        ("terminal", "│ dense         │"),
    ],
)
def test_one_table_over_all_settings(sweep, capsys, layout, told):
    main([str(sweep), "--wide", "--row", "dense", "--row", "clients, mean", "--format", layout])
    out = capsys.readouterr().out
    assert told in out
    assert "fedavg" not in out


def test_runs_without_a_result_are_counted_beside_the_wide_table(sweep, capsys):
    (sweep / "run.json").write_text(json.dumps({"status": "failed", "error": "wrong", "overrides": []}))
    main([str(sweep), "--wide", "--where", "method=dense,fedavg"])
    assert capsys.readouterr().err == ""  # a run that never had settings has none of these
    main([str(sweep), "--wide"])
    assert capsys.readouterr().err == "oneshot_fl: 1 of 3 runs without a result; --failed lists them\n"


@pytest.mark.parametrize("view", [[], ["--wide"], ["--failed"], ["--cost"]])
def test_jobs_that_have_not_begun_are_counted_beside_every_view(sweep, capsys, view):
    main([str(sweep), *view], to_do=lambda folders: 3 * (folders == [sweep]))
    assert "oneshot_fl: 3 jobs have not begun; oneshot-fl status SWEEP tells" in capsys.readouterr().err
    main([str(sweep), *view, "--where", "method=dense"], to_do=lambda _: 3)
    assert "have not begun" not in capsys.readouterr().err


def test_a_papers_table_by_name(sweep, capsys):
    main([str(sweep), "--paper", "fedhydra/table1"])
    out = capsys.readouterr().out
    assert out.startswith("**FedHydra, Table 1 (")
    assert "| svhn | 0.5 | paper | 65.50 |" in out


def test_runs_without_a_result_are_counted_and_listed_with_their_commands(sweep, capsys):
    trace = {"status": "failed", "error": "logger=null: wrong", "overrides": ["logger=null", "seed=1"]}
    (sweep / "run.json").write_text(json.dumps(trace))
    main([str(sweep)])
    assert capsys.readouterr().err == "oneshot_fl: 1 of 3 runs without a result; --failed lists them\n"
    main([str(sweep), "--failed", "--format", "markdown"])
    out = capsys.readouterr().out
    again = f"python -m oneshot_fl logger=null seed=1 'hydra.run.dir=\"{sweep}\"'"
    assert f"| not known | failed | logger=null: wrong | {sweep} | {again} |" in out
    assert "fedavg" not in out


RESULTS = sorted((Path(__file__).parents[4] / "docs" / "results").rglob("*.jsonl"))


@pytest.mark.parametrize("file", RESULTS, ids=lambda path: path.stem)
def test_every_published_result_is_read_and_stands_in_a_table(file, capsys):
    main([str(file), "--format", "csv"])
    rows = list(csv.DictReader(io.StringIO(capsys.readouterr().out)))
    ours = [row for row in rows if row["row"] and not row["row"].startswith(("ensemble", "clients"))]
    assert sum(int(row["n"]) for row in ours) == len(file.read_text().splitlines())


@pytest.mark.parametrize("file", RESULTS, ids=lambda path: path.stem)
def test_a_published_result_names_no_machines_folder(file):
    assert not re.findall(r'["=]/\w[^"]*', file.read_text())


def test_the_published_results_are_found():
    assert len(RESULTS) >= 9


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["nowhere"], "oneshot_fl: nowhere: no summary.json in or below it"),
        (
            ["{sweep}", "--row", "dense"],
            "oneshot_fl: --row dense: says what --ranks or --wide tells; add --ranks or --wide, or leave out --row",
        ),
        (
            ["{sweep}", "--wide", "--by", "seed"],
            "oneshot_fl: --by seed: says what --ranks tells; add --ranks, or leave out --by",
        ),
        (["{sweep}", "--wide", "--ranks"], "oneshot_fl: --wide: is another view than --ranks; leave out one of them"),
        (["{sweep}", "--wide", "--cost"], "oneshot_fl: --wide: is another view than --cost; leave out one of them"),
        (["{sweep}", "--wide", "--failed"], "oneshot_fl: --wide: is another view than --failed; leave out one"),
        (["{sweep}", "--wide", "--against", "ot"], "oneshot_fl: --against: says nothing to --wide; leave out one"),
        (["{sweep}", "--wide", "--paper", "fedhydra/table1"], "oneshot_fl: --paper: says nothing to --wide; leave"),
        (["{sweep}", "--wide", "--figures", "f"], "oneshot_fl: --figures: says nothing to --wide; leave out one"),
        (
            ["{sweep}", "--wide", "--row", "denes"],
            "oneshot_fl: --row denes: is no row of these runs, did you mean dense",
        ),
        (
            ["{sweep}", "--where", "data=svhn"],
            "oneshot_fl: --where data=svhn: no run has that; of data there are digits",
        ),
        (["{sweep}", "--cost", "--ranks"], "oneshot_fl: --ranks: is another view than --cost; leave out one of them"),
        (["{sweep}", "--cost", "--which", "best"], "oneshot_fl: --which: says nothing to --cost; leave out one"),
        (["{sweep}", "--ranks", "--against", "ot"], "oneshot_fl: --against: says nothing to --ranks; leave out one"),
        (["{sweep}", "--paper", "fedhydra/table99"], "oneshot_fl: --paper fedhydra/table99: there is no such table"),
    ],
)
def test_a_mistake_is_one_line_and_exit_code_2(sweep, capsys, arguments, line):
    with pytest.raises(SystemExit) as stopped:
        main([argument.format(sweep=sweep) for argument in arguments])
    assert stopped.value.code == 2
    assert capsys.readouterr().err.startswith(line)


def test_a_reader_that_has_seen_enough_ends_the_module_without_a_traceback():
    module = [sys.executable, "-m", "oneshot_fl.reporting.tables", str(RESULTS[0])]
    with subprocess.Popen(module, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.close()
        told = process.stderr.read()
    assert (process.returncode, told) == (UNREAD, "")
