"""Honest clients of very skewed data before the gate and in the hearing: how many are turned away? None should be.

    python -m benchmarks.honest_uploads --federations 20 --overrides hearing=witnesses

Each federation has ten clients of digits: four with 20 samples of one class, three with 20 samples of two, three drawn
from Dir(0.05). Seeds begin at 100: the gate's limits were chosen on others. What they told had a say in the hearing's,
of which `--first 120` asks others.
"""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import torch
from rich.console import Console

from benchmarks.options import Parser, above_zero
from oneshot_fl.config import experiment_of
from oneshot_fl.config.compose import composed
from oneshot_fl.data.dataset import Dataset
from oneshot_fl.mistakes import mistakes_told
from oneshot_fl.parts.uploads import Uploads
from oneshot_fl.phases.clients.train import train_clients
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.prepare import prepare
from oneshot_fl.pipeline import admit, received
from oneshot_fl.seeds import torch_generator
from oneshot_fl.session import arithmetic
from oneshot_fl.store import open_store
from oneshot_fl.tracking.loggers import RunLog
from oneshot_fl.tracking.progress import Progress

FIRST_SEED = 100
KINDS = (1, 1, 1, 1, 2, 2, 2, 0, 0, 0)
"""Classes of each client's 20 samples; 0: drawn from Dir(0.05)."""


def main() -> None:
    """The command line."""
    parser = Parser(description=__doc__)
    parser.add_argument("--federations", type=above_zero, default=20)
    parser.add_argument("--first", type=int, default=FIRST_SEED, metavar="SEED", help="of the first federation")
    parser.add_argument("--overrides", nargs="*", default=[])
    with mistakes_told():
        given = parser.parse_args()
        print(json.dumps(told(range(given.first, given.first + given.federations), given.overrides), indent=1))


def told(seeds: Sequence[int], overrides: list[str]) -> dict[str, Any]:
    """How many uploads there were, and who was turned away and why."""
    asked, turned_away = 0, []
    for seed in seeds:
        before, after = federation(seed, overrides)
        asked += len(before.classifiers)
        turned_away += [f"seed {seed}, {one.name}: {one.reason}" for one in after.quarantined]
    return {"honest uploads": asked, "turned away": turned_away}


def federation(seed: int, overrides: list[str]) -> tuple[Uploads, Uploads]:
    """Uploads before and after."""
    experiment = experiment_of(composed("partition.clients=10", "gate=checks", f"seed={seed}", *overrides))
    given = prepare(experiment.data, experiment.partition, experiment.proxy, device=torch.device("cpu"))
    store = open_store(experiment.store, arithmetic(experiment.trainer))
    context = Context(store, experiment.trainer, Progress(Console(quiet=True)), RunLog([]))
    rng = torch_generator(seed, "honest")
    indices = [samples(given.data, kind, rng) for kind in KINDS]
    labels = "label_counts" in experiment.needs
    uploads = received(train_clients(given.data, indices, experiment.clients, context=context, label_counts=labels))
    _, after, _ = admit(experiment, uploads, given.data.spec, context)
    return uploads, after


def samples(data: Dataset, kind: int, rng: torch.Generator) -> torch.Tensor:
    """20 samples of so many random classes, or 20 to 200 of a Dirichlet's."""
    labels, classes = data.train_labels, data.spec.classes
    if kind == 0:
        own = int(torch.randint(2**63 - 1, (), generator=rng))  # every client's draw is its own
        shares = torch.from_numpy(np.random.default_rng(own).dirichlet([0.05] * classes)) + 1e-6
        weights, count = shares[labels], int(torch.randint(20, 201, (), generator=rng))
    else:
        chosen = torch.randperm(classes, generator=rng)[:kind]
        weights, count = torch.isin(labels, chosen).double(), 20
    return torch.multinomial(weights.double(), count, generator=rng).sort().values


if __name__ == "__main__":
    main()
