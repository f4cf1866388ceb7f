"""FedMHO's own terms, and a literal FedMHO-SD against the framework's loop, with one architecture and with two."""

import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from oneshot_fl.config.bind import make_method
from oneshot_fl.data.batches import ImageBatches, index_batches
from oneshot_fl.data.dataset import DataSpec, make_dataset
from oneshot_fl.data.proxy import Proxy
from oneshot_fl.methods.fedmho import SelfDistillation, TeacherDistillation
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.classifiers import cnn2, lenet5
from oneshot_fl.parts.decoders import draw_noise
from oneshot_fl.parts.inits import AverageWhereAlike
from oneshot_fl.parts.uploads import Decoder, Uploads
from oneshot_fl.parts.view import View
from oneshot_fl.phases.distill import distill
from oneshot_fl.seeds import seeded, torch_generator
from tests.conftest import compose_config

SPEC = DataSpec(1, 8, 3, (0.5,), (0.5,))
SETTINGS = {"rounds": 2, "batch_size": 8, "bank": "loop", "clients_at_once": 16, "images": 8, "seed": 11}


@pytest.mark.parametrize(("per_class", "share"), [(False, 1), (True, 1 / 2)])
@pytest.mark.parametrize("term", [TeacherDistillation, SelfDistillation])
def test_what_was_known_is_a_kl_to_the_student(term, per_class, share, fixed_logits):
    # softmax of (ln 3, 0) is (3/4, 1/4), of (0, 0) (1/2, 1/2): KL = 3/4 ln(3/2) + 1/4 ln(1/2); there are two classes
    known = fixed_logits([math.log(3), 0.0])
    view = View(
        torch.zeros(2, 1, 1, 1),
        torch.zeros(2, dtype=torch.long),
        student=fixed_logits([0.0, 0.0]),
        bank=ClientBank([known]),
        ensemble=lambda P, y: P.mean(dim=0),
        start=ClientBank([known]),
    )
    expected = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)
    assert term(1.0, per_class=per_class)(view).item() == pytest.approx(share * expected, abs=1e-6)


class _Draws(nn.Module):
    """Images from noise and label without any layer."""

    def __init__(self) -> None:
        super().__init__()
        self.scale = nn.Parameter(torch.tensor(1.0))

    def forward(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        return torch.sigmoid(self.scale * z.view(-1, 1, 8, 8) + y.view(-1, 1, 1, 1))


def _student() -> nn.Module:
    with seeded(1, "student"):
        return cnn2(SPEC, norm=False)


def _literal(uploads: Uploads) -> nn.Module:
    rng = torch_generator(SETTINGS["seed"], "distill")
    x, y = [], []
    for decoder, share in zip(uploads.decoders, ([10, 5, 0], [0, 5, 10]), strict=True):
        labels = torch.tensor([0] * share[0] + [1] * share[1] + [2] * share[2])
        x.append(decoder.module(draw_noise(len(labels), 64, None, rng), labels).detach())
        y.append(labels)
    x, y = (torch.cat(x) - 0.5) / 0.5, torch.cat(y)
    kept = []
    for label in range(3):  # 80% of every class, nearest to its mean image
        members = [i for i in range(len(y)) if y[i] == label]
        mean = x[members].mean(0)
        order = sorted(members, key=lambda i, mean=mean: float((x[i] - mean).norm()))
        kept += sorted(order[: int(0.8 * len(members))])
    x, y = x[kept], y[kept]
    student, start = (AverageWhereAlike()(_student(), uploads) for _ in range(2))
    if len({type(model[0]) for model in uploads.models}) > 1:  # Sec. 5.6
        optimizer = torch.optim.Adam(student.parameters(), lr=0.001)
        for _ in range(3):
            for batch in index_batches(len(y), 8, rng):
                target = F.softmax(sum(model(x[batch]) for model in uploads.models).detach() / 2, dim=1)
                kl = (target * (target.log() - F.log_softmax(student(x[batch]), dim=1))).sum(dim=1).mean()
                optimizer.zero_grad()
                kl.backward()
                optimizer.step()
        start.load_state_dict(student.state_dict())
    optimizer = torch.optim.Adam(student.parameters(), lr=0.0001)
    for _ in range(2):
        for batch in index_batches(len(y), 8, rng):
            logits = student(x[batch])
            target = F.softmax(start(x[batch]).detach(), dim=1)
            kl = (target * (target.log() - F.log_softmax(logits, dim=1))).sum(dim=1).mean()
            optimizer.zero_grad()
            (0.5 * F.cross_entropy(logits, y[batch]) + 0.5 * kl / 3).backward()
            optimizer.step()
    return student


@pytest.mark.parametrize("other", [partial(cnn2, norm=False), lenet5])
def test_the_loop_is_fedmho_sd(other, context):
    clients = [cnn2(SPEC, norm=False).eval(), other(SPEC).eval()]
    counts = torch.tensor([[2, 1, 0], [0, 1, 2]])
    uploads = Uploads(clients, [3, 3], decoders=[Decoder(_Draws(), 64, row) for row in counts])
    cfg = compose_config(
        "method=fedmho_sd",
        "clients=half_cvae",
        "distill.batch_size=8",
        "method.source.samples=30",
        "method.warm_up.passes=3",
    )
    part = (torch.zeros(6, 1, 8, 8, dtype=torch.uint8), torch.arange(6) % 3)
    data = make_dataset(name="zeros", train=part, test=part, class_names=("a", "b", "c"), mean=[0.5], std=[0.5])
    server = distill(
        data,
        ImageBatches(*part, spec=SPEC, batch_size=8),
        uploads,
        make_method(cfg, SPEC, uploads, Proxy(lambda: torch.empty(0))),
        student=_student,
        inputs={},
        settings=SETTINGS,
        context=context,
    )
    literal = _literal(uploads).state_dict()
    for name, tensor in server.model.state_dict().items():
        torch.testing.assert_close(tensor, literal[name], rtol=1e-4, atol=1e-6)
