"""`python -m benchmarks.store`: what it takes to find things in a store of 10,000 artifacts, against one of 100."""

import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks.__main__ import markdown
from benchmarks.options import Parser, above_zero
from oneshot_fl.artifacts import Artifact
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.inventory import holdings
from oneshot_fl.mistakes import mistakes_told
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.store import Store, Wanted, open_store

LOOKS = 200


def client(number: int) -> Wanted:
    """A trained client of MNIST's size; what it is called is all that tells it from the others."""
    spec = DataSpec(1, 28, 10, (0.5,), (0.5,))
    return Wanted("clients", {"number": number}, lambda _: Artifact(dict(cnn2(spec, norm=True).state_dict()), {}))


def fill(store: Store, count: int) -> None:
    """Store so many."""
    for number in range(count):
        store.get_or_make_if_free(client(number))


def milliseconds(act: Callable[[int], Any], numbers: Sequence[int]) -> float:
    """Of the process's CPU, a number."""
    begun = time.process_time()
    for number in numbers:
        act(number)
    return 1000 * (time.process_time() - begun) / len(numbers)


def measure(count: int, folder: Path) -> dict[str, Any]:
    """A row: CPU-milliseconds of a look for each kind of question."""
    store = open_store(folder, {"torch": torch.__version__})
    fill(store, count)
    some = random.Random(0).choices(range(count), k=LOOKS)
    return {
        "artifacts": count,
        "is it there, ms": milliseconds(lambda number: store.has(client(number)), some),
        "it is not, ms": milliseconds(lambda number: store.has(client(count + number)), some),
        "read and checked, ms": milliseconds(lambda number: store.get_or_make_if_free(client(number)), some),
        "`store ls`, ms an artifact": milliseconds(lambda _: holdings(folder), [0]) / count,
    }


def main() -> None:
    """The command line."""
    parser = Parser(prog="python -m benchmarks.store", description=__doc__)
    parser.add_argument("--artifacts", type=above_zero, nargs="+", default=[100, 10_000])
    rows = []
    with mistakes_told():
        for count in parser.parse_args().artifacts:
            with tempfile.TemporaryDirectory() as folder:
                rows.append(measure(count, Path(folder)))
    print(markdown(rows))


if __name__ == "__main__":
    main()
