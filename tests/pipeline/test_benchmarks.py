"""The benchmarks measure what they say; what comes out is never tested, because machines are shared."""

import json
import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from hydra.core.hydra_config import HydraConfig
from torch import nn
from torch.nn import functional as F

from benchmarks import __main__ as main
from benchmarks import accelerator, attacks, cases, gpu_evidence, literal, report, runs, some_passed, sweeps
from benchmarks.__main__ import markdown
from benchmarks.accelerator import on_accelerator
from benchmarks.cases import rows_of_parts, run_once
from benchmarks.measure import Arithmetic, in_turn, process
from benchmarks.runs import configuration, literally, ours
from benchmarks.scale import GREY
from benchmarks.steps import LocalTraining, Steps
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.generators import ConvGenerator

TINY = replace(GREY, size=8, clients=2, samples=40, epochs=1, rounds=2, generator_steps=1, batch=16, noise=4, width=4)
PARTS = ["clients", "stratification", "generator", "pool", "whole"]


@pytest.mark.parametrize("method", ["fedhydra", "co_boosting"])
def test_both_versions_run_and_tell_the_seconds_of_the_same_parts(method):
    measured = ours(configuration(method, TINY, "trainer=cpu"), TINY), literally(method, TINY)
    for seconds in measured:
        assert list(seconds) == PARTS
        assert sum(seconds[part] for part in PARTS[:-1]) <= seconds["whole"]
        assert min(seconds[part] for part in ("clients", "generator", "pool")) > 0


@pytest.mark.parametrize("way", ["literal", "32-true"])
def test_nothing_is_composed_while_the_clock_of_either_version_runs(way, monkeypatch):
    """Composing a configuration takes longer than a step: whoever had it timed would look slow."""
    told = []

    def noted(name, act):
        return lambda *args, **kwargs: told.append(name) or act(*args, **kwargs)

    monkeypatch.setattr(runs, "time", SimpleNamespace(perf_counter=noted("clock", time.perf_counter)))
    for name in ("composed", "experiment_of"):
        monkeypatch.setattr(runs, name, noted("composed", getattr(runs, name)))
    run_once(way, "co_boosting", TINY)
    assert told[0] == "composed"
    assert "composed" not in told[told.index("clock") :]


def test_a_row_a_part_with_the_ratios_of_the_ways():
    """Co-Boosting stratifies nothing, so it has no such row; 6 / 3 = 2, 6 / 2 = 3 and 4 / 2 = 2."""
    medians = {
        "literal": {"clients": 6.0, "stratification": 0.0},
        "literal, memory kept": {"clients": 4.0, "stratification": 0.0},
        "32-true": {"clients": 3.0, "stratification": 0.0},
        "bf16-mixed": {"clients": 2.0, "stratification": 0.0},
    }
    (row,) = rows_of_parts(medians, {"method": "co_boosting"})
    ratios = {"literal / 32-true": 2.0, "literal / bf16-mixed": 3.0, "kept / bf16-mixed": 2.0}
    seconds = {f"{way}, s": of_parts["clients"] for way, of_parts in medians.items()}
    assert row == {"method": "co_boosting", "part": "clients", **seconds, **ratios}


def test_a_way_runs_in_one_process_of_its_own():
    with process(kept_memory=True) as apart:
        first, second = (apart.submit(os.getpid).result() for _ in range(2))
    assert first == second != os.getpid()


def test_the_literal_generator_is_ours(spec):
    ours, theirs = ConvGenerator(spec, noise=4, width=2), literal.make_generator(spec, noise=4, width=2)
    with torch.no_grad():
        for parameter, given in zip(theirs.parameters(), ours.parameters(), strict=True):
            parameter.copy_(given)
    z = torch.randn(6, 4)
    torch.testing.assert_close(spec.to_pixels(ours(z)), theirs[:-1](z))


