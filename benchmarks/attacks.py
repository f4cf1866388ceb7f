"""What hostile clients cost: every attack, with and without the gate, on the digits; one JSON line a run.

python benchmarks/attacks.py OUT.jsonl --method fedchorus --clients 5 --hostile 1 --overrides KEY=VALUE ...
"""

import argparse
import json
from pathlib import Path

import oneshot_fl
from oneshot_fl.config.compose import choices
from oneshot_fl.errors import OneshotError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--method", default="fedchorus")
    parser.add_argument("--clients", type=int, default=5)
    parser.add_argument("--hostile", type=int, default=1)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--gates", nargs="+", default=["checks", "none"])
    parser.add_argument("--attacks", nargs="+", default=list(choices("attack")))
    parser.add_argument("--overrides", nargs="*", default=[])
    given = parser.parse_args()
    for gate in given.gates:
        for attack in given.attacks:
            row = {**{key: value for key, value in vars(given).items() if key not in ("out", "gates", "attacks")}}
            row |= {"gate": gate, "attack": attack, **outcome(given, gate, attack)}
            with given.out.open("a") as file:
                file.write(json.dumps(row) + "\n")


def outcome(given: argparse.Namespace, gate: str, attack: str) -> dict[str, object]:
    """Accuracies of server and ensembles, and who was quarantined; or the line with which the run ended."""
    hostile = [] if attack == "none" else [f"attack.clients={given.hostile}"]
    folder = given.out.parent / f"{given.method}-{given.clients}-{given.seed}-{gate}-{attack}"
    chosen = [f"method={given.method}", f"partition.clients={given.clients}", f"seed={given.seed}"]
    try:
        result = oneshot_fl.run(*chosen, f"gate={gate}", f"attack={attack}", *hostile, *given.overrides, folder=folder)
    except (OneshotError, RuntimeError, ValueError) as error:
        return {"error": " ".join(str(error).split())[:160]}
    summary = result.summary
    return {
        "server": summary["server"]["accuracy_last"],
        **summary["ensemble"]["rows"],
        "quarantined": [one["quarantined"] for one in summary["clients"]],
        "backdoor": (summary["attack"] or {}).get("backdoor_success"),
    }


if __name__ == "__main__":
    main()
