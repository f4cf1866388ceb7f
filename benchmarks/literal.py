"""FedHydra, DENSE and Co-Boosting as one writes them down from the papers, with what the authors' codes do on the way.

Nothing of the framework is used but the classifiers' layers. What is slow here and is in those codes too: images go
through PIL and a DataLoader; clients and student keep their weight gradients while images are made; every replayed
image is put to all clients again; `.item()` waits every step. Left out, although the codes do it: the pool as PNG files
and asking the ensemble more often than the algorithm says.
"""

import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset
from torchvision import transforms
from torchvision.datasets import VisionDataset

from oneshot_fl.data.dataset import DataSpec


class PictureSet(VisionDataset):
    """Images as torchvision's data sets hand them out: from an array through PIL, a tensor, normalised, one by one."""

    def __init__(self, images: Tensor, labels: Tensor, spec: DataSpec) -> None:
        self.images, self.labels = images, labels
        self.transform = transforms.Compose(
            [transforms.ToPILImage(), transforms.ToTensor(), transforms.Normalize(spec.mean, spec.std)]
        )

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, index: int) -> tuple[Tensor, int]:
        return self.transform(self.images[index]), int(self.labels[index])


def train_client(model: nn.Module, data: PictureSet, *, epochs: int, batch: int) -> None:
    """SGD with momentum on the cross-entropy."""
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    for _ in range(epochs):
        losses = []
        for x, y in DataLoader(data, batch_size=batch, shuffle=True):
            loss = F.cross_entropy(model(x), y)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            losses.append(loss.item())


def make_generator(spec: DataSpec, *, noise: int, width: int) -> nn.Module:
    """The generator of DENSE's code, for sides that are multiples of 4."""
    base = spec.size // 4
    return nn.Sequential(
        nn.Linear(noise, 2 * width * base**2),
        nn.Unflatten(1, (2 * width, base, base)),
        nn.BatchNorm2d(2 * width),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(2 * width, 2 * width, 3, padding=1, bias=False),
        nn.BatchNorm2d(2 * width),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Upsample(scale_factor=2),
        nn.Conv2d(2 * width, width, 3, padding=1, bias=False),
        nn.BatchNorm2d(width),
        nn.LeakyReLU(0.2, inplace=True),
        nn.Conv2d(width, spec.channels, 3, padding=1),
        nn.Sigmoid(),
        nn.BatchNorm2d(spec.channels, affine=False),
    )


def stratify(models: list[nn.Module], spec: DataSpec, *, steps: int, batch: int, noise: int, width: int) -> Tensor:
    """Algorithm 2: a generator for every client and class -> U `[c, m]`."""
    U = torch.zeros(spec.classes, len(models))
    for k, model in enumerate(models):
        for j in range(spec.classes):
            generator = make_generator(spec, noise=noise, width=width)
            optimizer = torch.optim.Adam(generator.parameters(), lr=0.001, betas=(0.5, 0.999))
            z, y, losses = torch.randn(batch, noise), torch.full((batch,), j), []
            for _ in range(steps):
                loss = F.cross_entropy(model(generator(z)), y)
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                losses.append(loss.item())
            U[j, k] = (max(losses) - min(losses)) / max(min(losses), 1e-8)
    return U


