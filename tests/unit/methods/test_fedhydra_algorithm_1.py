"""FedHydra's Algorithm 1 written out with loops, as the paper prints it, against the framework's slots and loop.

Both start from the same uploads, guidance matrix, student, generator and draws; after three rounds the students'
weights must agree, with the whole pool replayed every round (the default) and with one step a round (the paper).
"""

import math

import pytest
import torch
from torch import Tensor, nn

from oneshot_fl.config.bind import make_loop
from oneshot_fl.config.compose import build
from oneshot_fl.data.batches import ImageBatches, index_batches
from oneshot_fl.data.dataset import DataSpec, make_dataset
from oneshot_fl.data.proxy import Proxy
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.generators import ConvGenerator
from oneshot_fl.parts.slots import Method
from oneshot_fl.parts.uploads import Uploads
from oneshot_fl.phases.distill import distill
from oneshot_fl.seeds import seeded, torch_generator
from tests.conftest import compose_config

SPEC = DataSpec(1, 8, 3, (0.5,), (0.5,))
NO_PROXY = Proxy(lambda: torch.empty(0))
SETTINGS = {"rounds": 3, "batch_size": 8, "bank": "auto", "clients_at_once": 16, "images": 8, "seed": 11}
STEPS, NOISE, WIDTH = 4, 6, 4


def _generator() -> ConvGenerator:
    return ConvGenerator(SPEC, noise=NOISE, width=WIDTH)


def _student() -> nn.Module:
    with seeded(1, "student"):
        return cnn2(SPEC, norm=True)


@pytest.fixture
def uploads() -> Uploads:
    models = [cnn2(SPEC, norm=True) for _ in range(2)]
    for model in models:
        model(torch.randn(64, 1, 8, 8))
        model.requires_grad_(False).eval()
    return Uploads(models, [10, 20], guidance=torch.tensor([[5.0, 0.1], [0.5, 2.0], [1.0, 1.0]]))


def _stratified_aggregation(uploads: Uploads, x: Tensor, y: Tensor) -> Tensor:
    """Eqs. 4-11, one sample and one client at a time."""
    U = uploads.guidance
    c, m = U.shape
    answers = [model(x) for model in uploads.models]
    ensemble = []
    for i in range(len(x)):
        P_i = torch.zeros(c)
        for k in range(m):
            in_model = torch.stack([U[j, k] / sum(U[:, k]) * answers[k][i, j] for j in range(c)])
            P_i = P_i + U[y[i], k] / sum(U[y[i], :]) * in_model
        ensemble.append(P_i)
    return torch.stack(ensemble)


def _softmax(logits: Tensor) -> Tensor:
    return logits.exp() / logits.exp().sum(dim=1, keepdim=True)


def _kl(teacher: Tensor, student: Tensor) -> Tensor:
    p, q = _softmax(teacher), _softmax(student)
    return (p * (p / q).log()).sum() / len(p)


def _cross_entropy(logits: Tensor, labels: Tensor) -> Tensor:
    return sum(-_softmax(logits)[i, labels[i]].log() for i in range(len(labels))) / len(labels)


def _bn_loss(uploads: Uploads, x: Tensor) -> Tensor:
    """Eq. 14 by walking through the layers of every client."""
    total = torch.zeros(())
    for model in uploads.models:
        hidden = x
        for layer in model:
            if isinstance(layer, nn.BatchNorm2d):
                mean, var = hidden.mean((0, 2, 3)), hidden.var((0, 2, 3), correction=0)
                total = total + ((mean - layer.running_mean) ** 2).sum().sqrt()
                total = total + ((var - layer.running_var) ** 2).sum().sqrt()
            hidden = layer(hidden.clone())
    return total / len(uploads.models)


def _algorithm_1(uploads: Uploads, *, whole_pool: bool) -> nn.Module:
    student, generator = _student(), _generator()
    rng = torch_generator(SETTINGS["seed"], "distill")
    generator.reset(rng)
    adam = torch.optim.Adam(generator.parameters(), lr=0.001, betas=(0.5, 0.999))
    sgd = torch.optim.SGD(student.parameters(), lr=0.01, momentum=0.9)
    batches: list[tuple[Tensor, Tensor]] = []
    for _ in range(SETTINGS["rounds"]):
        z = torch.randn(SETTINGS["batch_size"], NOISE, generator=rng)
        y = torch.randint(SPEC.classes, (SETTINGS["batch_size"],), generator=rng)
        student.eval()
        for _ in range(STEPS):
            x = generator(z)
            P = _stratified_aggregation(uploads, x, y)
            loss = _cross_entropy(P, y) + 1.0 * _bn_loss(uploads, x) + 1.0 * -_kl(P, student(x))  # Eq. 16
            adam.zero_grad()
            loss.backward()
            adam.step()
        student.train()
        batches = [*(batches if whole_pool else []), (x.detach(), y)]
        images, labels = (torch.cat(column) for column in zip(*batches, strict=True))
        for index in index_batches(len(labels), SETTINGS["batch_size"], rng):
            P = _stratified_aggregation(uploads, images[index], labels[index])
            answer = student(images[index])
            loss = _kl(P, answer) + 1.0 * _cross_entropy(answer, P.argmax(1))  # Eq. 19
            sgd.zero_grad()
            loss.backward()
            sgd.step()
    return student


@pytest.mark.parametrize("pool_rounds", [None, 1])
def test_the_loop_equals_algorithm_1(uploads, context, pool_rounds):
    cfg = compose_config(
        "method=fedhydra",
        f"distill.generator_steps={STEPS}",
        f"distill.batch_size={SETTINGS['batch_size']}",
        f"generator.noise={NOISE}",
        f"generator.width={WIDTH}",
    )
    cfg.method.pool.rounds = pool_rounds
    images, labels = torch.zeros(4, 1, 8, 8, dtype=torch.uint8), torch.tensor([0, 1, 2, 0])
    data = make_dataset(
        name="blank", train=(images, labels), test=(images, labels), class_names=("a", "b", "c"), mean=[0.5], std=[0.5]
    )
    server = distill(
        data,
        ImageBatches(images, labels, spec=SPEC, batch_size=4),
        uploads,
        Method(build(cfg.method.init), make_loop(cfg, SPEC, uploads, NO_PROXY)),
        student=_student,
        inputs={},
        settings=SETTINGS,
        context=context,
    )
    expected = _algorithm_1(uploads, whole_pool=pool_rounds is None).state_dict()
    start = _student().state_dict()
    assert not math.isclose(float((expected["0.weight"] - start["0.weight"]).norm()), 0.0, abs_tol=1e-3)
    for name, tensor in server.model.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-3, atol=1e-5, msg=name)
