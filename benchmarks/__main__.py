"""`python -m benchmarks`: measure, print Markdown tables, and keep the numbers as JSON where `--out` says.

Nothing else should run on the machine; ratios within a row stay meaningful if something does.
"""

import argparse
import json
import platform
from pathlib import Path

from oneshot_fl.process import keep_freed_memory, share_the_cores

share_the_cores()  # before torch is loaded

import torch  # noqa: E402

from benchmarks.cases import ACCELERATOR, GROUPS, Row  # noqa: E402

ON_CPU = [name for name in GROUPS if name != ACCELERATOR]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="measurements of everything, after one to warm up")
    parser.add_argument("--only", nargs="*", choices=GROUPS, default=ON_CPU, help="tables to make")
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    given = parser.parse_args()
    keep_freed_memory()
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    machine = f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {device}"
    tables = {"machine": machine}
    for name in given.only:
        tables[name] = GROUPS[name](given.repeats)
        print(f"\n## {name}\n\n{markdown(tables[name])}", flush=True)
        if given.out:
            given.out.write_text(json.dumps(tables, indent=1))


def markdown(rows: list[Row]) -> str:
    """A table with the rows' keys as its head."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines)


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