@pytest.mark.parametrize(("method", "gathered"), [("fedhydra", 2 * 2), ("co_boosting", 0)])
def test_the_literal_moments_are_gathered_in_fedhydras_generator_steps_alone(method, gathered, monkeypatch):
    """Of two clients with two layers each; what enters those requires a gradient in a replay too."""
    replay, seen = literal.Server._replay, []

    def watched(server, *pool):
        seen.append(len(server.moments))
        server.moments.clear()
        replay(server, *pool)
        seen.append(len(server.moments))

    monkeypatch.setattr(literal.Server, "_replay", watched)
    literally(method, TINY)
    assert seen == [gathered, 0] * TINY.rounds


def test_arithmetic_is_kept_and_runs_again():
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    with Arithmetic() as arithmetic:
        F.cross_entropy(model(torch.randn(5, 1, 4, 4)), torch.zeros(5, dtype=torch.long)).backward()
    names = [func.name().split("::")[1] for func, _, _ in arithmetic.calls]
    assert names == ["convolution", "addmm", "mm", "mm", "convolution_backward"]
    arithmetic.again()


def test_medians_leave_the_first_measurement_out():
    seconds = iter([9.0, 3.0, 1.0, 2.0])
    assert in_turn({"it": lambda: {"whole": next(seconds)}}, repeats=3) == {"it": {"whole": 2.0}}


def test_every_step_runs():
    steps = Steps(TINY, precision="bf16-mixed", at_once=1)
    for step in (steps.training(), steps.generation(), steps.stratification(at_once=2)):
        step()
    training = LocalTraining(TINY)
    training.by_trainer()
    training.by_hand()


def test_rows_become_a_table():
    assert markdown([{"a | b": 0.12345, "c": 2}]) == "| a / b | c |\n| --- | --- |\n| 0.123 | 2 |"


@pytest.fixture
def quick(monkeypatch):
    """Tables that take no time; what was measured is appended to the list."""
    measured = []
    for name in ("Choices", "Lightning"):
        monkeypatch.setitem(cases.GROUPS, name, lambda repeats, name=name: measured.append(name) or [{"it": 1.5}])
    monkeypatch.setattr(main, "commit", lambda: "abc")
    monkeypatch.setattr(main, "keep_freed_memory", lambda: None)
    return measured


def test_a_table_that_is_measured_alone_leaves_the_others_in_the_file(quick, tmp_path):
    out = tmp_path / "speed.json"
    earlier = {"commit": "before", "machine": "another"}
    out.write_text(json.dumps({"Choices": [{"it": 3.0}], "Many": [], "measured": {"Many": earlier}}))
    main.measure(["Lightning", "Choices"], 1, out)
    now = {"commit": "abc", "machine": main.machine()}
    assert "threads" in now["machine"]
    assert json.loads(out.read_text()) == {
        "Choices": [{"it": 1.5}],
        "Many": [],
        "Lightning": [{"it": 1.5}],
        "measured": {"Many": earlier, "Lightning": now, "Choices": now},
    }


@pytest.mark.parametrize(("name", "content"), [("absent/speed.json", None), ("a.json", "rows"), ("a.json", "[]")])
def test_where_tables_cannot_be_kept_nothing_is_measured(name, content, quick, tmp_path, monkeypatch, capsys):
    if content:
        (tmp_path / name).write_text(content)
    monkeypatch.setattr(sys, "argv", ["benchmarks", "--only", "Choices", "--out", str(tmp_path / name)])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert (end.value.code, quick) == (2, [])
    assert len(capsys.readouterr().err.splitlines()) == 1


@pytest.mark.parametrize("runs", [-50, 0, 49, 520])
def test_a_report_of_so_many_runs_as_no_sweep_has_is_refused(runs, monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["report", "--runs", str(runs)])
    monkeypatch.setattr(report, "synthetic_sweep", None)
    with pytest.raises(SystemExit) as end:
        report.main()
    assert end.value.code == 2
    assert capsys.readouterr().err == (
        f"oneshot_fl: --runs {runs}: must be a multiple of 50, above 0: each setting has 10 methods with 5 seeds\n"
    )


