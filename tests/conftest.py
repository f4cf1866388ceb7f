"""Fixtures that every kind of test shares.

What loads torch is imported where it is used: the process that hands the tests to workers needs none of it.
"""

import os
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from tests.figures import blank


@pytest.fixture(scope="session")
def shared_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """One store for the runs of all workers that need none of their own: clients that are alike are trained once."""
    own = tmp_path_factory.getbasetemp()
    return (own.parent if "PYTEST_XDIST_WORKER" in os.environ else own) / "store"


@pytest.fixture
def tiny(tmp_path: Path):
    """A function from overrides to a tiny configuration on the digits, with a store of its own."""
    from tests.composing import TINY, compose_config

    return lambda *overrides: compose_config(*TINY, f"store={tmp_path / 'store'}", *overrides)


@pytest.fixture
def digit_domains(tmp_path: Path) -> list[str]:
    """Overrides that choose four domains of two classes with three images each; svhn is held out."""
    from tests.unit.data.image_files import write_image

    for domain in ("mnist", "mnist_m", "svhn", "syn"):
        for digit in "01":
            for number in range(3):
                write_image(tmp_path / "digits" / domain / digit / f"{number}.png", number)
    return ["data=digit_domains", f"data.root={tmp_path / 'digits'}", "data.held_out=svhn", f"store={tmp_path / 's'}"]


@pytest.fixture
def spec() -> Any:
    """Grey 8x8 images of three classes."""
    from tests.parts import SMALL

    return SMALL


@pytest.fixture
def context(tmp_path: Path) -> Any:
    """A CPU context with a store of its own, without loggers and bars."""
    from rich.console import Console

    from oneshot_fl.phases.context import Context
    from oneshot_fl.store import Store
    from oneshot_fl.tracking.loggers import RunLog
    from oneshot_fl.tracking.progress import Progress
    from tests.parts import CPU

    return Context(Store(tmp_path / "store"), CPU, Progress(Console(quiet=True)), RunLog([]))


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Tiny tensors only wait for a second thread, above all on a busy machine."""
    import torch

    torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def files_need_not_survive_a_power_cut() -> Iterator[None]:
    """Waiting for the disk takes some 3 ms each time, and tests write files by the ten thousand."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda _number: None)
        yield


@pytest.fixture(autouse=True)
def fixed_global_seed() -> None:
    """Tests that draw do it from the same state in any order."""
    import torch

    torch.manual_seed(0)


@pytest.fixture
def fixed_logits() -> Any:
    """A 'model' that answers every image with the same logits."""
    from tests.parts import FixedLogits

    return FixedLogits


@pytest.fixture(autouse=True)
def blank_figures(request, monkeypatch) -> None:
    """Figures that `draws` asks for are laid out, and written as a pixel: their looks have tests of their own."""
    if request.node.get_closest_marker("draws"):
        monkeypatch.setattr("matplotlib.figure.Figure.savefig", blank)


@pytest.fixture(scope="session", autouse=True)
def known_extensions() -> None:
    """Every Trainer asks all installed packages for extensions of Lightning; they stay the same."""
    from lightning.fabric.utilities import registry

    registry.entry_points = cache(registry.entry_points)
