"""How long a report of many runs takes: to write, to load in a browser, and how large it is.

python -m benchmarks.report [--runs 500] [--browser /usr/bin/chromium]
"""

import json
import shutil
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.options import Parser
from oneshot_fl.errors import OneshotError
from oneshot_fl.mistakes import mistakes_told

METHODS = ("fedavg", "ot", "feddf", "dense", "f_dafl", "f_adi", "co_boosting", "fedhydra", "fedmho", "fedchorus")
ROUNDS, CLIENTS, SEEDS = 200, 10, 5
A_SETTING = SEEDS * len(METHODS)
"""Runs of one setting: every method with every seed."""


def synthetic_sweep(
    folder: Path, *, methods: Sequence[str], alphas: Sequence[float], seeds: int, class_names: Sequence[str]
) -> int:
    """Summaries as runs write them, of numbers drawn at random; how many."""
    jobs = [(method, alpha, seed) for method in methods for alpha in alphas for seed in range(seeds)]
    for number, (method, alpha, seed) in enumerate(jobs):
        place = folder / f"{number}-method={method},partition.alpha={alpha},seed={seed}"
        place.mkdir()
        draws = np.random.default_rng([number, seed])
        summary = _summary(method, alpha, seed, class_names, draws)
        (place / "summary.json").write_text(json.dumps(summary))
    return len(jobs)


def _summary(
    method: str, alpha: float, seed: int, class_names: Sequence[str], draws: np.random.Generator
) -> dict[str, Any]:
    classes, top = len(class_names), float(draws.uniform(0.3, 0.9))
    accuracies = top * (1 - np.exp(-np.arange(1, ROUNDS + 1) / 30)) + draws.normal(0, 0.01, ROUNDS)
    rounds = [{"round": n, "accuracy": round(float(each), 4)} for n, each in enumerate(accuracies, 1)]
    counts = (draws.dirichlet([alpha] * CLIENTS, classes).T * 500).astype(int).tolist()
    ensembles = {name: round(float(draws.uniform(0.4, 0.95)), 4) for name in ("uniform", "probability", "entropy")}
    last = rounds[-1]["accuracy"]
    return {
        "schema": 1, "study": method, "method": method, "data": "mnist", "budget": "paper", "seed": seed, "changed": {},
        "overrides": [f"method={method}", f"partition.alpha={alpha}", f"seed={seed}"],
        "models": {"clients": ["cnn2"] * CLIENTS, "server": "cnn2"},
        "settings": {
            "partition": {"name": "dirichlet", "clients": CLIENTS, "alpha": alpha}, "method": {"name": method},
            "clients": {"epochs": 200}, "distill": {"rounds": ROUNDS, "generator_steps": 30},
        },
        "partition": {"name": "dirichlet", "class_counts": counts}, "data_spec": {"class_names": list(class_names)},
        "clients": [
            {"kind": "classifier", "model": "cnn2", "samples": sum(counts[k]), "accuracy": 0.3, "upload_bytes": 60_000}
            for k in range(CLIENTS)
        ],
        "ensemble": {"rows": ensembles},
        "server": {
            "accuracy_last": last, "accuracy_best": max(row["accuracy"] for row in rounds),
            "by_class": [{"class": name, "images": 100, "recall": last} for name in class_names],
        },
        "communication": [
            {"clients": [0.3] * CLIENTS, "ensembles": ensembles, "accuracy_last": last, "accuracy_best": last}
        ],
        "rounds": rounds, "seconds": {"clients": 60.0, "distill": float(draws.uniform(20, 200)), "run": 100.0},
    }  # fmt: skip


def in_browser(page: Path, browser: str) -> dict[str, float]:
    """Milliseconds from the start of loading until everything is drawn; of wall time and of the page's own work."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        started = playwright.chromium.launch(executable_path=browser, args=["--no-sandbox"])
        opened = started.new_page(viewport={"width": 1200, "height": 900})
        session = opened.context.new_cdp_session(opened)
        session.send("Performance.enable", {"timeDomain": "threadTicks"})
        opened.goto(page.as_uri(), wait_until="commit", timeout=300_000)
        opened.wait_for_selector("body[data-drawn]", state="attached", timeout=300_000)
        wall = float(opened.evaluate("performance.now()"))
        told = {each["name"]: each["value"] for each in session.send("Performance.getMetrics")["metrics"]}
        started.close()
    return {"wall_ms": round(wall), "cpu_ms": round(1000 * told["TaskDuration"])}


def main() -> None:
    """The command line."""
    parser = Parser(description=__doc__)
    parser.add_argument("--runs", type=int, default=500, help=f"a multiple of {A_SETTING}")
    parser.add_argument("--browser", default=shutil.which("chromium"))
    with mistakes_told():
        options = parser.parse_args()
        print(json.dumps(measure(alphas_of(options.runs), options.browser)))


def alphas_of(runs: int) -> list[float]:
    """The settings that make so many runs.

    Raises:
        OneshotError: there are no whole settings of so many.
    """
    if runs <= 0 or runs % A_SETTING:
        raise OneshotError(
            f"--runs {runs}: must be a multiple of {A_SETTING}, above 0: each setting has {len(METHODS)} methods with "
            f"{SEEDS} seeds"
        )
    return [round(0.05 * number, 2) for number in range(1, 1 + runs // A_SETTING)]


def measure(alphas: Sequence[float], browser: str | None) -> dict[str, Any]:
    """How long a page over a synthetic sweep takes, and how large it is."""
    from oneshot_fl.reporting.page.build import Choices, write_report
    from oneshot_fl.reporting.tables.measures import measure_of
    from oneshot_fl.reporting.tables.runs import read_runs

    with tempfile.TemporaryDirectory() as place:
        folder = Path(place)
        runs = synthetic_sweep(folder, methods=METHODS, alphas=alphas, seeds=SEEDS, class_names="0123456789")
        begun = time.process_time()
        measure = measure_of("accuracy", which="last")
        out = write_report(read_runs([folder]), folder / "r.html", Choices(measure))
        found = {
            "runs": runs,
            "write_cpu_s": round(time.process_time() - begun, 1),
            "megabytes": out.stat().st_size / 1e6,
        }
        if browser:
            found |= in_browser(out, browser)
    return found


if __name__ == "__main__":
    main()