def test_a_report_is_of_as_many_runs_as_were_asked_for(tmp_path):
    assert len(report.alphas_of(500)) == 10
    sweep = {"methods": report.METHODS, "seeds": report.SEEDS, "class_names": "01"}
    assert report.synthetic_sweep(tmp_path, alphas=report.alphas_of(50), **sweep) == 50


def test_the_kept_numbers_tell_by_what_they_were_measured():
    tables = main.kept(Path(__file__).parents[2] / "docs" / "results" / "speed.json")
    assert tables["measured"].keys() == tables.keys() - {"measured"}


def test_runs_under_attack_become_means_over_their_seeds():
    """The mean of 80 and 90 is 85, their standard deviation 10 / sqrt(2)."""
    shared = {"clients": 5, "method": "dense", "gate": "none"}
    rows = [
        *({**shared, "seed": seed, "attack": "scale", "server": server} for seed, server in enumerate((0.8, 0.9))),
        {**shared, "seed": 0, "attack": "zero", "server": 0.5},
        {**shared, "seed": 1, "attack": "zero", "error": "diverged"},
    ]
    assert attacks.table(rows).splitlines()[2] == "| 5 | dense | none | 85.0 ± 7.1 (2) | 50.0 (1), error (1) |"


def test_every_step_of_the_accelerators_table_runs_on_any_device():
    rows = on_accelerator(1, scale=TINY, device="cpu", compiled=False)
    assert [(row["arithmetic"], row["step"]) for row in rows] == [
        (arithmetic, step)
        for arithmetic in ("32 bit", "TF32", "bf16")
        for step in ("generator", "stratification of all classes")
    ]
    assert all(row["one by one, s"] > 0 and row["one by one / stacked"] > 0 for row in rows)
    assert torch.get_float32_matmul_precision() == "highest"


def test_steps_are_timed_in_the_arithmetic_that_their_row_names(monkeypatch):
    products = []

    def looked_at(step):
        def run():
            products.append((torch.get_float32_matmul_precision(), torch.backends.cudnn.allow_tf32))
            return {"whole": 1.0}

        return run

    monkeypatch.setattr(accelerator, "timed", looked_at)
    rows = on_accelerator(1, scale=TINY, device="cpu", compiled=False)
    each = len(products) // 3
    assert len(rows) == 6
    assert products == [("highest", False)] * each + [("high", True)] * 2 * each


