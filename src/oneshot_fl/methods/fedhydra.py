"""FedHydra: model stratification and stratified aggregation.

J. Bai, A. Sajjanhar, Y. Xiang, X. Tao, Y. Song, Y. Li, D. Wu, W. Zhou, Y. Li: FedHydra, CIKM version of
arXiv:2410.21119. The authors' code was not at hand; everything here is written from the paper.

| equation | part | config key |
|---|---|---|
| Eq. 1, Alg. 2: loss of a generator led by client k to class j | `phases.stratify` | `stratify.*` |
| Eq. 2, 3: u = (max L - min L) / min L, U `[c, m]` | `guidance_capability` | `stratify.min_loss` |
| Eq. 4, 5: U_r, rows sum to 1 over clients | `normalised_rows` | - |
| Eq. 6, 7: U_c, columns sum to 1 over classes | `normalised_columns` | - |
| Eq. 8-12, Alg. 3: SA logits P | `StratifiedAggregation` | `method.ensemble` |
| Eq. 13: CE(P, y) | `parts.terms.CrossEntropy` | `method.objective.ce` |
| Eq. 14: BN loss, lambda1 = 1 | `parts.terms.BatchNormStatistics` | `method.objective.bn` |
| Eq. 15: -KL(P, F_g), lambda2 = 1 | `parts.terms.Adversarial` | `method.objective.adv` |
| Eq. 16: weighted sum | `parts.objective.Objective` | `method.objective.*.weight` |
| Eq. 17: KL(P, F_g) | `parts.terms.Distillation` | `method.student.kl` |
| Eq. 18, 19: beta CE(F_g, H[P]) | `HardLabel` | `method.student.hard_ce` |
| Alg. 1: T_g rounds | `phases.distill` | `distill.rounds` |
| Alg. 1: generator kept over rounds, batch of the last step | `parts.sources.GeneratorSource` | `method.source` |

What the paper leaves open, and what is done here:
- Student steps per round: Alg. 1 writes one; the codes it builds on take one pass over all rounds' images. The default
  is the pass (`method.pool.rounds=null`); `method.pool.rounds=1` is Alg. 1 to the letter.
- beta is not given: 1. The KL's temperature is not given: 1.
- min L can reach 0: it is bounded from below by `stratify.min_loss`. A row (column) of U that is all zero, because no
  client moved the loss at all, becomes uniform.
- All m*c generators of Alg. 2 start from the same weights and noise, so that their u are comparable.
- Eq. 14 names "the BN layer of the generator"; as in the codes, it compares, at each BN layer of each client, the
  synthetic batch's moments with that layer's running statistics. Norms are Euclidean, variances biased.
- The generator is the one of DENSE's code; the text's three transposed convolutions are not specified further.
- The student's initial weights are not given: new ones, other than those that the clients began at
  (`method/init=as_clients_began` takes those).
- Local SGD momentum is not given: 0.9, as in DENSE's and Co-Boosting's codes, for clients and student.
- SA's logits are small (see `StratifiedAggregation`); `method.ensemble.scale`, `.in_model` and `.space` are ours, the
  defaults are the paper to the letter. AE (Fig. 7) instead of SA is `method/ensemble=uniform`.
- Clients all have all classes in the paper. One that lacks an output for some (`oneshot-fl aggregate`) has u = 0 there,
  and losses of Eq. 1 over its own outputs; a row of U that no loss moved is uniform over those who have the class.
- On test images there is no label to choose a row of U_r by: see `parts.ensembles.label_free`.
"""

from dataclasses import dataclass
from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from oneshot_fl.parts.ensembles import Fixed, label_scores
from oneshot_fl.parts.uploads import Server
from oneshot_fl.parts.view import View, Votes
from oneshot_fl.values import NotNegative, Positive


def guidance_capability(losses: Tensor, *, min_loss: float) -> Tensor:
    """Eq. 2: u = (max L - min L) / min L over the steps, `[T_G, ...]` -> `[...]`; min L is at least `min_loss`."""
    highest, lowest = losses.amax(dim=0), losses.amin(dim=0)
    return (highest - lowest) / lowest.clamp_min(min_loss)


def normalised_rows(U: Tensor) -> Tensor:
    """Eqs. 4-5: U `[c, m]` divided by its row sums over clients; an all-zero row becomes uniform."""
    return _normalised(U, dim=1)


def normalised_columns(U: Tensor) -> Tensor:
    """Eqs. 6-7: U `[c, m]` divided by its column sums over classes; an all-zero column becomes uniform."""
    return _normalised(U, dim=0)


def _normalised(U: Tensor, dim: int) -> Tensor:
    total = U.sum(dim=dim, keepdim=True)
    return torch.where(total > 0, U / total.where(total > 0, 1.0), 1.0 / U.shape[dim])


class StratifiedAggregation(Fixed):
    """SA (Alg. 3): P[i] = scale sum_k U_r[y_i, k] (U_c[:, k] * P_k[i]), Eqs. 8-11 with `scale=1`.

    Args:
        server: with the guidance matrix U.
        scale: of the result. The columns of U_c sum to 1, so the paper's logits are about c times smaller than a
            client's; `scale=c` undoes that.
        in_model: whether U_c weighs the classes inside each client (Eq. 8).
        space: what is weighed: the clients' `logits` (the paper), or their `probabilities`, renormalised over classes,
            whose logarithm is then the answer.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"classifiers", "guidance", "labels"})
    rows: Tensor
    columns: Tensor

    def __init__(
        self, server: Server, *, scale: Positive, in_model: bool, space: Literal["logits", "probabilities"]
    ) -> None:
        super().__init__(server)
        if server.guidance is None:
            raise ValueError("stratified aggregation needs the guidance matrix U")
        self.scale, self.space = scale, space
        columns = normalised_columns(server.guidance)
        self.register_buffer("rows", normalised_rows(server.guidance))
        self.register_buffer("columns", columns if in_model else torch.ones_like(columns))

    def forward(self, votes: Votes) -> Tensor:
        """SA logits `[b, c]`."""
        weights = self.rows[votes.y].T.unsqueeze(2) * self.columns.T.unsqueeze(1)
        return self._spoken((weights * self._answers(votes)).sum(dim=0))

    def label_scores(self, votes: Votes) -> Tensor:
        """As `parts.ensembles.label_free` would have them, `[b, c]`."""
        return label_scores(self.rows, self.columns.T.unsqueeze(1) * self._answers(votes), self._spoken)

    def _answers(self, votes: Votes) -> Tensor:
        return votes.P if self.space == "logits" else votes.P.softmax(dim=2)

    def _spoken(self, weighed: Tensor) -> Tensor:
        if self.space == "logits":
            return self.scale * weighed
        smallest = torch.finfo(weighed.dtype).tiny
        known = weighed.clamp_min(smallest)  # clients may give all classes that U leaves them a probability of 0
        return self.scale * (known / known.sum(dim=-1, keepdim=True)).log()


@dataclass(frozen=True)
class HardLabel:
    """CE(F_g(x), H[P]): the student should agree with the ensemble's most likely class (Eq. 18); `weight` is beta."""

    weight: NotNegative
    needs: ClassVar[frozenset[str]] = frozenset({"teacher"})

    def __call__(self, view: View) -> Tensor:
        """Mean over the batch."""
        return F.cross_entropy(view.student, view.teacher.argmax(dim=1))
