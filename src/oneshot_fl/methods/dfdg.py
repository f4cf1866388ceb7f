"""DFDG: two generators that keep apart from each other, and a teacher that weighs clients by their label counts.

DFDG: Data-Free Dual-Generator Adversarial Distillation for One-Shot Federated Learning, arXiv 2409.07734. The paper was
not at hand; the card follows the authors' code (github.com/lkyddd/DFDG, commit 92bda52). Clients upload their label
counts besides their models.

| what | part | config key |
|---|---|---|
| teacher A(x, y): logits weighted by n_k(y) / sum_j n_j(y) | `parts.ensembles.LabelShareWeighted` | `method.ensemble` |
| student begins as the size-weighted average | `parts.inits.Average` | `method.init` |
| noise and labels, by all clients' label counts, shared by both generators | `TwoGenerators` | `method.source` |
| a generator's input: the label's embedding times noise | `Conditional` | `method.source.generator` |
| I_g steps for the first, then for the second, each with a new Adam | `TwoGenerators` | `method.source.steps` |
| CE(A, y) | `parts.terms.CrossEntropy` | `method.objective.ce` |
| -KL(student, A), T = 10, where A is right and the student wrong | `Transfer` | `method.objective.transfer` |
| exp(-mean of distances between inputs times those between images) | `likeness` | `method.source.likeness` |
| -KL(A of the other's images, A of one's own), T = 10, all pairs | `overlap` | `method.source.overlap` |
| no pool: images of this round only | `parts.pools.Pool` | `method.pool.rounds` |
| student: KL(A, student), T = 10, without T^2 | `parts.terms.Distillation` | `method.student.kl.squared` |
| SGD 0.01, weight decay 1e-4 | | `method.student_optimizer` |

No KL here has a factor T^2, and the student's weighs 2, as the code adds both generators' means. In each the first
argument is the target and is not trained. The two losses that look at both generators belong to the source and are not
among the logged terms.

`method/ensemble=label_shares` gives the same teacher to any method whose images have labels.

Slips of the code, and what is done here:
- Its BN layers keep no running statistics: clients, student and the test normalise by the batch at hand. Here clients
  are those of all methods, and `method.ensemble.bn=eval` asks them as they were trained. `bn=batch` asks them, also in
  the row of this ensemble in the results, by the batch at hand; the student is an ordinary one in either case. That row
  therefore depends on `evaluate.batch_size`, which cannot be 1 where a layer sees maps of one pixel; where only the
  last batch would be one image, that joins the batch before.
- Its transfer term is not a number where no image is chosen; here it is 0 then.
- It decides on images by pairs in Python loops and counts every pair of both batches; here the same mean over all b^2
  pairs is one matrix product.

Deviations:
- I_g is T_G as for all methods (code: 20), a round is one of its steps (README: 800).
- The student takes I_d = 2 steps on the two halves of both batches, shuffled, instead of two on all of it, and its
  momentum lasts from round to round.
- The generators are those of all methods with an embedding of labels in front, which always normalise by the batch; the
  code's have four transposed convolutions. The labels' weights begin at N(0, 1).
- The code's other choices of images to transfer, its same-class pairs and its second noise are left out.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.generators import Generator
from oneshot_fl.models.optimizers import OptimizerFactory
from oneshot_fl.models.precision import at_least_float32
from oneshot_fl.parts.slots import Made, Turn
from oneshot_fl.parts.terms import kl_divergence
from oneshot_fl.parts.uploads import Server
from oneshot_fl.parts.view import View
from oneshot_fl.values import BatchSize, Count, NotNegative, Positive


@dataclass(frozen=True)
class Transfer:
    """-KL(student || P) at a temperature, without its square: images on which the teacher knows better."""

    weight: NotNegative
    temperature: Positive
    needs: ClassVar[frozenset[str]] = frozenset({"teacher"})

    def __call__(self, view: View) -> Tensor:
        """Mean over the images on which the teacher is right and the student wrong; 0 where there is none."""
        student = view.student.detach()
        chosen = (view.teacher.argmax(1) == view.y) & (student.argmax(1) != view.y)
        divergence = kl_divergence(student, view.teacher, self.temperature) / self.temperature**2
        return -(divergence * chosen).sum() / chosen.sum().clamp_min(1)


def likeness(h: Tensor, x: Tensor) -> Tensor:
    """exp(-mean over all pairs of d(h_i, h_j) d(x_i, x_j)), d the mean squared difference: `[b, ...]` twice -> scalar.

    1 where all images are alike.
    """
    return torch.exp(-(_distances(h) * _distances(x)).mean())


def _distances(a: Tensor) -> Tensor:
    """Mean squared differences between all rows, `[b, b]`.

    In single precision: of images that are nearly alike, which this is about, little is left of the difference.
    """
    with torch.autocast(a.device.type, enabled=False):
        rows = at_least_float32(a.flatten(1))
        squares = rows.square().mean(dim=1)
        return squares.unsqueeze(0) + squares.unsqueeze(1) - 2 * (rows @ rows.T) / rows.shape[1]


def overlap(others: Tensor, own: Tensor, temperature: float) -> Tensor:
    """-mean over all pairs of KL(softmax(others_i / T) || softmax(own_j / T)): logits `[b, c]` twice -> scalar."""
    target, guess = ((logits / temperature).log_softmax(dim=1) for logits in (others.detach(), own))
    negative_entropy = (target.exp() * target).sum(dim=1).mean()
    return (target.exp().mean(dim=0) * guess.mean(dim=0)).sum() - negative_entropy


class Conditional(nn.Module):
    """A generator of images of a label: its input is the label's embedding times noise.

    Args:
        generator: from that input to images.
        classes: how many labels there are.
        noise: length of the input.
    """

    def __init__(self, generator: Generator, *, classes: int, noise: int) -> None:
        super().__init__()
        self.generator, self.labels = generator, nn.Embedding(classes, noise)

    def reset(self, rng: torch.Generator) -> None:
        """New random weights."""
        self.generator.reset(rng)
        with torch.no_grad():
            self.labels.weight.copy_(torch.randn(self.labels.weight.shape, generator=rng))

    def forward(self, z: Tensor, y: Tensor) -> tuple[Tensor, Tensor]:
        """Noise `[b, nz]` and labels `[b]` -> images `[b, C, H, W]`, and the inputs `[b, nz]` that they came from."""
        h = z * self.labels(y)
        return self.generator(h), h


class TwoGenerators(nn.Module):
    """Two generators, trained in turn on the same noise and labels; what leaves is a batch of each.

    Labels are drawn from all clients' label counts together.

    Args:
        server: with the clients' label counts.
        generator: builds from the data spec what maps noise to images; made twice.
        optimizer: of both, new in every round.
        batch_size: images of each.
        steps: I_g, of each.
        likeness: weight of the loss that keeps a generator's own images apart.
        overlap: weight of the loss that keeps both generators' images apart.
        temperature: at which the teacher's answers to both are compared.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"classifiers", "label_counts", "teacher"})
    scored: ClassVar[bool] = True
    reset = True

    def __init__(
        self,
        server: Server,
        *,
        generator: Callable[..., Generator],
        optimizer: OptimizerFactory,
        batch_size: BatchSize,
        steps: Count,
        likeness: NotNegative,
        overlap: NotNegative,
        temperature: Positive,
    ) -> None:
        super().__init__()
        self.counts = server.uploads.told_label_counts.sum(dim=0).double()
        self.first, self.second = (_conditional(generator, server.spec) for _ in range(2))
        self.optimizer, self.batch_size, self.steps = optimizer, batch_size, steps
        self.likeness, self.overlap, self.temperature = likeness, overlap, temperature

    def begin(self, rng: torch.Generator) -> None:
        """Both generators' first weights."""
        self.first.reset(rng)
        self.second.reset(rng)

    def make(self, turn: Turn) -> Made:
        """One batch of each, `[2 b, C, H, W]`."""
        z = self.first.generator.sample_noise(self.batch_size, turn.rng)
        y = torch.multinomial(self.counts, self.batch_size, replacement=True, generator=turn.rng).to(z.device)
        self._train(self.first, self.second, z, y, turn)
        self._train(self.second, self.first, z, y, turn)
        with torch.no_grad():
            x = torch.cat([generator(z, y)[0] for generator in (self.first, self.second)])
        return Made(x, y.repeat(2))

    def _train(self, own: nn.Module, other: nn.Module, z: Tensor, y: Tensor, turn: Turn) -> None:
        """All steps of one of them; the other one gets no gradient, so the optimiser leaves it alone."""
        with torch.no_grad():
            others = turn.teacher(other(z, y)[0], y)
        for _ in range(self.steps):
            x, h = own(z, y)
            answers = turn.teacher(x, y)
            apart = self.likeness * likeness(h, x) + self.overlap * overlap(others, answers, self.temperature)
            turn.minimise(turn.score(x, y, answers) + apart)


def _conditional(generator: Callable[..., Generator], spec: DataSpec) -> Conditional:
    made = generator(spec=spec)
    noise = made.sample_noise(1, torch.Generator()).shape[1]
    return Conditional(made, classes=spec.classes, noise=noise)
