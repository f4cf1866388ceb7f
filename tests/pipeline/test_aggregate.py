"""Uploads of plain PyTorch code that knows nothing of us, one hostile file among four; and what a kill costs."""

import json
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F
from torchvision.models import resnet18

import oneshot_fl
from oneshot_fl.errors import NothingLeftError
from tests.folders import write_digits
from tests.pipeline.cli import environment

RESNET = "torchvision.models.resnet18"
TOLD = {
    "format": 1,
    "kind": "classifier",
    "architectures": [{"_target_": RESNET, "num_classes": 2}],
    "data": {"channels": 3, "size": 32, "mean": [0.5], "std": [0.5]},
    "class_names": ["dark", "bright"],
}
FEW = (
    *("distill.rounds=1", "distill.batch_size=64", "recite.images=16", "recite.batch_size=8", "recite.steps=2"),
    *("method.source.dead_leaves.samples=32", "method.source.strokes.samples=32", "method.source.mixtures.samples=32"),
    *("method.source.variations.samples=32", "method.source.textures.samples=32"),
    *("trainer=cpu", "logger=none"),
)


def _train(seed: int) -> dict[str, torch.Tensor]:
    """Dark and bright images, some of each; smaller steps at the end, which running statistics keep up with."""
    torch.manual_seed(seed)
    model = resnet18(num_classes=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    schedule = torch.optim.lr_scheduler.LinearLR(optimizer, 1.0, 0.01, total_iters=60)
    for _ in range(60):
        y = torch.randint(2, (16,))
        x = (torch.rand(16, 3, 32, 32) + y.view(-1, 1, 1, 1)) / 2
        optimizer.zero_grad()
        F.cross_entropy(model((x - 0.5) / 0.5), y).backward()
        optimizer.step()
        schedule.step()
    return model.state_dict()


@pytest.mark.slow
def test_one_hostile_file_among_four_loses_nothing_for_the_others(tmp_path: Path) -> None:
    uploads = tmp_path / "uploads"
    uploads.mkdir()
    states = [_train(seed) for seed in range(4)]
    states[3] = {name: each * 100 if each.is_floating_point() else each for name, each in states[3].items()}
    for number, state in enumerate(states):
        save_file(state, uploads / f"{number}.safetensors", {"oneshot_fl": json.dumps(TOLD)})
    settings = (*FEW, f"store={tmp_path}/store")
    with pytest.raises(NothingLeftError, match=f"--allow {RESNET}"):
        oneshot_fl.aggregate(uploads, *settings, folder=tmp_path / "out")
    result = oneshot_fl.aggregate(uploads, *settings, folder=tmp_path / "out", allow=[RESNET])
    assert [one["name"] for one in result.summary["quarantined"]] == ["3.safetensors"]
    assert result.summary["accepted"] == ["0.safetensors", "1.safetensors", "2.safetensors"]


AGGREGATE = (sys.executable, "-c", "from oneshot_fl.cli import main; main()", "aggregate")
MANY = ("method=fedchorus", "distill.rounds=12", "distill.batch_size=64", *FEW[2:])


def _start(uploads: Path, out: Path, store: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*AGGREGATE, str(uploads), "--out", str(out), *MANY],
        env=environment(store),
        cwd=out.parent,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
    )


def _left(out: Path) -> tuple[dict, bytes]:
    """What an aggregation left, but for what it cost."""
    summary = json.loads((out / "summary.json").read_text())
    return {**summary, "seconds": None, "cost": None}, (out / "server.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("sign", ["recite/*/manifest.json", "distill/*.work/batch-*.pt"])
def test_killed_in_the_middle_the_same_command_ends_as_if_it_had_not_been(sign: str, tmp_path: Path) -> None:
    uploads, store = tmp_path / "uploads", tmp_path / "store"
    uploads.mkdir()
    write_digits(tmp_path / "digits", every=3)
    for seed in range(2):
        settings = ("model=cnn2", "clients.epochs=10", "data.channels=1", "trainer=cpu", f"store={tmp_path}/clients")
        out = uploads / f"{seed}.safetensors"
        oneshot_fl.train_client(tmp_path / "digits" / "train", *settings, f"seed={seed}", out=out, counts=True)
    assert _start(uploads, tmp_path / "unbroken", tmp_path / "other").wait(timeout=240) == 0
    process = _start(uploads, tmp_path / "out", store)
    deadline = time.monotonic() + 200
    while not list(store.glob(sign)):
        assert process.poll() is None, "it ended before it could be killed"
        assert time.monotonic() < deadline
        time.sleep(0.002)
    process.send_signal(signal.SIGKILL)
    process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (tmp_path / "out" / "summary.json").exists()
    done = [path for path in store.glob("*/*/manifest.json") if ".new" not in path.parent.name]
    before = {path: path.stat().st_mtime_ns for path in done}
    assert _start(uploads, tmp_path / "out", store).wait(timeout=240) == 0
    assert {path: path.stat().st_mtime_ns for path in before} == before, "finished work was done again"
    assert _left(tmp_path / "out") == _left(tmp_path / "unbroken")
