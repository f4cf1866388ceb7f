"""`python -m benchmarks.sweeps`: what a launcher adds to each job of a large sweep; nothing is trained.

FedHydra's Table 1 at ten seeds, 960 jobs. CPU-seconds of the launching process, except where workers are measured.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from functools import partial
from itertools import islice, product
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from benchmarks.options import Parser, above_zero
from oneshot_fl.config.compose import config_dir
from oneshot_fl.config.jobs import Composer
from oneshot_fl.config.record import CONFIG, MODEL
from oneshot_fl.launchers.engine import Outcome, Task
from oneshot_fl.launchers.here import Here
from oneshot_fl.launchers.hydra_side import Launch, _state, without_hydra
from oneshot_fl.launchers.loop import Talk, run_all
from oneshot_fl.launchers.workers import Workers
from oneshot_fl.mistakes import mistakes_told
from oneshot_fl.reporting.finished import hashes_of
from oneshot_fl.sweeps.manifest import Manifest

DATA = ("mnist", "fashion_mnist", "svhn", "cifar10")
OF_CNN2 = 118_000
"""Bytes of a global model's file at 28x28."""
METHODS = ("fedavg", "ot", "feddf", "dense", "co_boosting", "fedhydra")


class Elsewhere(Here):
    """An engine whose jobs are all found done before they reach it."""

    name = "joblib"


def overrides(count: int) -> list[list[str]]:
    """The first of Table 1's jobs."""
    grid = product(range(10), DATA, (0.5, 0.3, 0.1, 0.01), METHODS)
    base = ["protocol=fedhydra", "study=fedhydra/table1", "trainer=cpu"]
    return [
        [*base, f"seed={seed}", f"data={data}", f"partition.alpha={alpha}", f"method={method}"]
        for seed, data, alpha, method in islice(grid, count)
    ]


def measure(count: int, folder: Path) -> list[dict[str, Any]]:
    """A row for each part of what a job costs besides itself."""
    from hydra import compose, initialize_config_dir
    from hydra.core.global_hydra import GlobalHydra
    from hydra.core.hydra_config import HydraConfig
    from hydra.core.utils import setup_globals
    from hydra.types import HydraContext

    import oneshot_fl.config.sweep  # noqa: F401  # what the names of folders need

    os.environ["ONESHOT_FL_STORE"] = str(folder / "store")
    setup_globals()
    rows, jobs = [], overrides(count)
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        master = compose("config", [f"hydra.sweep.dir={folder / 'sweep'}"], return_hydra_config=True)
        HydraConfig.instance().set_config(master)
        loader = GlobalHydra.instance().config_loader()
        few = jobs[:5]
        rows.append(row("Hydra composes a job", len(few), lambda: [loader.load_sweep_config(master, j) for j in few]))
        composer = Composer(loader)
        rows.append(row("composed here, all", len(jobs), lambda: [composer.load_sweep_config(master, j) for j in jobs]))
        pretend_done([composer.load_sweep_config(master, job) for job in jobs], folder)
        context = HydraContext(composer, None)
        launch = Launch(context, lambda _: 0.0, master, Elsewhere(), None)
        with open(os.devnull, "w") as nowhere, redirect_stderr(nowhere):  # it says a line a job
            rows.append(row("a done job, second call", len(jobs), lambda: launch(jobs, 0)))
        state = _state()
        idlers = min(200, len(jobs))
        rows.append(row("2 workers, a job that does nothing", idlers, lambda: idle(idlers, folder, len(state))))
    return rows


def row(what: str, jobs: int, act: Callable[[], Any]) -> dict[str, Any]:
    """Seconds a job: of this process's CPU, and by the clock where processes are waited for."""
    clock, cpu = time.perf_counter(), time.process_time()
    act()
    seconds = {"CPU-s a job": (time.process_time() - cpu) / jobs, "s a job": (time.perf_counter() - clock) / jobs}
    return {"what": what, "jobs": jobs, **seconds}


def pretend_done(configs: list[Any], folder: Path) -> None:
    """Leave what finished runs of these configurations would leave."""
    from oneshot_fl.config import resolved
    from oneshot_fl.job import remembered

    for number, config in enumerate(configs):
        place = remembered(resolved(without_hydra(config)))
        if place is None:
            raise RuntimeError(f"job {number} has no key")
        done = folder / "done" / str(number)
        done.mkdir(parents=True)
        (done / "summary.json").write_text(json.dumps({"server": {"accuracy_last": 0.5}}))
        (done / CONFIG).write_text(OmegaConf.to_yaml(without_hydra(config)))
        (done / MODEL).write_bytes(bytes(OF_CNN2))
        (done / "run.json").write_text(json.dumps({**place.told, "status": "done", **hashes_of(done)}))
        place.remember(done)


def idle(jobs: int, folder: Path, bytes_sent: int) -> None:
    """Jobs that do nothing, with as much to send as real ones have."""
    payload = b"x" * bytes_sent

    def tasks() -> Iterator[Task]:
        for number in range(jobs):
            call = partial(nothing, payload)
            yield Task(number, (f"seed={number}",), folder / "idle" / str(number), call, str(folder))

    manifest = Manifest({number: (f"seed={number}",) for number in range(jobs)})
    run_all(Workers(at_once=2), tasks(), Talk(folder / "idle", manifest, say=lambda _: None), lambda *_: None)


def nothing(payload: bytes) -> Outcome:
    """A job."""
    return Outcome("done", float(len(payload) > 0))


def main() -> None:
    """The command line."""
    parser = Parser(prog="python -m benchmarks.sweeps", description=__doc__)
    parser.add_argument("--jobs", type=above_zero, default=960, help="of the table's 960")
    with mistakes_told(), tempfile.TemporaryDirectory() as folder:
        rows = measure(parser.parse_args().jobs, Path(folder))
    if "torch" in sys.modules:
        raise RuntimeError("something of this loads torch, which no done job should need")
    from benchmarks.__main__ import markdown  # which does load it

    print(markdown(rows))


if __name__ == "__main__":
    main()
