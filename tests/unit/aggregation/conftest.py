"""Uploads as strangers would send them."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from oneshot_fl.config.described import build
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.models.model_file import write_model

Write = Callable[..., Path]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where uploads lie."""
    (tmp_path / "uploads").mkdir()
    return tmp_path / "uploads"


@pytest.fixture
def write(folder: Path) -> Write:
    """Write one upload; its weights are random, each file's its own, and its running statistics fit them.

    With `times` the weights are multiplied afterwards, which no training leaves: the gate turns the upload away.
    """

    def write(
        name: str,
        *,
        classes: str = "abc",
        model: str = "cnn2",
        kind: str = "classifier",
        size: int = 8,
        mean: float = 0.5,
        times: float = 1.0,
        **more: object,
    ) -> Path:
        spec = DataSpec(1, size, len(classes), (mean,), (0.5,))
        told = ModelDescription(kind, ({"name": model},), spec, tuple(classes), **more)  # type: ignore[arg-type]
        built = build(told)
        with torch.random.fork_rng():
            torch.manual_seed(sum(map(ord, name)))
            for parameter in built.parameters():
                parameter.data += 0.1 * torch.randn_like(parameter)
            if kind == "classifier":
                built.train()(torch.randn(64, 1, size, size))
        for parameter in built.parameters():
            parameter.data *= times
        path = folder / f"{name}.safetensors"
        write_model(path, built.state_dict(), told)
        return path

    return write