@dataclass
class Server:
    """The server of one method; `seconds` adds up what its two parts take.

    Args:
        U: the guidance matrix of FedHydra; None for Co-Boosting.
    """

    models: list[nn.Module]
    student: nn.Module
    spec: DataSpec
    U: Tensor | None
    batch: int
    noise: int
    width: int
    seconds: dict[str, float] = field(default_factory=lambda: {"generator": 0.0, "pool": 0.0})

    def __post_init__(self) -> None:
        self.moments: list[tuple[nn.BatchNorm2d, Tensor, Tensor]] = []
        self.gathering = False
        self.weights = torch.full((len(self.models),), 1 / len(self.models))
        for layer in (layer for model in self.models for layer in model.modules() if isinstance(layer, nn.BatchNorm2d)):
            layer.register_forward_hook(self._keep_moments)

    def _keep_moments(self, layer: nn.BatchNorm2d, inputs: tuple[Tensor, ...], _output: Tensor) -> None:
        if self.gathering:
            x = inputs[0]
            self.moments.append((layer, x.mean([0, 2, 3]), x.permute(1, 0, 2, 3).reshape(x.shape[1], -1).var(1)))

    @contextmanager
    def _moments_gathered(self) -> Iterator[None]:
        """What enters the clients' batch normalisation counts in FedHydra's generator steps alone.

        Co-Boosting has no such term, and no replay has one.
        """
        self.moments.clear()
        self.gathering = self.U is not None
        try:
            yield
        finally:
            self.gathering = False

    def ensemble(self, x: Tensor, y: Tensor) -> Tensor:
        """Algorithm 3, or the weighted logits of Co-Boosting."""
        answers = torch.stack([model(x) for model in self.models])
        if self.U is None:
            return (self.weights[:, None, None] * answers).sum(0)
        rows, columns = self.U / self.U.sum(1, keepdim=True), self.U / self.U.sum(0)
        return sum(rows[y, k, None] * (columns[:, k] * answers[k]) for k in range(len(self.models)))

    def generator_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """FedHydra's Eq. 16, term by term; or Co-Boosting's Eqs. 6 and 7."""
        with self._moments_gathered():
            P = self.ensemble(x, y)
        losses = F.cross_entropy(P, y, reduction="none")
        adversarial = -_kl(P, self.student(x))
        if self.U is None:
            return ((1 - torch.exp(-losses.detach())) * losses).mean() + adversarial
        distances = [
            (mean - layer.running_mean).norm() + (var - layer.running_var).norm() for layer, mean, var in self.moments
        ]
        return losses.mean() + sum(distances) / len(self.models) + adversarial

    def run(self, *, rounds: int, steps: int) -> None:
        """T_g rounds of T_G generator steps and one pass over the pool."""
        generator = make_generator(self.spec, noise=self.noise, width=self.width)
        adam = torch.optim.Adam(generator.parameters(), lr=0.001, betas=(0.5, 0.999))
        sgd = torch.optim.SGD(self.student.parameters(), lr=0.01, momentum=0.9)
        pool: list[tuple[Tensor, Tensor]] = []
        for _ in range(rounds):
            z, y = torch.randn(self.batch, self.noise), torch.randint(self.spec.classes, (self.batch,))
            begun = time.perf_counter()
            self.student.eval()
            best, kept = float("inf"), None
            for _ in range(steps):
                x = generator(z)
                loss = self.generator_loss(x, y)
                if self.U is not None or loss.item() < best:
                    best, kept = loss.item(), x.detach().clone()
                adam.zero_grad()
                loss.backward()
                adam.step()
            self.seconds["generator"] += time.perf_counter() - begun
            pool.append((kept, y))
            begun = time.perf_counter()
            self._replay(pool, sgd)
            self.seconds["pool"] += time.perf_counter() - begun

    def _replay(self, pool: list[tuple[Tensor, Tensor]], sgd: torch.optim.Optimizer) -> None:
        self.student.train()
        images = TensorDataset(*(torch.cat(column) for column in zip(*pool, strict=True)))
        if self.U is None:
            self._move_weights(DataLoader(images, batch_size=self.batch))
        for x, y in DataLoader(images, batch_size=self.batch, shuffle=True):
            hard = self._perturbed(x, y) if self.U is None else x
            P = self.ensemble(hard, y).detach()
            answer = self.student(hard)
            loss = _kl(P, answer) + (0 if self.U is None else F.cross_entropy(answer, P.argmax(1)))
            sgd.zero_grad()
            loss.backward()
            sgd.step()

    def _perturbed(self, x: Tensor, y: Tensor) -> Tensor:
        """Eq. 10 as in the code: one step of the sign."""
        moving = x.clone().requires_grad_()
        answer = self.ensemble(moving, y).div(4).softmax(1)
        ((torch.rand_like(answer) * 2 - 1) * answer).sum().backward()
        return (x + 8 / 255 * moving.grad.sign()).detach()

    def _move_weights(self, batches: Iterable[tuple[Tensor, Tensor]]) -> None:
        """Eq. 12, a step per batch."""
        for x, y in batches:
            self.weights.requires_grad_()
            F.cross_entropy(self.ensemble(x, y), y).backward()
            self.weights = (self.weights - 0.01 * self.weights.grad.sign()).clamp(0, 1).detach()


def _kl(teacher: Tensor, student: Tensor) -> Tensor:
    return F.kl_div(student.log_softmax(1), teacher.softmax(1), reduction="batchmean")
