"""FedISCA: the student learns from the whole way from noise to image, from two views of the clients.

M. Kang, P. Chikontwe, S. Kim, K. H. Jin, E. Adeli, K. M. Pohl, S. H. Park: One-Shot Federated Learning on Medical Data
Using Knowledge Distillation with Image Synthesis and Client Model Adaptation, MICCAI 2023. The paper's body was not at
hand; the card follows its abstract and the authors' code (github.com/myeongkyunkang/FedISCA, commit c6c737e). No
figure of it for our data sets is known.

| what | part | config key |
|---|---|---|
| a round: one inversion, N = T_G steps from N(0, 1) pixels, labels 0..c-1 in turn | `Trajectory` | `method.source` |
| every step sees the batch rolled by up to 2 pixels | `Trajectory` | `method.source.roll` |
| teacher E: mean of client logits | `NoiseAdapted` | `method.ensemble` |
| CE(E, y), weight 1 | `parts.terms.CrossEntropy` | `method.objective.ce` |
| total variation, 2.5e-5 | `parts.terms.TotalVariation` | `method.objective.tv` |
| BN statistics, 10, summed over clients and layers | `parts.terms.BatchNormStatistics` | `method.objective.bn` |
| all N snapshots, noise first, for one round | `parts.pools.Pool` | `method.pool.shuffle` |
| adapted teacher E', share 1 - i/N | `NoiseAdapted` | `method.ensemble.adapt` |
| T^2 KL to both teachers, T = 20 | `parts.terms.Distillation` | `method.student.kl` |
| SGD 1e-3, weight decay 5e-4 | | `method.student_optimizer` |
| learning rate / 10 after a half and three quarters of the rounds | | `method.student_schedule` |

N is `distill.generator_steps` (code: 500), an epoch is a round (code: 100), a batch has `distill.batch_size` images
(code: 256); alpha_i = i/N and the two drops scale with them.

How it is computed: alpha KL(E || s) + (1 - alpha) KL(E' || s) and KL(alpha E + (1 - alpha) E' || s) differ by what does
not depend on s, so the ensemble hands the student the mixture of the softened probabilities. The loss that is logged
is the second one. A snapshot's alpha is the `trust` in its label.

Slips of the code, and what is done here:
- `adapt: batch` is what its E' amounts to: BN layers in training mode normalise by the batch at hand. The running
  statistics that it adapts in a pass over the trajectory, last image first, are never read.
- `adapt: running` is our reading of the abstract: the same pass (momentum 0.1), and then those statistics are used. It
  begins at the clients' own statistics in every round; the code's copy goes on from epoch to epoch.
- Clients' own statistics never change; only BN layers, and no dropout, are ever taken out of evaluation mode.
- On a CPU its snapshots would all be the last image, because they share memory; here each is a copy.
- With more classes than images in a batch its labels are the first b classes in every round, and the others have no
  images; here the next round goes on with them.
- Epochs count from 1 there: the first rate lasts 49 epochs of 100, here 50.
- It reports the best test accuracy over epochs and uploads a client's best epoch on held-out images; here the last
  round counts, and clients are those of all methods.
- A roll of 30 where the side exceeds 128 pixels is `method.source.roll=30`.
- Clients without BN: E' = E, and the BN term is 0.

`method/init=average` starts at the average instead of fresh weights (ours, for comparison with methods that do).
"""

from collections.abc import Sequence
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from oneshot_fl.models.batch_norm import adapted, logits_by_the_batch, logits_of
from oneshot_fl.models.generators import Pixels
from oneshot_fl.models.optimizers import OptimizerFactory
from oneshot_fl.parts.ensembles import Fixed, Heard
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.parts.slots import Made, Turn
from oneshot_fl.parts.uploads import Server
from oneshot_fl.parts.view import Votes
from oneshot_fl.values import BatchSize, Count, CountOrZero, Positive

MOMENTUM = 0.1
"""Of adapted running statistics: PyTorch's default, which the code keeps."""


