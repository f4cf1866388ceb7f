"""Tables over many runs: `python -m oneshot_fl.reporting.tables DIR...` reads every summary.json below and prints
Markdown, one table a protocol, mean and sample standard deviation over seeds.

Runs are compared only if everything but method and seed agrees. Each (method, variant, seed) counts once, the newest
run; a method that was run with several settings of its own gets a row for each.
"""

import json
import statistics
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from oneshot_fl.errors import OneshotError

Summary = dict[str, Any]


def read_summaries(folders: Iterable[Path]) -> list[Summary]:
    """Every `summary.json` below `folders`, oldest first.

    Raises:
        OneshotError: a folder is missing, or holds none.
    """
    found: list[Path] = []
    for folder in folders:
        below = sorted(folder.rglob("summary.json"), key=lambda path: path.stat().st_mtime)
        if not below:
            raise OneshotError(f"{folder}: no summary.json in or below it; give the folder of a run or of a sweep")
        found += below
    return [json.loads(path.read_text()) for path in found]


def tables(summaries: list[Summary]) -> str:
    """Markdown for all protocols among the summaries, in the order in which they first appear."""
    protocols: dict[str, dict[tuple[str, int], Summary]] = {}
    for summary in summaries:
        protocols.setdefault(summary["protocol"], {})[summary["variant"], summary["seed"]] = summary
    return "\n\n".join(_table(list(runs.values())) for runs in protocols.values())


def _table(runs: list[Summary]) -> str:
    first = runs[0]
    settings = ", ".join(f"{key}={value}" for key, value in first["partition"]["settings"].items())
    models = "+".join(dict.fromkeys(client["model"] for client in first["clients"]))
    title = (
        f"**{first['data']}, {first['partition']['name']}({settings}), {models}, "
        f"budget {first['budget']}, protocol {first['protocol']}** (test accuracy in percent, mean ± std over seeds)"
    )
    variants = dict.fromkeys((run["method"], run["variant"]) for run in runs)
    rows = [_method_row([run for run in runs if run["variant"] == variant], variants) for _, variant in variants]
    rows += _reference_rows(runs)
    header = ["", "seeds", "server, last round", "server, best round"]
    lines = [header, ["---", "---", "---:", "---:"], *rows]
    return title + "\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _method_row(runs: list[Summary], variants: Iterable[tuple[str, str]]) -> list[str]:
    name, variant = runs[0]["method"], runs[0]["variant"]
    if sum(method == name for method, _ in variants) > 1:
        name = f"{name} [{variant[:6]}]"
    last, best = ([run["server"][f"accuracy_{which}"] for run in runs] for which in ("last", "best"))
    return [name, _seeds(runs), mean_and_spread(last), mean_and_spread(best)]


def _reference_rows(runs: list[Summary]) -> list[list[str]]:
    """Ensembles and single clients, which do not depend on the method: one value a seed."""
    rows = []
    names = dict.fromkeys(name for run in runs for name in run["ensemble"]["rows"])
    for name in names:
        by_seed = {run["seed"]: run for run in runs if name in run["ensemble"]["rows"]}
        values = [run["ensemble"]["rows"][name] for run in by_seed.values()]
        rows.append([f"ensemble: {name}", _seeds(by_seed.values()), mean_and_spread(values), ""])
    by_seed = {run["seed"]: run for run in runs}
    means = [statistics.mean(client["accuracy"] for client in run["clients"]) for run in by_seed.values()]
    return [*rows, ["clients, mean", _seeds(by_seed.values()), mean_and_spread(means), ""]]


def _seeds(runs: Iterable[Summary]) -> str:
    return ", ".join(str(seed) for seed in sorted({run["seed"] for run in runs}))


def mean_and_spread(fractions: list[float]) -> str:
    """`mean ± sample standard deviation` in percent; one value alone has no spread."""
    percent = [100 * fraction for fraction in fractions]
    mean = f"{statistics.mean(percent):.2f}"
    return f"{mean} ± {statistics.stdev(percent):.2f}" if len(percent) > 1 else mean


def main() -> None:
    """Print the tables of the folders on the command line."""
    try:
        print(tables(read_summaries([Path(argument) for argument in sys.argv[1:] or ["multirun"]])))
    except OneshotError as error:
        print(f"oneshot_fl: {error}", file=sys.stderr)
        sys.exit(2)


if __name__ == "__main__":
    main()
