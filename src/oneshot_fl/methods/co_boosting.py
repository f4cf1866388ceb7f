"""Co-Boosting: better images and a better ensemble, in turns.

R. Dai, Y. Zhang, A. Li, T. Liu, X. Yang, B. Han: Enhancing One-Shot Federated Learning Through Data and Ensemble
Co-Boosting, ICLR 2024. Where paper and authors' code (github.com/rong-dai/Co-Boosting, commit 237c5dd) differ, the
default is the code, which the paper's numbers come from; the paper's choice is an option.

| equation | part | config key | paper's choice |
|---|---|---|---|
| Eq. 2: A_w = sum_k w_k f_k / sum_k w_k | `BoostedWeights` | `method.ensemble.normalise` | false: not divided |
| Eqs. 5-6 (GHS): (1 - p_y) CE(A_w, y) | `parts.terms.HardCrossEntropy` | `method.objective.hard_ce` | same |
| Eq. 7: -T^2 KL(A_w, f_S), T = 3 | `parts.terms.Adversarial` | `method.objective.adv` | `.temperature=1` |
| Eqs. 9-10 (DHS): a step to random u | `parts.perturbation` | `method.perturb` | `.direction=gradient`, 8/255 |
| Eqs. 11-12 (EE): sign steps on w | `BoostedWeights.refit` | `method.ensemble.step` | 0.1/n, `decay=1`, `per=round` |
| Alg. 1: the newest batch counts for w | `BoostedWeights.refit` | `method.ensemble.include_newest` | true |
| Eq. 4: T^2 KL, T = 4 | `parts.terms.Distillation` | `method.student.kl` | same |

Table 7's switches: GHS `method.objective.hard_ce.power=0`, DHS `method.perturb=null`, EE `method.ensemble.step=0`.

Deviations from both:
- Weights never all reach zero (the code then divides by zero): a step that would do so is not taken.
- Eq. 11 is evaluated on the stored images, as in the code; Algorithm 1 perturbs them first.
- `method=co_boosting` alone runs by FedHydra's protocol (Sec. 4.1.5), shared by all methods. The code's student (weight
  decay 1e-4, cosine annealing) is `protocol=co_boosting`; its gradient clipping and optimised z are left out.
- No crop and flip of stored images for the weights and the student, images stay float instead of being cut to 8-bit
  files, and the last round is reported: the code does the first on CIFAR-10 and reports the best test accuracy.
- The appendix's 20% of the training set for FedDF is `proxy=holdout`, taken from every client of every method.
"""

from typing import ClassVar, Literal

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from oneshot_fl.data.batches import index_batches
from oneshot_fl.parts.ensembles import Heard
from oneshot_fl.parts.pools import Entry, Pool
from oneshot_fl.parts.uploads import Server
from oneshot_fl.parts.view import Votes
from oneshot_fl.values import NotNegative, Positive


class BoostedWeights(nn.Module):
    """The clients' logits weighted by learned w (Eq. 2), which starts at 1/m and moves by sign steps (Eq. 12).

    Args:
        server: with the clients' classifiers.
        step: mu; 0 keeps the plain average.
        decay: mu is multiplied by this after every round.
        per: one step per `batch` of the pool, or one per `round` over the whole pool.
        include_newest: whether the round's own batch takes part, or only those before it.
        normalise: divide by the sum of w.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"classifiers", "earlier_rounds"})
    weights: Tensor
    rate: Tensor

    def __init__(
        self,
        server: Server,
        *,
        step: NotNegative,
        decay: Positive,
        per: Literal["batch", "round"],
        include_newest: bool,
        normalise: bool,
    ) -> None:
        super().__init__()
        self.heard = Heard(server)
        self.decay, self.per, self.include_newest, self.normalise = decay, per, include_newest, normalise
        clients = len(server.uploads.sizes)
        self.register_buffer("weights", torch.full((clients,), 1 / clients))
        self.register_buffer("rate", torch.tensor(float(step)))

    def forward(self, votes: Votes) -> Tensor:
        """Ensemble logits `[b, c]`; the label is not used."""
        return self._combine(votes.P, self.weights)

    def remember(self, votes: Votes) -> Tensor:
        """The pool keeps all clients' logits, `[b, m, c]`, because the weights go on changing."""
        return votes.P.transpose(0, 1)

    def recall(self, entry: Entry) -> Tensor:
        """The ensemble's present logits `[b, c]` from what the pool kept."""
        return self._combine(entry.answers.transpose(0, 1), self.weights)

    def refit(self, pool: Pool, batch_size: int, rng: torch.Generator) -> None:
        """Move the weights against the gradient's sign on the pool's images and their target labels."""
        entries = list(pool.entries)[: None if self.include_newest else -1]
        if entries:
            y = torch.cat([entry.y for entry in entries])
            answers = torch.cat([entry.answers for entry in entries])
            size = batch_size if self.per == "batch" else len(y)
            for index in index_batches(len(y), size, rng, device=y.device):
                self._step(answers[index].transpose(0, 1), y[index])
        self.rate *= self.decay

    def _step(self, P: Tensor, y: Tensor) -> None:
        weights = self.weights.clone().requires_grad_()
        with torch.enable_grad():
            (gradient,) = torch.autograd.grad(F.cross_entropy(self._combine(P, weights), y), weights)
        moved = (self.weights - self.rate * gradient.sign()).clamp(0, 1)
        self.weights.copy_(torch.where(moved.sum() > 0, moved, self.weights))

    def _combine(self, P: Tensor, weights: Tensor) -> Tensor:
        total = (weights.view(-1, 1, 1) * self.heard(P)).sum(dim=0)
        return total / weights.sum() if self.normalise else total
