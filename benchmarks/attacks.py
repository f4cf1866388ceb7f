"""What hostile clients cost: every attack, with and without the gate, on the digits; one JSON line a run.

    python benchmarks/attacks.py OUT.jsonl --methods fedchorus dense --seeds 0 1 2 --clients 5 --hostile 1 \
        --overrides KEY=VALUE ...
    python benchmarks/attacks.py OUT.jsonl --table server

The same command goes on where it was stopped: a run whose line is there is not run again.
"""

import argparse
import json
from collections.abc import Iterator
from itertools import product
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import oneshot_fl
from oneshot_fl.config.compose import choices
from oneshot_fl.errors import OneshotError

ASKED = ("method", "clients", "hostile", "seed", "overrides", "gate", "attack")
"""What tells one run from another."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--methods", nargs="+", default=["fedchorus"])
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--hostile", type=int, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--gates", nargs="+", default=["checks", "none"])
    parser.add_argument("--attacks", nargs="+", default=list(choices("attack")))
    parser.add_argument("--overrides", nargs="*", default=[])
    parser.add_argument("--table", metavar="WHAT", help="print what is there, and run nothing: server, probability ...")
    given = parser.parse_args()
    if given.table:
        print(table(_rows(given.out), given.table))
        return
    known = [{key: row.get(key) for key in ASKED} for row in _rows(given.out)]
    for case in _cases(given):
        if case not in known:
            row = case | outcome(case, given.out.parent)
            with given.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


def _rows(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def _cases(given: argparse.Namespace) -> Iterator[dict[str, Any]]:
    for seed, method, gate, attack in product(given.seeds, given.methods, given.gates, given.attacks):
        shared = {"clients": given.clients, "hostile": given.hostile, "overrides": given.overrides}
        yield {"method": method, "seed": seed, **shared, "gate": gate, "attack": attack}


def outcome(case: dict[str, Any], folder: Path) -> dict[str, Any]:
    """Accuracies of server and ensembles, and who was quarantined; or the line with which the run ended."""
    hostile = [] if case["attack"] == "none" else [f"attack.clients={case['hostile']}"]
    chosen = [f"{key}={case[key]}" for key in ("method", "seed", "gate", "attack")]
    place = folder / "-".join(str(case[key]) for key in ("method", "clients", "seed", "gate", "attack"))
    try:
        result = oneshot_fl.run(
            *chosen, f"partition.clients={case['clients']}", *hostile, *case["overrides"], folder=place
        )
    except (OneshotError, RuntimeError, ValueError) as error:
        return {"error": " ".join(str(error).split())[:160]}
    summary = result.summary
    return {
        "server": summary["server"]["accuracy_last"],
        **summary["ensemble"]["rows"],
        "quarantined": [one["quarantined"] for one in summary["clients"]],
        "backdoor": (summary["attack"] or {}).get("backdoor_success"),
    }


def table(rows: list[dict[str, Any]], what: str = "server") -> str:
    """Test accuracy of the server, or of an ensemble, in percent: mean and standard deviation over the seeds."""
    kinds: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for row in rows:
        kinds.setdefault(tuple(row[key] for key in ("clients", "method", "gate")), []).append(row)
    attacks = list(dict.fromkeys(row["attack"] for row in rows))
    lines = [["clients", "method", "gate", *attacks], ["---"] * (3 + len(attacks))]
    for kind, own in kinds.items():
        cells = [_cell([row.get(what) for row in own if row["attack"] == attack]) for attack in attacks]
        lines.append([*map(str, kind), *cells])
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(shares: list[float | None]) -> str:
    """For instance `81.7 ± 2.0 (3)`, of three seeds; how many of them ended with an error."""
    found = [100 * share for share in shares if share is not None]
    spread = f" ± {stdev(found):.1f}" if len(found) > 1 else ""
    told = [f"{mean(found):.1f}{spread} ({len(found)})"] if found else []
    return ", ".join(told + [f"error ({len(shares) - len(found)})"] * (len(shares) > len(found))) or "-"


if __name__ == "__main__":
    main()