class Trajectory(nn.Module):
    """One batch of pixels inverted anew every round; what leaves are its states after every step, in order.

    Snapshot i of N is trusted to show its labels as far as i/N.

    Args:
        server: with the data spec.
        optimizer: of the pixels.
        batch_size: b.
        steps: N.
        roll: pixels by which the batch is shifted at most, in each axis and step.
    """

    needs: ClassVar[frozenset[str]] = frozenset()
    scored: ClassVar[bool] = True
    reset = True
    first: Tensor
    """The label of the next batch's first image."""

    def __init__(
        self, server: Server, *, optimizer: OptimizerFactory, batch_size: BatchSize, steps: Count, roll: CountOrZero
    ) -> None:
        super().__init__()
        self.generator = Pixels(server.spec, count=batch_size)
        self.optimizer, self.steps, self.roll = optimizer, steps, roll
        self.batch_size, self.classes = batch_size, server.spec.classes
        self.register_buffer("first", torch.zeros((), dtype=torch.long))

    def begin(self, rng: torch.Generator) -> None:
        """Nothing to draw: every round begins with new noise. The first one's labels begin with class 0."""
        self.first.zero_()

    def make(self, turn: Turn) -> Made:
        """All N snapshots, `[N b, C, H, W]`."""
        self.generator.reset(turn.rng)
        y = self._labels()
        snapshots = [self._step(y, turn) for _ in range(self.steps)]
        alpha = torch.arange(self.steps, device=y.device) / self.steps
        return Made(torch.cat(snapshots), y.repeat(self.steps), alpha.repeat_interleave(len(y)))

    def _labels(self) -> Tensor:
        """The classes in turn, `[b]`, from class 0 on; with more than b classes, from where the last round ended."""
        y = (self.first + torch.arange(self.batch_size, device=self.first.device)) % self.classes
        if self.batch_size < self.classes:
            self.first += self.batch_size
            self.first %= self.classes
        return y

    def _step(self, y: Tensor, turn: Turn) -> Tensor:
        """The images after one more step, not rolled."""
        shifts = torch.randint(-self.roll, self.roll + 1, (2,), generator=turn.rng).tolist()
        turn.minimise(turn.score(self.generator.images.roll(shifts, dims=(2, 3)), y))
        return self.generator.images.detach().clone()


class NoiseAdapted(Fixed):
    """The mean of the clients' logits, E, and beside it E', the same clients with other BN statistics.

    The student hears of both: of E as far as an image is trusted to show its label, of E' for the rest. Of images that
    the pool does not hold nobody knows how far that is.

    Args:
        server: with the clients' classifiers.
        temperature: of the student's KL, at which probabilities are mixed.
        adapt: E' normalises by the `batch`, or by `running` statistics that have followed the pool from its last image
            back to its first.
    """

    needs: ClassVar[frozenset[str]] = Fixed.needs | {"kept_answers"}

    def __init__(self, server: Server, *, temperature: Positive, adapt: Literal["batch", "running"]) -> None:
        super().__init__(server)
        self.temperature, self.adapt, self.heard = temperature, adapt, Heard(server)
        self.clients: Sequence[nn.Module] = server.uploads.models  # a list: they belong to the bank, not to its state
        self.moved = self.clients

    def forward(self, votes: Votes) -> Tensor:
        """E; the label is not used."""
        return self.heard(votes.P).mean(dim=0)

    def recall(self, entry: Entry) -> Tensor:
        """Logits whose probabilities at `temperature` are trust E + (1 - trust) E'.

        Their level, which no softmax sees, is that of E's logits, so that they are E's own where trust is 1.
        """
        own, other = entry.answers / self.temperature, self._adapted(entry.x) / self.temperature
        trust, level = entry.trust.unsqueeze(1), own.logsumexp(dim=1, keepdim=True)
        mixed = torch.logaddexp(trust.log() + own - level, (1 - trust).log() + other.log_softmax(dim=1))
        return self.temperature * (mixed + level)

    def refit(self, pool: Pool, batch_size: int, rng: torch.Generator) -> None:
        """Let E' follow the pool from its end to its beginning; nothing of it outlasts the round."""
        if self.adapt == "running":
            backwards = reversed([entry.x for entry in pool.batches(batch_size, rng)])
            self.moved = adapted(self.clients, backwards, momentum=MOMENTUM)

    @torch.no_grad()
    def _adapted(self, x: Tensor) -> Tensor:
        """E' on images `[b, C, H, W]`, `[b, c]`."""
        answers = logits_by_the_batch(self.clients, x) if self.adapt == "batch" else logits_of(self.moved, x)
        return self.heard(answers).mean(dim=0)
