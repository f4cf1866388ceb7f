"""IntactOFL: keep all clients and learn a gate that weighs them image by image.

Zeng, Xu, Zhou, Wu, Kang, Cai, Niyato: One-shot-but-not-degraded Federated Learning, ACM MM 2024, doi
10.1145/3664647.3680715. The paper itself was not at hand; the card follows the authors' code (github.com/zenghui9977/
IntactOFL, commit e8f86ef) and the appendix that lies beside it.

**Its result is an ensemble**: the m clients and the gate, the row `ensemble: intactofl` of a result. The one model that
a run hands over as well is an addition of ours and not in the paper: a student that learns from the mixture on the same
pool, in the same rounds.

| what | part | config key |
|---|---|---|
| M(x) = 1/m sum_k G_k(x) z_k(x), G linear in the pixels, without softmax | `LinearGate` | `method.ensemble` |
| gate: CE(M, y) + 0.01 std(G) + T^2 KL(plain mean, M), T = 4 | `LinearGate.loss` | `.balance` |
| SGD 0.01, momentum 0.9, weight decay 1e-4, cosine over the rounds, clipped to norm 10 | `LinearGate.refit` | `.lr` |
| on images one step towards a random vector, by the plain mean's gradient | `LinearGate.loss` | `.odseta` |
| generator: CE(M, y) + BN statistics | `parts.terms` | `method.objective.ce`, `.bn` |
| generator: -T^2 KL(M, plain mean), T = 3, where they differ | `Disagreement` | `method.objective.disagreement` |
| generator reset every round, batch of the best step | `parts.sources.GeneratorSource` | `method.source` |
| pool of all rounds, one shuffled pass a round | `parts.pools.Pool` | `method.pool` |
| (ours) student: T^2 KL(M, student), T = 4 | `parts.terms.Distillation` | `method.student.kl` |

The code's slips, and what is done here:
- It perturbs images by 8 where its images lie in [-1, 1], so that the gate learns on little but signs. The default is
  8/255, as in Co-Boosting, where the step is from; the code is `method.ensemble.odseta=4` (in [0, 1] pixels).
- It returns the plain mean instead of the mixture, and reports the best test accuracy over rounds. Here the mixture of
  the last round is reported.
- Its clients leave training mode of batch normalisation after their first local epoch. Here they train as for all
  methods.

Where the appendix differs from the code, the code is followed. The appendix multiplies the generator's CE by a variance
of M and shows neither BN statistics nor a term for disagreement; its gate is an MLP, a CNN or a ResNet; its numbers of
rounds and steps are others.

Deviations from the code, as of `method=dense`: FedHydra's protocol, z not optimised, no clipping of the generator's
gradients, images not cut to 8 bits, BN statistics by Eq. 14 of FedHydra. Top-k selection is left out, as the code picks
all clients. The gate begins with torch's default for a linear layer, drawn by `distill.seed`: it is the same for all
runs with that seed.
"""

import math
from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oneshot_fl.models.bank import ClientBank
from oneshot_fl.parts.mixtures import Gated, mixture, pixels, products
from oneshot_fl.parts.perturbation import Perturbation
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.parts.terms import kl_divergence
from oneshot_fl.parts.uploads import Server
from oneshot_fl.parts.view import View
from oneshot_fl.seeds import torch_generator
from oneshot_fl.values import CountOrZero, LearningRate, NotNegative, Positive

MOMENTUM, WEIGHT_DECAY, LARGEST_GRADIENT = 0.9, 1e-4, 10.0
TEMPERATURE = 4.0


@dataclass(frozen=True)
class Disagreement:
    """-T^2 KL(ensemble || plain mean of the clients' logits) where their most likely classes differ."""

    weight: NotNegative
    temperature: Positive
    needs: ClassVar[frozenset[str]] = frozenset({"teacher"})

    def __call__(self, view: View) -> Tensor:
        """Sum over the images on which they differ, divided by the whole batch."""
        divergence = kl_divergence(view.teacher, view.plain_mean, self.temperature)
        return -(divergence * (view.teacher.argmax(1) != view.plain_mean.argmax(1))).mean()


class LinearGate(Gated):
    """Clients weighed by 1/m times linear scores of the pixels, unbounded and of either sign.

    Args:
        server: with the clients' classifiers and the data spec.
        lr: of SGD in the first round; its momentum goes on from round to round.
        rounds: over which the rate falls to 0.
        balance: weight of the scores' standard deviation.
        odseta: how far images are perturbed before the gate learns from them, in units of [0, 1] pixels.
    """

    velocity: Tensor
    rounds_done: Tensor

    def __init__(
        self, server: Server, *, lr: LearningRate, rounds: CountOrZero, balance: NotNegative, odseta: NotNegative
    ) -> None:
        gate = _default_linear(pixels(server), len(server.uploads.sizes))
        super().__init__(server, gate, expert_grad=True)
        self.lr, self.rounds, self.balance = lr, rounds, balance
        self.register_buffer("velocity", torch.zeros_like(gate))
        self.register_buffer("rounds_done", torch.zeros(()))
        self._perturb = Perturbation(server, epsilon=odseta, direction="sign")
        bank = server.bank or ClientBank(server.uploads.models)
        self._ask = lambda x: self.heard(bank(x).logits)  # no submodule: the clients are no part of what was learned

    def weigh(self, x: Tensor) -> Tensor:
        """G(x) / m."""
        return self._scores(x) / self.gate.shape[1]

    def refit(self, pool: Pool, batch_size: int, rng: torch.Generator) -> None:
        """One pass over the pool."""
        optimizer = self._optimizer()
        with self.learning():
            for entry in pool.batches(batch_size, rng):
                optimizer.zero_grad()
                self.loss(entry, rng).backward()
                nn.utils.clip_grad_norm_([self.gate], LARGEST_GRADIENT)
                optimizer.step()
        self.rounds_done += 1

    def loss(self, entry: Entry, rng: torch.Generator) -> Tensor:
        """What the gate is trained on, a scalar; the clients are asked anew about the perturbed images."""
        drawn = self._perturb.draw(len(entry.x), rng).to(entry.x.device)
        x = self._perturb(entry.x, lambda x: self._ask(x).mean(dim=0), drawn)
        with torch.no_grad():
            P = self._ask(x)
        scores = self._scores(x)
        answer = mixture(P, scores / len(P))
        kept = kl_divergence(P.mean(dim=0), answer, TEMPERATURE).mean()
        return F.cross_entropy(answer, entry.y) + self.balance * scores.std() + kept

    def _scores(self, x: Tensor) -> Tensor:
        return products(x, self.gate[:-1]) + self.gate[-1]

    def _optimizer(self) -> torch.optim.Optimizer:
        """SGD at this round's rate, whose memory lies in a buffer, which is saved with every round."""
        share = min(1.0, float(self.rounds_done) / self.rounds) if self.rounds else 1.0
        rate = self.lr * (1 + math.cos(math.pi * share)) / 2
        optimizer = torch.optim.SGD([self.gate], lr=rate, momentum=MOMENTUM, weight_decay=WEIGHT_DECAY)
        optimizer.state[self.gate] = {"momentum_buffer": self.velocity}
        return optimizer


def _default_linear(inputs: int, outputs: int) -> Tensor:
    """Weights `[inputs, outputs]` and below them a row of biases, uniform within 1 / sqrt(inputs).

    They follow from the seed that parts are made under, whatever else was drawn from it.
    """
    drawn = torch.rand(inputs + 1, outputs, generator=torch_generator(torch.initial_seed(), "gate"))
    return (2 * drawn - 1) / math.sqrt(inputs)
