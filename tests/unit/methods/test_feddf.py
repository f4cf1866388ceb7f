"""FedDF written out with loops against the framework's slots and loop: the same weights after three rounds.

With clients of two architectures it is the same for a student of each.

Without batch normalisation: a convolution's bias before it has no gradient but rounding, which Adam blows up.
"""

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from oneshot_fl.config.bind import make_method
from oneshot_fl.data.batches import ImageBatches, index_batches
from oneshot_fl.data.dataset import DataSpec, make_dataset
from oneshot_fl.data.proxy import Proxy
from oneshot_fl.models.classifiers import cnn2, lenet5
from oneshot_fl.models.per_architecture import members_of, together
from oneshot_fl.parts.inits import AverageWhereAlike
from oneshot_fl.parts.uploads import Uploads
from oneshot_fl.phases.checkpoint import RoundCheckpoint
from oneshot_fl.phases.distill import distill
from oneshot_fl.seeds import seeded, torch_generator
from tests.conftest import compose_config

SPEC = DataSpec(1, 8, 3, (0.5,), (0.5,))
Build = Callable[[DataSpec], nn.Module]
PLAIN: Build = partial(cnn2, norm=False)
SETTINGS = {"rounds": 3, "batch_size": 8, "bank": "loop", "clients_at_once": 16, "images": 8, "seed": 11}


def _student(build: Build) -> nn.Module:
    with seeded(1, "student"):
        return build(SPEC)


@pytest.fixture
def uploads() -> Uploads:
    return Uploads([PLAIN(SPEC).eval() for _ in range(2)], [10, 20])


@pytest.fixture
def proxy() -> Proxy:
    images = torch.randint(256, (20, 1, 8, 8), dtype=torch.uint8)
    return Proxy(lambda: images)


def _literal(uploads: Uploads, proxy: Proxy, build: Build = PLAIN) -> nn.Module:
    student = AverageWhereAlike()(_student(build), uploads).train()
    x = (proxy.images.float() / 255 - 0.5) / 0.5
    with torch.no_grad():
        teacher = sum(model(x) for model in uploads.models) / len(uploads.models)
    optimizer = torch.optim.Adam(student.parameters(), lr=0.001)
    rng = torch_generator(SETTINGS["seed"], "distill")
    for number in range(3):
        optimizer.param_groups[0]["lr"] = 0.001 * (1 + math.cos(math.pi * number / 3)) / 2
        for batch in index_batches(20, 8, rng):
            target = F.softmax(teacher[batch], dim=1)
            loss = (target * (target.log() - F.log_softmax(student(x[batch]), dim=1))).sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return student


def _framework(uploads: Uploads, proxy: Proxy, context, builds: tuple[Build, ...] = (PLAIN,)):
    cfg = compose_config("method=feddf", "distill.batch_size=8")
    labels = torch.arange(6) % 3
    part = (torch.zeros(6, 1, 8, 8, dtype=torch.uint8), labels)
    data = make_dataset(name="zeros", train=part, test=part, class_names=("a", "b", "c"), mean=[0.5], std=[0.5])
    return distill(
        data,
        ImageBatches(*part, spec=SPEC, batch_size=8),
        uploads,
        make_method(cfg, SPEC, uploads, proxy),
        student=lambda: together([_student(build) for build in builds]),
        inputs={},
        settings=SETTINGS,
        context=context,
    )


def test_the_loop_is_feddf(uploads, proxy, context):
    server = _framework(uploads, proxy, context)
    literal = _literal(uploads, proxy).state_dict()
    for name, tensor in server.model.state_dict().items():
        torch.testing.assert_close(tensor, literal[name], rtol=1e-4, atol=1e-6)
    assert [row["generator"] for row in server.history] == [{}, {}, {}]
    assert len(server.images) == 8  # as many as the settings ask for, not all


def test_a_student_of_each_architecture_learns_as_if_alone_and_they_vote(proxy, context):
    builds = (PLAIN, lenet5)
    uploads = Uploads([build(SPEC).eval() for build in (PLAIN, PLAIN, lenet5)], [10, 20, 5])
    server = _framework(uploads, proxy, context, builds)
    for member, build in zip(members_of(server.model), builds, strict=True):
        literal = _literal(uploads, proxy, build).state_dict()
        for name, tensor in member.state_dict().items():
            torch.testing.assert_close(tensor, literal[name], rtol=1e-3, atol=1e-5)


def test_a_fixed_pool_and_an_annealed_rate_go_on_bit_for_bit(uploads, proxy, context, monkeypatch):
    unbroken = _framework(uploads, proxy, context)
    for folder in (context.store.root / "distill").iterdir():
        if folder.is_dir():
            folder.rename(folder.with_name("elsewhere"))
    save, written = RoundCheckpoint.on_train_epoch_end, []

    def die(self, trainer, module):
        save(self, trainer, module)
        written.extend(path.name for path in Path(self.folder).glob("batch-*"))
        if len(module.history) == 2:
            raise RuntimeError("killed")

    with monkeypatch.context() as patch:
        patch.setattr(RoundCheckpoint, "on_train_epoch_end", die)
        with pytest.raises(RuntimeError, match="killed"):
            _framework(uploads, proxy, context)
    resumed = _framework(uploads, proxy, context)
    assert set(written) == {"batch-000001.pt"}  # written once, in the first round
    assert resumed.history == unbroken.history
    for name, tensor in resumed.model.state_dict().items():
        assert torch.equal(tensor, unbroken.model.state_dict()[name])
