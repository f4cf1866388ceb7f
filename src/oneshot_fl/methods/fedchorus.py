"""FedChorus card (in the making)."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch import Tensor

from oneshot_fl.parts.view import View
from oneshot_fl.values import NotNegative


@dataclass(frozen=True)
class Roughness:
    """Mean absolute difference between neighbouring pixels, rows and columns alike (Eq. 4)."""

    weight: NotNegative
    needs: ClassVar[frozenset[str]] = frozenset()

    def __call__(self, view: View) -> Tensor:
        """One number per batch, in the space that models see."""
        rows, columns = view.x.diff(dim=2).abs().mean(), view.x.diff(dim=3).abs().mean()
        return torch.stack([rows, columns]).sum()
