"""FedMHO, FedMHO-MD, FedMHO-SD: weak clients send decoders instead of classifiers.

D. Yao, Y. Shi, T. Liu, Z. Xu: FedMHO: Heterogeneous One-Shot Federated Learning Towards Resource-Constrained Edge
Devices. Sections and equations are the paper's; its code has no licence and was only compared with.

| what | part | config key |
|---|---|---|
| some clients train classifiers, some conditional VAEs | `phases.clients` | `clients.kinds`, `cvae` |
| Eq. 4: w0 is the plain mean of the classifiers | `parts.inits.AverageWhereAlike` | `method.init` |
| Sec. 4.2.2: decoders draw by their clients' label distributions | `parts.decoders.DecoderSource` | `method.source` |
| Sec. 4.4: k-means with one cluster a class, R_th = 0.8 | `parts.pools.Pool` | `method.pool.nearest` |
| Eq. 5: CE(student, y) | `parts.terms.LabelCrossEntropy` | `method.student.ce` |
| Eq. 6 (MD): KL(mean of the classifiers' logits to student), T = 1 | `parts.terms.Distillation` | `method.student.kl` |
| Eq. 7 (SD): KL(w0 to student), T = 1 | `SelfDistillation` | `method.student.kl` |
| Eq. 8: lambda CE + (1 - lambda) KL, lambda = 0.5 | weights of the terms | `method.student.*.weight` |
| Sec. 5.8, Table 11: FID, but not on Inception's features | `phases.fidelity` | `evaluate=fidelity` |

Deviations:
- How the images are split among decoders is not given beyond "by label distribution": in proportion to the clients'
  counts. The code's split (a uniform class budget, shared by squared counts) is `method.source.split=squared_counts`.
- The code's KL is divided by the number of classes once more (PyTorch's `mean`): `method.student.kl.weight=0.05` at 10
  classes has its proportion. Its two terms are weighted 1 and 1, which Adam does not tell from 0.5 and 0.5.
- Global epochs are `distill.rounds`, the batch size is `distill.batch_size`; the paper's learning rates differ
  by data set (Table 3), the default here is its code's 1e-4 for data sets that it does not name.
- A student of another architecture than every classifier begins fresh; the paper's ensemble distillation for that case
  (Sec. 5.6) is not there yet.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from oneshot_fl.parts.terms import kl_divergence
from oneshot_fl.parts.view import View


@dataclass(frozen=True)
class SelfDistillation:
    """KL(w0 to student) at temperature 1 (Eq. 7): what the average knew is not forgotten."""

    weight: float
    needs: ClassVar[frozenset[str]] = frozenset({"start"})

    def __call__(self, view: View) -> Tensor:
        """Mean over the batch."""
        return kl_divergence(view.start, view.student, temperature=1.0).mean()
