"""A Flower run is a run: three clients on folders of their own, in simulation and over TLS, against the pipeline."""

import json
import signal
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
import torch

import oneshot_fl
from oneshot_fl.config import from_overrides
from oneshot_fl.models.model_file import read_model
from oneshot_fl.phases.prepare import prepare
from tests.folders import deal, write_digits
from tests.pipeline.flower import APP, end, flwr, free_port, needs_flower, run_app, running, superlink, wait_until

pytestmark = [pytest.mark.slow, needs_flower, pytest.mark.timeout(7200)]
CLIENTS = 3
OF_CLIENTS = ("model=cnn2", "clients.epochs=10", "clients.batch_size=32", "data.channels=1", "trainer=cpu", "seed=1")
OF_SERVER = (
    *("method=fedchorus", "budget=reduced", "gate=checks", "distill.rounds=2", "distill.batch_size=64"),
    *("recite.images=32", "recite.batch_size=16", "recite.steps=5", "method.source.dead_leaves.samples=64"),
    *("method.source.strokes.samples=64", "method.source.mixtures.samples=64", "trainer=cpu", "logger=none", "seed=1"),
)


@pytest.fixture(scope="module")
def run(tmp_path_factory) -> tuple[oneshot_fl.Result, Path]:
    """The pipeline's run, and a folder with the data set and each client's part of it."""
    root = tmp_path_factory.mktemp("run")
    write_digits(root / "digits", every=3)
    own = ("data=image_folder", f"data.root={root / 'digits'}", f"partition.clients={CLIENTS}", "partition.alpha=0.5")
    chosen = (*OF_SERVER, *OF_CLIENTS, *own, f"store={root / 'store'}")
    experiment = from_overrides(*chosen)[0]()
    given = prepare(experiment.data, experiment.partition, experiment.proxy, device=torch.device("cpu"))
    deal(root / "digits", given.indices, root)
    return oneshot_fl.run(*chosen, folder=root / "run"), root


def _config(root: Path, out: Path) -> dict[str, object]:
    return {
        "clients": CLIENTS,
        "classes": ",".join(map(str, range(10))),
        "client-settings": " ".join(OF_CLIENTS),
        "server-settings": " ".join(OF_SERVER),
        "folders": root,
        "out": out,
        "test": root / "digits" / "test",
        "wait": 300.0,
    }


def _require_equal(result: oneshot_fl.Result, out: Path) -> None:
    """The same model, tensor by tensor, of the same clients."""
    summary = json.loads((out / "summary.json").read_text())
    assert len(summary["accepted"]) == CLIENTS
    assert summary["quarantined"] == []
    assert summary["server"]["accuracy_last"] == result.accuracy
    ours, theirs = (read_model(folder / "server.safetensors").tensors() for folder in (out, result.folder))
    assert ours.keys() == theirs.keys()
    assert all(torch.equal(tensor, theirs[name]) for name, tensor in ours.items())


def test_a_simulation_ends_where_the_pipeline_does(run, tmp_path):
    result, root = run
    with superlink("--simulation", "--insecure", connection="insecure = true", folder=tmp_path):
        printed = run_app(
            _config(root, tmp_path / "out"), "--federation-config", f"num-supernodes={CLIENTS}", folder=tmp_path
        )
    assert (tmp_path / "out" / "summary.json").exists(), printed
    _require_equal(result, tmp_path / "out")


@contextmanager
def _deployed(root: Path, folder: Path) -> Iterator[list[subprocess.Popen[bytes]]]:
    """A SuperLink with TLS that knows three SuperNodes by their keys, and these as processes."""
    keys, names = folder / "keys", [f"client-{k}" for k in range(CLIENTS)]
    subprocess.run(["sh", APP / "keys.sh", keys, "IP:127.0.0.1", *names], check=True)
    certificate = ("--ssl-ca-certfile", "ca.crt", "--ssl-certfile", "server.pem", "--ssl-keyfile", "server.key")
    options = [part if part.startswith("-") else str(keys / part) for part in certificate]
    connection = f'root-certificates = "{keys / "ca.crt"}"'
    with (
        superlink(*options, "--enable-supernode-auth", connection=connection, folder=folder) as port,
        ExitStack() as nodes,
    ):
        for name in names:
            flwr("supernode", "register", str(keys / f"{name}.pub"), "here", folder=folder)
        yield [
            nodes.enter_context(
                running(
                    *(name, "supernode", "--superlink", f"127.0.0.1:{port}", "--port", str(free_port())),
                    *("--root-certificates", str(keys / "ca.crt"), "--auth-supernode-private-key", str(keys / name)),
                    *("--node-config", f'folder="{root / name}" number={number}'),
                    folder=folder,
                )
            )
            for number, name in enumerate(names)
        ]


def test_over_tls_it_ends_there_too_and_goes_on_when_a_client_dies(run, tmp_path):
    result, root = run
    with _deployed(root, tmp_path) as nodes:
        printed = run_app(_config(root, tmp_path / "out"), folder=tmp_path)
        assert (tmp_path / "out" / "summary.json").exists(), printed
        _require_equal(result, tmp_path / "out")
        second = _config(root, tmp_path / "second") | {"timeout": 120.0}
        _die_when_asked(nodes[-1], second, tmp_path)
    told = json.loads((tmp_path / "second" / "nodes.json").read_text())
    assert sorted(word.endswith(".safetensors") for word in told.values()) == [False, True, True]
    summary = json.loads((tmp_path / "second" / "summary.json").read_text())
    assert [name[:4] for name in summary["accepted"]] == ["0000", "0001"]


def _die_when_asked(node: subprocess.Popen[bytes], config: dict[str, object], folder: Path) -> None:
    """A run in which a client dies as soon as the server has turned to it."""
    with ThreadPoolExecutor(1) as apart:
        awaited = apart.submit(run_app, config, folder=folder)
        wait_until(lambda: awaited.done() or list(Path(str(config["out"])).glob("uploads-*")))
        end(node, signal.SIGKILL)
        awaited.result()
