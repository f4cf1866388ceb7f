"""Clients that are trained, stratified and inverted by several processes, against one after the other."""

import os
import sys
import time
from collections import Counter
from dataclasses import replace
from functools import partial
from pathlib import Path

import cloudpickle
import pytest
import torch
from joblib import parallel_config
from rich.console import Console

from oneshot_fl.artifacts import Artifact, read_artifact
from oneshot_fl.errors import OneshotError
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.side_by_side import make_all
from oneshot_fl.store import Store, Wanted
from oneshot_fl.tracking.loggers import RunLog
from oneshot_fl.tracking.progress import Progress
from tests.composing import TINY, compose_config, few_images, run_config
from tests.parts import CPU

PHASES = {
    "fedchorus": {"clients": 3, "recite": 3, "distill": 1},
    "fedhydra": {"clients": 3, "stratify": 3, "distill": 1},
}
"""How many artifacts each phase makes of three clients."""


def _tensors(store: Path) -> dict[Path, dict[str, torch.Tensor]]:
    folders = [path.parent for path in store.rglob("manifest.json")]
    return {folder.relative_to(store): read_artifact(folder).tensors for folder in folders}


@pytest.mark.parametrize("method", ["fedchorus", pytest.param("fedhydra", marks=pytest.mark.slow)])
def test_two_workers_make_the_same_bit_by_bit(tmp_path, capsys, method):
    found = {}
    for workers in (1, 2):
        store = tmp_path / f"store-{workers}"
        choices = (f"method={method}", f"workers={workers}", f"store={store}", "logger=none", "partition.clients=3")
        run_config(compose_config(*TINY, *few_images(method), *choices), tmp_path / f"run-{workers}")
        found[workers] = _tensors(store)
    told = capsys.readouterr().out
    assert told.count("client epochs in") == 2  # by each number of workers
    assert found[1].keys() == found[2].keys()
    assert Counter(path.parts[0] for path in found[1]) == PHASES[method]
    for path, tensors in found[1].items():
        assert all(torch.equal(tensor, found[2][path][name]) for name, tensor in tensors.items()), path


def _by_process(present: Path, processes: int, _: Path) -> Artifact:
    """Who made it; nobody goes on before so many processes have begun."""
    (present / str(os.getpid())).touch()
    deadline = time.monotonic() + 120
    while len(list(present.iterdir())) < processes and time.monotonic() < deadline:
        time.sleep(0.1)
    return Artifact({"process": torch.tensor(os.getpid())}, {})


def _job(folder: Path, processes: int) -> list[int]:
    context = Context(Store(folder / "store"), CPU, Progress(Console(quiet=True)), RunLog([]), workers=3)
    (folder / "present").mkdir()
    make = partial(_by_process, folder / "present", processes)
    wanted = [Wanted("clients", {"k": k}, make) for k in range(12)]
    made = make_all(wanted, [1] * 12, context=context, task=context.progress.task("x", 12, "things"))
    return [int(artifact.tensors["process"]) for artifact in made]


@pytest.mark.slow  # a cluster starts, and every process of its imports torch
@pytest.mark.parametrize(("cores", "processes"), [(1, 3), (3, 1)])  # of the job; a full cluster has none for helpers
def test_tasks_of_ray_help_a_job_where_there_is_room(tmp_path, cores, processes):
    ray = pytest.importorskip("ray", reason="pip install 'oneshot-fl[ray]'")
    cloudpickle.register_pickle_by_value(sys.modules[__name__])
    ray.init(num_cpus=3, include_dashboard=False, log_to_driver=False)
    try:
        job = ray.remote(num_cpus=cores)(_job)
        assert len(set(ray.get(job.remote(tmp_path, processes)))) == processes
    finally:
        ray.shutdown()
        cloudpickle.unregister_pickle_by_value(sys.modules[__name__])


def _precision(_: Path) -> Artifact:
    return Artifact({}, {"precision": torch.get_float32_matmul_precision()})


@pytest.mark.slow  # every worker imports torch
def test_workers_multiply_as_the_run_does_before_they_make_a_trainer(context):
    """New ones, and those of an earlier run of another precision."""
    for precision in ("medium", "high"):
        store = replace(context.store, root=context.store.root / precision)
        two = replace(context, store=store, trainer=replace(CPU, matmul_precision=precision), workers=2)
        wanted = [Wanted("clients", {"k": k}, _precision) for k in range(2)]
        made = make_all(wanted, [1] * 2, context=two, task=two.progress.task("x", 2, "things"))
        assert [artifact.facts["precision"] for artifact in made] == [precision] * 2


@pytest.mark.slow  # every worker imports torch
def test_workers_are_processes_whatever_runs_around_the_run(context, tmp_path):
    """Threads, which joblib has inside one of its workers, would share torch's random numbers."""
    two = replace(context, workers=2)
    wanted = [Wanted("clients", {"k": k}, partial(_by_process, tmp_path, 0)) for k in range(2)]
    with parallel_config(backend="threading"):
        made = make_all(wanted, [1] * 2, context=two, task=two.progress.task("x", 2, "things"))
    assert os.getpid() not in {int(artifact.tensors["process"]) for artifact in made}


def _die(_: Path) -> Artifact:
    os._exit(1)


def _fail(_: Path) -> Artifact:
    raise OneshotError("lr=1: too high; lower it")


@pytest.mark.slow  # every worker imports torch
@pytest.mark.parametrize(
    ("make", "says"), [(_die, "workers=2: one of them died.*the same command resumes"), (_fail, "lr=1: too high")]
)
def test_a_worker_that_dies_or_fails_ends_in_one_line(context, make, says):
    wanted = [Wanted("clients", {"k": k}, make) for k in range(3)]
    two = replace(context, workers=2)
    with pytest.raises(OneshotError, match=says) as raised:
        make_all(wanted, [1] * 3, context=two, task=two.progress.task("x", 3, "things"))
    assert "\n" not in str(raised.value)
    assert not list(context.store.root.rglob("manifest.json"))
