"""FedHydra's Algorithm 1 written out with loops, as the paper prints it, against the framework's slots and loop.

Both start from the same uploads, guidance matrix, student, generator and draws; after three rounds the students'
weights must agree, with the whole pool replayed every round (the default) and with one step a round (the paper).
"""

import pytest
import torch
from torch import Tensor, nn

from oneshot_fl.data.batches import index_batches
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.generators import ConvGenerator
from oneshot_fl.parts.uploads import Server
from oneshot_fl.seeds import torch_generator
from tests.parts import SMALL, recipe_of, server_of
from tests.unit.methods.literal import SETTINGS, by_the_loop, student_of

CNN2 = recipe_of(cnn2, norm=True)
STEPS, NOISE, WIDTH = 4, 6, 4


@pytest.fixture
def server() -> Server:
    models = [CNN2(spec=SMALL) for _ in range(2)]
    for model in models:
        model(torch.randn(64, 1, 8, 8))
        model.requires_grad_(False).eval()
    return server_of(models, [10, 20], guidance=torch.tensor([[5.0, 0.1], [0.5, 2.0], [1.0, 1.0]]))


def _stratified_aggregation(server: Server, x: Tensor, y: Tensor) -> Tensor:
    """Eqs. 4-11, one sample and one client at a time."""
    U = server.guidance
    c, m = U.shape
    answers = [model(x) for model in server.uploads.models]
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


def _bn_loss(server: Server, x: Tensor) -> Tensor:
    """Eq. 14 by walking through the layers of every client."""
    total = torch.zeros(())
    for model in server.uploads.models:
        hidden = x
        for layer in model:
            if isinstance(layer, nn.BatchNorm2d):
                mean, var = hidden.mean((0, 2, 3)), hidden.var((0, 2, 3), correction=0)
                total = total + ((mean - layer.running_mean) ** 2).sum().sqrt()
                total = total + ((var - layer.running_var) ** 2).sum().sqrt()
            hidden = layer(hidden.clone())
    return total / len(server.uploads.models)


def _algorithm_1(server: Server, *, whole_pool: bool) -> nn.Module:
    student, generator = student_of(CNN2), ConvGenerator(SMALL, noise=NOISE, width=WIDTH)
    rng = torch_generator(SETTINGS.seed, "distill")
    generator.reset(rng)
    adam = torch.optim.Adam(generator.parameters(), lr=0.001, betas=(0.5, 0.999))
    sgd = torch.optim.SGD(student.parameters(), lr=0.01, momentum=0.9)
    batches: list[tuple[Tensor, Tensor]] = []
    for _ in range(SETTINGS.rounds):
        z = torch.randn(SETTINGS.batch_size, NOISE, generator=rng)
        y = torch.randint(SMALL.classes, (SETTINGS.batch_size,), generator=rng)
        student.eval()
        for _ in range(STEPS):
            x = generator(z)
            P = _stratified_aggregation(server, x, y)
            loss = _cross_entropy(P, y) + 1.0 * _bn_loss(server, x) + 1.0 * -_kl(P, student(x))  # Eq. 16
            adam.zero_grad()
            loss.backward()
            adam.step()
        student.train()
        batches = [*(batches if whole_pool else []), (x.detach(), y)]
        images, labels = (torch.cat(column) for column in zip(*batches, strict=True))
        for index in index_batches(len(labels), SETTINGS.batch_size, rng):
            P = _stratified_aggregation(server, images[index], labels[index])
            answer = student(images[index])
            loss = _kl(P, answer) + 1.0 * _cross_entropy(answer, P.argmax(1))  # Eq. 19
            sgd.zero_grad()
            loss.backward()
            sgd.step()
    return student


@pytest.mark.parametrize("pool_rounds", [None, 1])
def test_the_loop_equals_algorithm_1(server, context, pool_rounds):
    made = by_the_loop(
        "method=fedhydra",
        f"distill.generator_steps={STEPS}",
        f"generator.noise={NOISE}",
        f"generator.width={WIDTH}",
        f"method.pool.rounds={'null' if pool_rounds is None else pool_rounds}",
        server=server,
        students=(CNN2,),
        context=context,
    )
    expected = _algorithm_1(server, whole_pool=pool_rounds is None).state_dict()
    assert (expected["0.weight"] - student_of(CNN2).state_dict()["0.weight"]).norm() > 1e-3
    for name, tensor in made.model.state_dict().items():
        torch.testing.assert_close(tensor, expected[name], rtol=1e-3, atol=1e-5, msg=name)
