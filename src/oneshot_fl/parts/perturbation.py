"""Images that are made harder for the ensemble whenever the student sees them (Co-Boosting; IntactOFL's gate)."""

from typing import ClassVar, Literal

import torch
from torch import Tensor
from torch.nn import functional as F

from oneshot_fl.data.dataset import channelwise
from oneshot_fl.parts.slots import Teacher
from oneshot_fl.parts.uploads import Server
from oneshot_fl.values import NotNegative


class Perturbation:
    """x + epsilon d, where d leads the ensemble's answer towards a random vector u ~ U[-1, 1]^c.

    Eq. 10 of Co-Boosting.

    Args:
        server: with the data spec.
        epsilon: the strength, in units of [0, 1] pixels.
        direction: `sign` of the gradient on softmax(answer / 4) (the code), or the `gradient` of u^T answer divided by
            its Euclidean norm per sample (the paper).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"classifiers"})

    def __init__(self, server: Server, *, epsilon: NotNegative, direction: Literal["sign", "gradient"]) -> None:
        self.spec, self.epsilon, self.direction = server.spec, epsilon, direction

    def draw(self, count: int, rng: torch.Generator) -> Tensor:
        """u, `[b, c]`."""
        return 2 * torch.rand((count, self.spec.classes), generator=rng) - 1

    def __call__(self, x: Tensor, teacher: Teacher, drawn: Tensor) -> Tensor:
        """Images `[b, C, H, W]` -> perturbed images, detached."""
        moving = x.detach().requires_grad_()
        with torch.enable_grad():
            answer = teacher(moving)
            answer = F.softmax(answer / 4, dim=1) if self.direction == "sign" else answer
            (gradient,) = torch.autograd.grad((drawn * answer).sum(), moving)
        return (x + self.epsilon / channelwise(self.spec.std, x) * self._direction(gradient)).detach()

    def _direction(self, gradient: Tensor) -> Tensor:
        if self.direction == "sign":
            return gradient.sign()
        norm = torch.linalg.vector_norm(gradient.flatten(1), dim=1).clamp_min(1e-12)
        return gradient / norm.view(-1, 1, 1, 1)
