"""FedMHO, FedMHO-MD, FedMHO-SD: weak clients send decoders instead of classifiers.

D. Yao, Y. Shi, T. Liu, Z. Xu: FedMHO: Heterogeneous One-Shot Federated Learning Towards Resource-Constrained Edge
Devices. Sections and equations are the paper's; its code has no licence and was only compared with.

| what | part | config key |
|---|---|---|
| some clients train classifiers, some conditional VAEs | `phases.clients` | `clients.kinds`, `cvae` |
| Eq. 4: w0 is the plain mean of the classifiers | `parts.inits.AverageWhereAlike` | `method.init` |
| Sec. 4.2.2: decoders draw by their clients' label distributions | `parts.decoders.DecoderSource` | `method.source` |
| Sec. 4.4: k-means with one cluster per class, R_th = 0.8 | `parts.pools.Pool` | `method.pool.nearest` |
| Eq. 5: CE(student, y) | `parts.terms.LabelCrossEntropy` | `method.student.ce` |
| Eq. 6 (MD): 1/c KL(mean of the classifiers' logits to student), T = 1 | `TeacherDistillation` | `method.student.kl` |
| Eq. 7 (SD): 1/c KL(w0 to student), T = 1 | `SelfDistillation` | `method.student.kl` |
| Eq. 8: lambda CE + (1 - lambda) KL, lambda = 0.5 | weights of the terms | `method.student.*.weight` |
| Sec. 5.6: where classifiers differ, w0 is distilled from all of them | `phases.distill`, `WarmUp` | `method.warm_up` |
| Table 3: learning rates, numbers of images | | `method.of.global_lr`, `method.of.synthetic` |
| Sec. 5.8, Table 11: FID, but not on Inception's features | `phases.fidelity` | `evaluate=fidelity` |

Deviations:
- How the images are split among decoders is not given beyond "by label distribution": in proportion to the clients'
  counts. The code's split (a uniform class budget, shared by squared counts) is `method.source.split=squared_counts`.
- The KL is divided by the number of classes once more (PyTorch's `mean`), as in the code that the paper's numbers come
  from; Eqs. 6 and 7 to the letter are `method.student.kl.per_class=false`. The code's two terms are weighted 1 and 1,
  which Adam does not tell from 0.5 and 0.5.
- Clients: the code deals each class by Dir(alpha) among groups of ten clients, lays the shares end to end and cuts them
  into equal pieces (`partition=dirichlet_equal_chunks`, part of `protocol=fedmho`). It adds SVHN's extra images; we do
  not. On MNIST the paper has 10 global epochs, its code 20; ours is the paper's.
- Global epochs are `distill.rounds`, the batch size is `distill.batch_size`. For data sets that Table 3 does not name
  the learning rate is the code's 1e-4.
- Of the distillation of Sec. 5.6 the paper has one sentence, its code nothing. Here the student begins as the mean of
  the classifiers of its own architecture (else fresh) and learns from the mean logits of all, KL at T = 1, on the
  filtered images, with Adam (1e-3) for as many passes as there are rounds; SD's w0 is what it is then.
"""

from dataclasses import dataclass
from typing import ClassVar

from torch import Tensor

from oneshot_fl.parts.terms import kl_divergence
from oneshot_fl.parts.view import View
from oneshot_fl.values import NotNegative


@dataclass(frozen=True)
class TeacherDistillation:
    """KL(P to student) at temperature 1 (Eq. 6): what the classifiers know is not forgotten.

    With `per_class` it is divided by the number of classes, as in the authors' code.
    """

    weight: NotNegative
    per_class: bool
    needs: ClassVar[frozenset[str]] = frozenset({"teacher"})

    def __call__(self, view: View) -> Tensor:
        """Mean over the batch."""
        return _mean_kl(view.teacher, view.student, per_class=self.per_class)


@dataclass(frozen=True)
class SelfDistillation:
    """KL(w0 to student) at temperature 1 (Eq. 7): what the student began as is not forgotten.

    With `per_class` it is divided by the number of classes, as in the authors' code.
    """

    weight: NotNegative
    per_class: bool
    needs: ClassVar[frozenset[str]] = frozenset({"start"})

    def __call__(self, view: View) -> Tensor:
        """Mean over the batch."""
        return _mean_kl(view.start, view.student, per_class=self.per_class)


def _mean_kl(teacher: Tensor, student: Tensor, *, per_class: bool) -> Tensor:
    mean = kl_divergence(teacher, student, temperature=1.0).mean()
    return mean / student.shape[1] if per_class else mean
