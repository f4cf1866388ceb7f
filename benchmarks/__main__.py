"""`python -m benchmarks`: measure, print Markdown tables, and keep the numbers as JSON where `--out` says.

Tables that are not measured stay as they are in that file; under `measured` it tells by what and where each was.

Nothing else should run on the machine; ratios within a row stay meaningful if something does.
"""

import json
import platform
from pathlib import Path
from typing import Any

from oneshot_fl.process import keep_freed_memory, share_the_cores

share_the_cores()  # before torch is loaded

import torch  # noqa: E402

from benchmarks.cases import GROUPS, ON_ACCELERATOR, Row  # noqa: E402
from benchmarks.folders import require_folder  # noqa: E402
from benchmarks.options import Parser, above_zero  # noqa: E402
from oneshot_fl.code import commit  # noqa: E402
from oneshot_fl.disk import write_atomically  # noqa: E402
from oneshot_fl.errors import OneshotError  # noqa: E402
from oneshot_fl.mistakes import mistakes_told  # noqa: E402

ON_CPU = [name for name in GROUPS if name not in ON_ACCELERATOR]


def main() -> None:
    """The command line."""
    parser = Parser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument(
        "--repeats", type=above_zero, default=3, help="measurements of everything, after one to warm up"
    )
    parser.add_argument("--only", nargs="+", choices=GROUPS, default=ON_CPU, help="tables to make")
    parser.add_argument("--out", type=Path, help="a JSON file for the numbers")
    with mistakes_told():
        given = parser.parse_args()
        measure(given.only, given.repeats, given.out)


def measure(names: list[str], repeats: int, out: Path | None) -> None:
    """Measure tables one after the other, print them, and put each into a file as soon as it is there.

    Raises:
        OneshotError: the file cannot be written, or is none of this program; or there is no accelerator to measure.
    """
    needs_one = [name for name in names if name in ON_ACCELERATOR]
    if needs_one and not torch.cuda.is_available():
        raise OneshotError(f'--only "{needs_one[0]}": there is no CUDA device here; choose other tables')
    if out:
        require_folder("--out", out)
        kept(out)
    keep_freed_memory()
    for name in names:
        rows = GROUPS[name](repeats)
        print(f"\n## {name}\n\n{markdown(rows)}", flush=True)
        if out:
            keep(out, name, rows)


def keep(out: Path, name: str, rows: list[Row]) -> None:
    """Put one table into the file, with the commit and machine that it was measured on; the others stay."""
    tables = kept(out)
    measured = {**tables.get("measured", {}), name: {"commit": commit(), "machine": machine()}}
    write_atomically(out, json.dumps({**tables, name: rows, "measured": measured}, indent=1))


def kept(out: Path) -> dict[str, Any]:
    """What a file holds already; nothing where there is none.

    Raises:
        OneshotError: it is none of this program.
    """
    try:
        tables = json.loads(out.read_text()) if out.exists() else {}
    except (OSError, ValueError) as error:
        raise OneshotError(f"--out {out}: cannot be read as JSON, so no table can be put into it") from error
    if not isinstance(tables, dict):
        raise OneshotError(f"--out {out}: holds no tables, so none can be put into it; choose another file")
    return tables


def machine() -> str:
    """What ratios and seconds depend on besides the code."""
    device = torch.cuda.get_device_name() if torch.cuda.is_available() else "CPU"
    return f"{platform.machine()}, {torch.get_num_threads()} threads, torch {torch.__version__}, {device}"


def markdown(rows: list[Row]) -> str:
    """A table with the rows' keys as its head."""
    lines = [list(rows[0]), ["---"] * len(rows[0]), *([_cell(value) for value in row.values()] for row in rows)]
    return "\n".join(f"| {' | '.join(str(cell).replace('|', '/') for cell in line)} |" for line in lines)


def _cell(value: object) -> str:
    return f"{value:.3g}" if isinstance(value, float) else str(value)


if __name__ == "__main__":
    main()
