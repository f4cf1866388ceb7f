"""Uploads of plain PyTorch code that knows nothing of us: torchvision's ResNet-18, one hostile file among four."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file
from torch.nn import functional as F
from torchvision.models import resnet18

import oneshot_fl
from oneshot_fl.errors import NothingLeftError

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
    *("trainer=cpu", "logger=none"),
)


def _train(seed: int) -> dict[str, torch.Tensor]:
    """Dark and bright images, some of each."""
    torch.manual_seed(seed)
    model = resnet18(num_classes=2)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(20):
        y = torch.randint(2, (16,))
        x = (torch.rand(16, 3, 32, 32) + y.view(-1, 1, 1, 1)) / 2
        optimizer.zero_grad()
        F.cross_entropy(model((x - 0.5) / 0.5), y).backward()
        optimizer.step()
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
