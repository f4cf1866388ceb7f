"""Co-Boosting++: Co-Boosting whose ensemble weighs the clients by a gate that looks at the image.

R. Dai et al., the follow-up of Co-Boosting (ICLR 2024), known from its authors' code alone (github.com/rong-dai/
Co-Boosting-PP, commit 970271b); no paper was at hand, so the rows follow the code and the options undo its slips.

| what | part | config key |
|---|---|---|
| M(x) = sum_k g_k(x) z_k(x), g = softmax(flat(x) W), W = 0 at the start | `GatedExperts` | `method.ensemble` |
| gate noise N(0, 1) (softplus(flat(x) W_noise) + 0.01), while it is trained | `GatedExperts.refit` | |
| CE(M, y) + 0.01 cv^2(sum_i g(x_i)) on the rounds before, Adam 1e-5 | `GatedExperts.refit` | `.balance`, `.lr` |
| generator: (1 - p_y) CE(M, y) | `parts.terms.HardCrossEntropy` | `method.objective.hard_ce` |
| generator: -T^2 KL(M, student), T = 3, on all images | `parts.terms.Adversarial` | `method.objective.adv` |
| images one step of 8/255 towards a random vector | `parts.perturbation.Perturbation` | `method.perturb` |
| student: T^2 KL(M, student), T = 4 | `parts.terms.Distillation` | `method.student.kl` |

The code's slips, and what is done here:
- Clients run without gradients inside M, so labels reach the generator through the gate only: not at all while W = 0,
  and barely afterwards; nor is there any perturbation then. `method.ensemble.expert_grad=false` is the code; the
  default lets gradients through the clients.
- Training the gate puts the clients' batch normalisation into training mode, whose running statistics then drift to
  synthetic images. Clients are frozen here.
- Images are perturbed for one student after the other, so that the last gets five steps. Here each starts from the
  clean image.
- It runs with five students of different architectures only, and its third generator term, -KL_1 between every two of
  them, fails with one. Here there is one student and that term is left out (its weight has nothing to act on).
- The best test accuracy over rounds is reported there, the last round's here.

Deviations, as of `method=co_boosting`, with which all else is shared: FedHydra's protocol (30 generator steps instead
of 1, a constant learning rate of 0.01 instead of 0.1 on a cosine: `+method.student_schedule=cosine`), z not optimised,
no clipping of gradients. With all clients taking part, the code's second balance term (the number of images per client)
is always 0 and its top-k selection picks everybody; both are left out.
"""

from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from oneshot_fl.parts.mixtures import Gated, pixels, products
from oneshot_fl.parts.pools import Pool
from oneshot_fl.parts.uploads import Server
from oneshot_fl.values import LearningRate, NotNegative

LEAST_NOISE = 0.01
"""Standard deviation of the gate's noise, at least."""


def squared_variation(load: Tensor) -> Tensor:
    """Variance (unbiased) over squared mean of the clients' loads `[m]`; 0 for one client."""
    return load.var() / (load.mean().square() + 1e-10) if len(load) > 1 else load.new_zeros(())


class GatedExperts(Gated):
    """Clients weighed by a softmax of linear scores of the pixels, uniform until it learns.

    Args:
        server: with the clients' classifiers and the data spec.
        lr: of Adam; its moments go on from round to round.
        balance: weight of the loss that keeps every client in use.
        expert_grad: whether a gradient reaches the images through the clients too (the code: false).
    """

    needs: ClassVar[frozenset[str]] = Gated.needs | {"earlier_rounds"}
    moments: Tensor
    steps: Tensor

    def __init__(self, server: Server, *, lr: LearningRate, balance: NotNegative, expert_grad: bool) -> None:
        scores_and_noise = torch.zeros(2, pixels(server), len(server.uploads.sizes))
        super().__init__(server, scores_and_noise, expert_grad=expert_grad)
        self.lr, self.balance = lr, balance
        self.register_buffer("moments", torch.zeros(2, *scores_and_noise.shape))
        self.register_buffer("steps", torch.zeros(()))

    def weigh(self, x: Tensor) -> Tensor:
        """g(x) without noise."""
        return products(x, self.gate[0]).softmax(dim=1)

    def refit(self, pool: Pool, batch_size: int, rng: torch.Generator) -> None:
        """One pass over all rounds but the newest."""
        older = pool.before_newest()
        if older.size == 0:
            return
        optimizer = self._optimizer()
        with self.learning():
            for entry in older.batches(batch_size, rng):
                optimizer.zero_grad()
                weights = self._weigh_noisily(entry.x, rng)
                loss = F.cross_entropy(self.mixed(entry.answers.transpose(0, 1), weights), entry.y)
                (loss + self.balance * squared_variation(weights.sum(dim=0))).backward()
                optimizer.step()

    def _weigh_noisily(self, x: Tensor, rng: torch.Generator) -> Tensor:
        scores, spread = (products(x, matrix) for matrix in self.gate)
        noise = torch.randn(scores.shape, generator=rng).to(scores.device)
        return (scores + noise * (F.softplus(spread) + LEAST_NOISE)).softmax(dim=1)

    def _optimizer(self) -> torch.optim.Optimizer:
        """Adam whose memory lies in buffers, which are saved with every round."""
        optimizer = torch.optim.Adam([self.gate], lr=self.lr, fused=True)  # which reads `step` where it lies
        first, second = self.moments
        kept: dict[str, Any] = {"step": self.steps, "exp_avg": first, "exp_avg_sq": second}
        optimizer.state[self.gate] = kept
        return optimizer
