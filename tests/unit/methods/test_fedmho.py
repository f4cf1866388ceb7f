"""FedMHO's own terms, and a literal FedMHO-SD against the framework's loop, with one architecture and with two."""

import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from oneshot_fl.data.batches import index_batches
from oneshot_fl.methods.fedmho import SelfDistillation, TeacherDistillation
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.classifiers import cnn2, lenet5
from oneshot_fl.models.cvae import CVAE
from oneshot_fl.parts.decoders import draw_noise
from oneshot_fl.parts.inits import AverageWhereAlike
from oneshot_fl.parts.uploads import DecoderUpload, Server
from oneshot_fl.parts.view import View
from oneshot_fl.seeds import torch_generator
from tests.parts import SMALL, recipe_of, server_of
from tests.unit.methods.literal import SETTINGS, by_the_loop, student_of

PLAIN, LENET = recipe_of(cnn2, norm=False), recipe_of(lenet5)


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
        ensemble=lambda votes: votes.P.mean(dim=0),
        needs=term.needs,
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


def _no_vae() -> CVAE:
    raise AssertionError("these decoders are only drawn from")


def _literal(server: Server) -> nn.Module:
    uploads, rng = server.uploads, torch_generator(SETTINGS.seed, "distill")
    x, y = [], []
    for decoder, share in zip(uploads.decoders, ([10, 5, 0], [0, 5, 10]), strict=True):
        labels = torch.tensor([0] * share[0] + [1] * share[1] + [2] * share[2])
        x.append(decoder.model(draw_noise(len(labels), 64, None, rng), labels).detach())
        y.append(labels)
    x, y = (torch.cat(x) - 0.5) / 0.5, torch.cat(y)
    kept = []
    for label in range(3):  # 80% of every class, nearest to its mean image
        members = [i for i in range(len(y)) if y[i] == label]
        mean = x[members].mean(0)
        order = sorted(members, key=lambda i, mean=mean: float((x[i] - mean).norm()))
        kept += sorted(order[: int(0.8 * len(members))])
    x, y = x[kept], y[kept]
    student, start = (AverageWhereAlike(server)(student_of(PLAIN)) for _ in range(2))
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


@pytest.mark.parametrize("other", [PLAIN, LENET], ids=["cnn2", "lenet5"])
def test_the_loop_is_fedmho_sd(other, context):
    clients = [PLAIN(spec=SMALL).eval(), other(spec=SMALL).eval()]
    counts = torch.tensor([[2, 1, 0], [0, 1, 2]])
    decoders = [DecoderUpload(_Draws(), 64, row, f"decoder {k}", _no_vae) for k, row in enumerate(counts)]
    server = server_of(clients, [3, 3], decoders=decoders)
    made = by_the_loop(
        "method=fedmho_sd",
        "clients=half_cvae",
        "method.source.samples=30",
        "method.warm_up.passes=3",
        server=server,
        students=(PLAIN,),
        context=context,
        rounds=2,
    )
    literal = _literal(server).state_dict()
    # Adam divides a gradient of nearly 0 by its own size: one of 12,800 weights of the literal version itself moves by
    # 1e-6 when it is computed in float64. 1e-5 is a tenth of one step of the student.
    for name, tensor in made.model.state_dict().items():
        torch.testing.assert_close(tensor, literal[name], rtol=1e-4, atol=1e-5)