def test_evidence_goes_on_where_it_stopped(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(gpu_evidence, "GRACE", 0.5)
    monkeypatch.setattr(gpu_evidence, "code", lambda: "the same")
    mark = f"import pathlib; pathlib.Path({str(tmp_path)!r}, 'ran').open('a').write('x')"
    commands = {
        "quick": [sys.executable, "-c", mark],
        "wrong": [sys.executable, "-c", "raise SystemExit(3)"],
        "long": [sys.executable, "-c", "import time; time.sleep(60)"],
    }
    for _ in range(2):
        assert gpu_evidence.work_off(commands, tmp_path / "out", seconds=4) == ["wrong", "long"]
    assert (tmp_path / "ran").read_text() == "x"
    told = capsys.readouterr().out.splitlines()
    assert told == ["quick: done", "wrong: failed (3), see wrong.log", "long: goes on in the next call", *told[1:3]]


def test_a_piece_that_was_stopped_keeps_no_other_from_running(tmp_path, monkeypatch):
    def run_until(command, end, log):
        ran.append(log.stem)
        return None if log.stem == "long" else 0

    ran = list[str]()
    monkeypatch.setattr(gpu_evidence, "code", lambda: "now")
    monkeypatch.setattr(gpu_evidence, "run_until", run_until)
    assert gpu_evidence.work_off({"long": ["true"]}, tmp_path, seconds=60) == ["long"]
    assert gpu_evidence.work_off({"long": ["true"], "next": ["true"]}, tmp_path, seconds=60) == ["long"]
    assert ran == ["long", "next", "long"]


def test_tests_that_need_a_gpu_are_those_of_the_evidence(tmp_path):
    """Other modules there import what a machine with a GPU may lack, and one of those ends them all."""
    modules = Path(__file__).parents[1].rglob("test_*.py")
    marked = [path for path in modules if "pytest.mark." + "gpu" in path.read_text()]
    named = {f"tests/pipeline/{path.name}" for path in marked}
    assert len(named) >= 2
    assert named == set(gpu_evidence.OF_GPUS) < set(gpu_evidence.pieces("DIR", tmp_path, tiny=False)["tests"])


def test_a_piece_of_another_command_or_of_other_code_is_not_done(tmp_path, monkeypatch):
    def left(code, *words):
        monkeypatch.setattr(gpu_evidence, "code", lambda: code)
        monkeypatch.setattr(gpu_evidence, "run_until", lambda command, end, log: ran.append(command) or 0)
        return gpu_evidence.work_off({"runs": list(words)}, tmp_path, seconds=60)

    ran = []
    for code, *words in (("now", "tiny"), ("now", "whole"), ("now", "tiny"), ("later", "whole"), ("later", "whole")):
        assert left(code, *words) == []
    assert ran == [["tiny"], ["whole"], ["whole"]]


def test_what_was_done_before_commands_were_told_is_not_taken_for_done(tmp_path, monkeypatch):
    monkeypatch.setattr(gpu_evidence, "code", lambda: "now")
    (tmp_path / "done.json").write_text('["runs"]')
    assert gpu_evidence.work_off({"runs": ["true"]}, tmp_path, seconds=0) == ["runs"]


def test_the_evidences_code_is_everybodys(monkeypatch):
    monkeypatch.setattr(gpu_evidence, "digest", set)
    modules = ("oneshot_fl.pipeline", "oneshot_fl.methods.fedhydra", "oneshot_fl.phases", "benchmarks.cases")
    assert gpu_evidence.code() >= {*modules, "tests.pipeline.test_gpu", "tests.pipeline.test_launchers"}


@pytest.mark.parametrize(("stats", "code"), [({"passed": [1], "skipped": [1]}, 0), ({"skipped": [1]}, 5)])
def test_tests_that_were_all_skipped_are_no_evidence(stats, code, tmp_path):
    plugins = SimpleNamespace(get_plugin={"terminalreporter": SimpleNamespace(stats=stats)}.get)
    session = SimpleNamespace(config=SimpleNamespace(pluginmanager=plugins), exitstatus=0)
    some_passed.pytest_sessionfinish(session, session.exitstatus)
    assert session.exitstatus == code
    assert "benchmarks.some_passed" in gpu_evidence.pieces("DIR", tmp_path, tiny=False)["tests"]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_whoever_stops_the_evidence_stops_what_it_runs(number, tmp_path):
    child = "import os, pathlib, time; pathlib.Path('pid').write_text(str(os.getpid())); time.sleep(60)"
    script = f"""
import sys
from pathlib import Path
from benchmarks import gpu_evidence
gpu_evidence.code = lambda: "now"
gpu_evidence.pieces = lambda *args, **more: {{"long": [sys.executable, "-c", {child!r}]}}
sys.argv = ["gpu_evidence", "--tiny", "--out", "."]
gpu_evidence.main()
"""
    path = os.pathsep.join([str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    process = subprocess.Popen(
        [sys.executable, "-c", script], cwd=tmp_path, env=os.environ | {"PYTHONPATH": path}, stderr=subprocess.PIPE
    )
    pid = tmp_path / "pid"
    while not (pid.is_file() and pid.read_text()):
        assert process.poll() is None
        time.sleep(0.02)
    process.send_signal(number)
    assert process.communicate()[1].count(b"\n") == 1
    assert process.returncode == 128 + number
    with pytest.raises(ProcessLookupError):
        os.kill(int(pid.read_text()), 0)


@pytest.mark.parametrize(
    ("key", "words"),
    [("--data", []), ("--data", [""]), ("--data", ["/nowhere"]), ("--mnist", [""]), ("--mnist", ["/nowhere"])],
)
def test_evidence_without_data_is_one_line(key, words, tmp_path, monkeypatch, capsys):
    others = ["--data", "."] if key == "--mnist" else []
    monkeypatch.setattr(sys, "argv", ["gpu_evidence", *others, key, *words, "--out", str(tmp_path / "out")])
    with pytest.raises(SystemExit) as end:
        gpu_evidence.main()
    assert end.value.code == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert key in line
    assert not (tmp_path / "out").exists()


def test_pieces_are_what_their_names_say(tmp_path):
    whole, tiny = (gpu_evidence.pieces("DIR", tmp_path, tiny=tiny) for tiny in (False, True))
    columns = ["dirichlet_clients", "dirichlet", "two_classes_clients", "two_classes"]
    assert list(whole) == ["tests", "speed_grey", "speed_colour", *columns]
    assert list(tiny) == [name for name in whole if name != "speed_colour"]
    assert {"experiment=evidence/cifar10_dirichlet", "data.root=DIR"} <= set(whole["dirichlet"])
    assert {"partition.alpha=0.1,0.5", "trainer.jobs_per_gpu=10"} <= set(whole["dirichlet"])
    assert {"method=fedavg", "workers=5"} <= set(whole["two_classes_clients"])
    assert "trainer=cpu" in tiny["two_classes"]
    assert {"partition=classes_per_client", "partition.classes=2"} <= set(tiny["two_classes"])
    images = gpu_evidence.pieces("DIR", tmp_path, tiny=False, overrides=("data=image_folder", "data.name=cifar10"))
    assert [word for word in images["dirichlet"] if word.startswith("data")] == [
        *("data.root=DIR", "data=image_folder", "data.name=cifar10")
    ]


def test_seeds_have_folders_of_their_own_and_share_the_store(tmp_path):
    first, second = (gpu_evidence.pieces("DIR", tmp_path, tiny=False, seed=seed) for seed in (1, 2))
    for name, words in first.items():
        changed = {tuple(pair) for pair in zip(words, second[name], strict=True) if pair[0] != pair[1]}
        folders = tuple(f"hydra.sweep.dir={tmp_path / name}_seed_{seed}" for seed in (1, 2))
        assert changed == (set() if name.startswith(("tests", "speed")) else {("seed=1", "seed=2"), folders})


def test_table_4_runs_where_mnist_is_named(tmp_path):
    whole = gpu_evidence.pieces("DIR", tmp_path, tiny=False, mnist="GREY", overrides=("data.name=cifar10",))
    assert list(whole)[-1] == "weak"
    assert {"experiment=fedmho/table4", "data.root=GREY", "hydra/launcher=joblib"} <= set(whole["weak"])
    assert "data.name=cifar10" not in whole["weak"]
    assert "trainer=cpu" in gpu_evidence.pieces("DIR", tmp_path, tiny=True, mnist="GREY")["weak"]


def test_pieces_can_be_chosen(tmp_path):
    commands = {"a": ["1"], "b": ["2"], "c": ["3"]}
    assert gpu_evidence.chosen(commands, None) == commands
    assert list(gpu_evidence.chosen(commands, ["c", "a"])) == ["a", "c"]
    with pytest.raises(OneshotError, match=r"^--only d: there is no such piece; choose from a, b, c$"):
        gpu_evidence.chosen(commands, ["a", "d"])


def test_a_sweep_that_is_done_is_found_done(tmp_path, monkeypatch):
    """But for the two workers that it starts, which other tests do."""
    monkeypatch.setenv("ONESHOT_FL_STORE", str(tmp_path / "store"))
    monkeypatch.setattr(sweeps, "idle", lambda *_: None)
    rows = sweeps.measure(1, tmp_path)
    HydraConfig.instance().cfg = None  # what Hydra leaves behind, and the process goes on here
    assert [row["jobs"] for row in rows] == [1, 1, 1, 1]
    (trace,) = (tmp_path / "sweep").rglob("run.json")
    assert json.loads(trace.read_text())["status"] == "done"
