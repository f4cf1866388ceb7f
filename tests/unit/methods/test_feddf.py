"""FedDF written out with loops against the framework's slots and loop: the same weights after three rounds.

With clients of two architectures it is the same for a student of each.

Without batch normalisation: a convolution's bias before it has no gradient but rounding, which Adam blows up.
"""

import math
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from oneshot_fl.data.batches import index_batches
from oneshot_fl.models.classifiers import cnn2, lenet5
from oneshot_fl.models.per_architecture import members_of
from oneshot_fl.parts.inits import AverageWhereAlike
from oneshot_fl.parts.uploads import Server
from oneshot_fl.phases.checkpoint import RoundCheckpoint
from oneshot_fl.phases.global_model import Distilled
from oneshot_fl.recipe import Recipe
from oneshot_fl.seeds import torch_generator
from tests.parts import SMALL, recipe_of, server_of
from tests.unit.methods.literal import SETTINGS, by_the_loop, student_of

PLAIN, LENET = recipe_of(cnn2, norm=False), recipe_of(lenet5)


def _server(*clients: Recipe[nn.Module]) -> Server:
    models = [client(spec=SMALL).eval() for client in clients]
    sizes = [10, 20, 5][: len(models)]
    return server_of(models, sizes, proxy=torch.randint(256, (20, 1, 8, 8), dtype=torch.uint8))


@pytest.fixture
def server() -> Server:
    return _server(PLAIN, PLAIN)


def _literal(server: Server, student: Recipe[nn.Module] = PLAIN) -> nn.Module:
    student = AverageWhereAlike(server)(student_of(student)).train()
    models = server.uploads.models
    x = (server.proxy.images.float() / 255 - 0.5) / 0.5
    with torch.no_grad():
        teacher = sum(model(x) for model in models) / len(models)
    optimizer = torch.optim.Adam(student.parameters(), lr=0.001)
    rng = torch_generator(SETTINGS.seed, "distill")
    for number in range(3):
        optimizer.param_groups[0]["lr"] = 0.001 * (1 + math.cos(math.pi * number / 3)) / 2
        for batch in index_batches(20, 8, rng):
            target = F.softmax(teacher[batch], dim=1)
            loss = (target * (target.log() - F.log_softmax(student(x[batch]), dim=1))).sum(dim=1).mean()
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
    return student


def _framework(server: Server, context, *students: Recipe[nn.Module]) -> Distilled:
    return by_the_loop("method=feddf", server=server, students=students or (PLAIN,), context=context)


def test_the_loop_is_feddf(server, context):
    made = _framework(server, context)
    literal = _literal(server).state_dict()
    for name, tensor in made.model.state_dict().items():
        torch.testing.assert_close(tensor, literal[name], rtol=1e-4, atol=1e-6)
    assert [row["generator"] for row in made.history] == [{}, {}, {}]
    assert len(made.images) == 8  # as many as the settings ask for, not all


def test_a_student_of_each_architecture_learns_as_if_alone_and_they_vote(context):
    students, server = (PLAIN, LENET), _server(PLAIN, PLAIN, LENET)
    made = _framework(server, context, *students)
    for member, student in zip(members_of(made.model), students, strict=True):
        literal = _literal(server, student).state_dict()
        for name, tensor in member.state_dict().items():
            torch.testing.assert_close(tensor, literal[name], rtol=1e-3, atol=1e-5)


def test_a_fixed_pool_and_an_annealed_rate_go_on_bit_for_bit(server, context, monkeypatch):
    unbroken = _framework(server, context)
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
            _framework(server, context)
    resumed = _framework(server, context)
    assert set(written) == {"batch-000001.pt"}  # written once, in the first round
    assert resumed.history == unbroken.history
    for name, tensor in resumed.model.state_dict().items():
        assert torch.equal(tensor, unbroken.model.state_dict()[name])
