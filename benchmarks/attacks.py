"""What hostile clients cost: every attack, with and without the gate, on the digits; one JSON line a run.

    python -m benchmarks.attacks OUT.jsonl --methods fedchorus dense --seeds 0 1 2 --clients 5 --hostile 1 \
        --overrides KEY=VALUE ...
    python -m benchmarks.attacks OUT.jsonl --table server

The same command goes on where it was stopped: a run whose line is there, made by the same code, is not run again.
"""

import argparse
import hashlib
import json
import sys
from collections.abc import Iterator, Sequence
from itertools import product
from pathlib import Path
from typing import Any

import torch

import oneshot_fl
from benchmarks.attack_table import asked, read_rows, table
from benchmarks.folders import require_folder
from benchmarks.options import Parser, above_zero
from oneshot_fl.code import commit
from oneshot_fl.config import from_overrides
from oneshot_fl.config.compose import choices
from oneshot_fl.errors import OneshotError, one_line, says_out_of_memory
from oneshot_fl.mistakes import mistakes_told
from oneshot_fl.phases.prepare import prepare
from oneshot_fl.process import say

Case = dict[str, Any]


class NotMeasuredError(Exception):
    """A run ended with an error that says nothing of its attack: the machine's, or one without an attack."""


def main() -> None:
    """The command line; exit code 1 where a run told nothing."""
    parser = Parser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("--methods", nargs="+", default=["fedchorus"])
    parser.add_argument("--clients", type=above_zero, default=5)
    parser.add_argument("--hostile", type=above_zero, default=1)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--gates", nargs="+", default=["checks", "none"])
    parser.add_argument("--attacks", nargs="+", default=list(choices("attack")))
    parser.add_argument("--overrides", nargs="*", default=[])
    parser.add_argument("--table", metavar="WHAT", help="print what is there, and run nothing: server, probability ...")
    with mistakes_told():
        given = parser.parse_args()
        if given.table:
            print(table(read_rows(given.out), given.table))
        elif untold := work_off(list(_cases(given)), given.out):
            say(f"{untold} runs told nothing of their attacks; the lines are above, and the same command tries again")
            sys.exit(1)


def _cases(given: argparse.Namespace) -> Iterator[Case]:
    if given.hostile > given.clients:
        raise OneshotError(f"--hostile {given.hostile}: must be at most {given.clients}, as many as --clients says")
    for seed, method, gate, attack in product(given.seeds, given.methods, given.gates, given.attacks):
        shared = {"clients": given.clients, "hostile": given.hostile, "overrides": given.overrides}
        yield {"method": method, "seed": seed, **shared, "gate": gate, "attack": attack}


def work_off(cases: Sequence[Case], out: Path) -> int:
    """Add the rows that are not there yet to a file; how many runs told nothing.

    Raises:
        OneshotError: something is wrong with the cases or their data, before anything is run.
    """
    require_folder("OUT", out)
    codes = codes_of(cases)
    done = {(asked(row), row.get("code")) for row in (read_rows(out) if out.exists() else [])}
    untold = 0
    for case, code in zip(cases, codes, strict=True):
        if (asked(case), code) in done:
            continue
        try:
            row = case | {"code": code, "commit": commit()} | outcome(case, out.parent)
        except NotMeasuredError as error:
            say(f"{'-'.join(map(str, asked(case)))}: {error}")
            untold += 1
        else:
            with out.open("a") as file:
                file.write(json.dumps(row) + "\n")
    return untold


def codes_of(cases: Sequence[Case]) -> list[str]:
    """The digest of the code that each case runs.

    Settings are tried once for all seeds, data and partition once for all attacks and gates.

    Raises:
        OneshotError: naming the first setting that is wrong, or what is the matter with the data.
    """
    codes: dict[tuple[str, ...], str] = {}
    prepared: set[tuple[str, int]] = set()
    for case in cases:
        setting, split = (case["method"], case["gate"], case["attack"]), (case["method"], case["seed"])
        if setting in codes and split in prepared:
            continue
        experiment = from_overrides(*words(case))[0]()
        codes[setting] = experiment.record["code"]["digest"]
        if split not in prepared:
            prepare(experiment.data, experiment.partition, experiment.proxy, device=torch.device("cpu"))
            prepared.add(split)
    return [codes[case["method"], case["gate"], case["attack"]] for case in cases]


def words(case: Case) -> list[str]:
    """A case as overrides of the configuration."""
    chosen = [f"{key}={case[key]}" for key in ("method", "seed", "gate", "attack")]
    hostile = [] if case["attack"] == "none" else [f"attack.clients={case['hostile']}"]
    return [*chosen, f"partition.clients={case['clients']}", *hostile, *case["overrides"]]


def place_of(case: Case, folder: Path) -> Path:
    """The folder of a case's run, of nothing else's."""
    told = [str(case[key]) for key in ("method", "clients", "hostile", "seed", "gate", "attack")]
    overrides = hashlib.sha256(json.dumps(case["overrides"]).encode()).hexdigest()[:8]
    return folder / "-".join([*told, overrides])


def outcome(case: Case, folder: Path) -> dict[str, Any]:
    """Accuracies of server and ensembles, and who was quarantined; or the line with which an attack ended the run.

    Raises:
        NotMeasuredError: no attack was there to end the run, or the machine did.
    """
    try:
        summary = oneshot_fl.run(*words(case), folder=place_of(case, folder)).summary
    except (OneshotError, RuntimeError, ValueError, OSError, MemoryError) as error:
        if case["attack"] == "none" or of_the_machine(error):
            raise NotMeasuredError(one_line(error)) from error
        return {"error": one_line(error)}
    return {
        "server": summary["server"]["accuracy_last"],
        **summary["ensemble"]["rows"],
        "quarantined": [one["quarantined"] for one in summary["clients"]],
        "backdoor": (summary["attack"] or {}).get("backdoor_success"),
    }


def of_the_machine(error: BaseException | None) -> bool:
    """Whether an error, or one that it came from, is about disk or memory."""
    return error is not None and (
        isinstance(error, OSError | MemoryError | torch.OutOfMemoryError)
        or says_out_of_memory(error)
        or of_the_machine(error.__cause__)
    )


if __name__ == "__main__":
    main()
