"""FedChorus: every client's model recites what it knows; the student listens to whoever can show evidence.

Our own method, so the equations are numbered here. f_k: client k's classifier; p_k(x) = softmax f_k(x); phi_k(x): what
enters its last layer; n_k: its label counts; H: entropy.

| equation | part | config key |
|---|---|---|
| Eq. 1: y ~ pi_k, client k's own label distribution: n_k / sum n_k | `phases.recite` | `recite.labels=counts` |
| Eq. 1': or the mean of p_k over images of no data set | `parts.recitals` | `recite.labels=estimated` |
| Eq. 2: images x minimise CE(f_k(x), y); one client judges | `parts.terms.CrossEntropy` | `recite.objective.ce` |
| Eq. 3: + distance to its own BN statistics (FedHydra's Eq. 14) | `BatchNormStatistics` | `recite.objective.bn` |
| Eq. 4: + 0.05 mean absolute step, along rows plus along columns | `parts.terms.Roughness` | `recite.objective.tv` |
| Eq. 4': x begins as dead leaves, in colour as textures | `parts.recitals` | `recite.start` |
| Eq. 4'': it is moved in every step, in colour mirrored too | `parts.recitals` | `recite.shaken`, `recite.mirrored` |
| unless a mirrored image is another one (`data=svhn`) | `conf/recite/unmirrored.yaml` | `recite.mirrored=never` |
| without BN statistics the steps are a third as large | `phases.recite` | `recite.without_statistics` |
| Eq. 5: the pool: all recitals, dead leaves, strokes | `parts.recitals`, `parts.procedural` | `method.source` |
| Eq. 5': in colour also variations of recitals, and textures | `parts.procedural` | `method.source.*.colour_only` |
| Eq. 6: and mixtures a x + (1 - a) x', a ~ U(0, 1), of any two | `parts.procedural` | `method.source.mixtures` |
| Eq. 7: evidence e_k(x) = (max_j f_kj - mean_j f_kj) / norm(phi_k)^power | `evidence` | `method.ensemble.power` |
| where j runs over the classes that f_k has an output for | `parts.uploads.known_classes` | - |
| Eq. 8: made comparable: by mean and deviation of e_k where f_k says that class of recitals of another | `usual` | - |
| Eq. 8': and the whole pool, as 400 images more; without BN by it alone | `usual` | `method.ensemble.pool_counts` |
| Eq. 9: teacher sum_k w_k p_k, w_k ~ exp(sharpness e_k - doubt H(p_k)) | `EvidenceWeighted` | `method.ensemble` |
| Eq. 9': w_k ~ exp(-sharpness H(p_k)) | `parts.ensembles.EntropyWeighted` | `method/ensemble=entropy` |
| Eq. 9'': in the last three tenths of the rounds the w_k of Eq. 12 | `EvidenceWeighted.refit` | `.self_gated` |
| where clients share classes: 1 / sum_k q_k(y)^2 >= 1.1 in the mean over those shown | `mean_owners` | `.owners` |
| Eq. 10: student: T^2 KL(teacher, student), both softened by T = 2 | `parts.terms.Distillation` | `method.student.kl` |
| Eq. 10': in colour of x moved and mirrored likewise, afresh in every step | `parts.moved` | `method.perturb` |
| Eq. 11: + CE(student, y) on recitals only | `parts.terms.LabelCrossEntropy` | `method.student.ce` |
| of those that show y to the client whose they are, argmax p_k(x) = y; others by 2^-10 | `parts.recitals.shown` | - |
| Eq. 12: w_k ~ exp(-doubt H(p_k)) sum_y s_y q_k(y), s: the student | `sent` | `.self_doubt` |
| q_k(y): client k's share of the recitals for y | `shown_shares` | - |
| Eq. 12': of all samples of y (tested, where there are label counts) | `SelfGated` | `evaluate.ensembles` |
| the student begins as the clients' plain average where architectures agree | `parts.inits` | `method/init` |
| T_g = 10 passes over the pool in every budget | `phases.distill` | `method.of.rounds`, `distill.rounds` |
| by Adam, 2e-3, one cycle | `phases.schedule` | `method.student_optimizer`, `method.student_schedule` |

Why client by client: running statistics describe a client's own mixture of classes. A batch of another mixture, judged
by all clients together, is asked to look like something that never was.

Why evidence: a client that never saw a class is as sure of itself there as elsewhere, so its confidence says little.
Its logits are products of features and weights, and they grow with the length of the features whatever these show; the
share that points along the weights of the best class is larger for what the client was trained on.

Why self-gated at last: a student that has heard everybody knows better than any client what an image shows, and so whom
to ask. Too early it would only hear itself, and so it would where every class has one client that knows it.

Upload: the model, and the label counts where `recite.labels=counts` (declared: `uploads.label_counts` in the
summary); with `recite.labels=estimated` the model alone. No image, and nothing of the test set, is used. A client
without batch normalisation recites by Eqs. 2 and 4 alone, in smaller steps, and is measured by the whole pool; a
network whose last layer is not linear has no phi_k (`method/ensemble=entropy` needs none).

`method=fedchorus_quick` has half of the images, of the steps of inversion and of the passes (docs/speed.md).

Kin: DeepInversion (Yin et al. 2020) inverts one network with its own statistics; FedISCA (Kang et al. 2023) inverts the
ensemble jointly; dead leaves as training images: Baradad et al. 2021; normalised logits as evidence of known inputs
are used in out-of-distribution detection. What was tried, on what, and what came of it:
docs/results/fedchorus-development.md.
"""

from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from oneshot_fl.models.bank import has_batch_norm
from oneshot_fl.models.mode import evaluating
from oneshot_fl.parts.ensembles import Fixed, entropy, weighted_probability
from oneshot_fl.parts.pools import Entry, Pool, joined
from oneshot_fl.parts.recitals import DOUBTED
from oneshot_fl.parts.uploads import Recital, Server, known_classes
from oneshot_fl.parts.view import Votes
from oneshot_fl.values import BelowOne, Count, CountOrZero, NotNegative

ALIKE = 1e-4
"""Evidence that deviates by less than this share of its mean is the same for all images, but for rounding."""


class EvidenceWeighted(Fixed):
    """The clients' probabilities, weighted an image by how much each client's features speak for its answer (Eqs. 7-9).

    A client that knows an image finds features that point along the weights of its best class; one that does not may
    be as sure of itself, but its evidence is short for so long a feature vector. Evidence is made comparable, between
    clients and between a client's classes, by what it is where that client is known to be mistaken. The mistakes of
    one without batch normalisation tell less than the whole pool does, which is then what it is measured by.

    Where clients have recitals and share classes, evidence teaches until the last rounds. In these the student itself,
    as it is when a round begins, says whom an image of the pool is sent to (Eq. 12). New images are always answered by
    evidence.

    Args:
        server: with the clients' classifiers; while a student is taught also with it and with recitals.
        sharpness: of the weights.
        power: of the length of the features that the evidence is divided by.
        doubt: weight of the entropy of a client's answer.
        pool_counts: images that the whole pool counts as, beside a client's mistakes.
        self_gated: share of the rounds, the last ones, in which the student is asked.
        owners: how many clients have to show a class for that, in the mean over the classes.
        self_doubt: weight of the entropy of a client's answer then.
        rounds: T_g.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"classifiers", "features"})
    mean: Tensor
    deviation: Tensor
    telling: Tensor
    """1 for a client whose mistakes tell something of it, else 0, `[m]`."""
    own: Tensor
    """Which classes a client's model has an output for, bool `[m, c]`."""
    shares: Tensor
    """Every client's share of what recitals show of a class, `[m, c]`."""
    round: Tensor
    """The number of the present one."""

    def __init__(
        self,
        server: Server,
        *,
        sharpness: NotNegative,
        power: NotNegative,
        doubt: NotNegative,
        pool_counts: Count,
        self_gated: BelowOne,
        owners: NotNegative,
        self_doubt: NotNegative,
        rounds: CountOrZero,
    ) -> None:
        super().__init__(server)
        self.sharpness, self.power, self.doubt, self.pool_counts = sharpness, power, doubt, pool_counts
        self.self_doubt, self.by_evidence = self_doubt, rounds - round(self_gated * rounds)
        self.gates = False
        models = server.uploads.models
        self.register_buffer("telling", torch.tensor([float(has_batch_norm(model)) for model in models]))
        shape = len(models), server.spec.classes
        self.register_buffer("mean", torch.zeros(shape))
        self.register_buffer("deviation", torch.ones(shape))
        self.register_buffer("own", known_classes(server.uploads.classifiers, server.spec.classes))
        shares = shown_shares(server.recitals, server.spec.classes) if server.recitals else torch.ones(shape)
        self.register_buffer("shares", shares)
        shared = bool(server.recitals) and mean_owners(shares) >= owners
        self.senders = [server.student] if shared and server.student is not None else []  # a list: not its own state
        self.register_buffer("round", torch.tensor(0))

    def forward(self, votes: Votes) -> Tensor:
        """Log-probabilities `[b, c]`, by evidence; the label is not used."""
        return self._weigh(votes.P, evidence(votes, self.own, self.power))

    def remember(self, votes: Votes) -> Tensor:
        """The pool keeps all clients' logits and evidence, and room for whom the student asks, `[b, m, c + 2]`.

        What is usual is known once it is full.
        """
        found = evidence(votes, self.own, self.power).unsqueeze(2)
        return torch.cat([votes.P, found, torch.zeros_like(found)], dim=2).transpose(0, 1)

    def recall(self, entry: Entry) -> Tensor:
        """Log-probabilities from what the pool kept, in the last rounds self-gated."""
        P, found, sent_to = _kept(entry)
        return weighted_probability(P, sent_to - self.self_doubt * entropy(P)) if self.gates else self._weigh(P, found)

    def refit(self, pool: Pool, batch_size: int, rng: torch.Generator) -> None:
        """What is usual (Eq. 8), and in the last rounds whom the student asks (Eq. 12).

        Evidence that is the same whatever an image shows counts as usual everywhere.
        """
        entry = joined(pool.entries)
        made_for = entry.trust.where(entry.trust != DOUBTED, 1.0)
        counted, (P, found, _) = self.telling.unsqueeze(1) * made_for, _kept(entry)
        mean, deviation = usual(P, found, entry.y, counted, pool_counts=self.pool_counts)
        self.mean.copy_(mean)
        boundless = torch.finfo(deviation.dtype).max  # what is not finite would not be stored
        self.deviation.copy_(deviation.where(deviation > ALIKE * mean.abs(), boundless))
        self.round += 1
        self.gates = bool(self.senders) and int(self.round) > self.by_evidence
        if self.gates:
            self._ask(pool, batch_size)

    def _ask(self, pool: Pool, batch_size: int) -> None:
        """Keep beside the pool's images whom the student, as it is now, sends them to."""
        (student,) = self.senders
        with evaluating(student):
            for entry in pool.entries:
                parts = [sent(student, pool.unpack(part), self.shares) for part in entry.x.split(batch_size)]
                entry.answers[..., -1] = torch.cat(parts)

    def _weigh(self, P: Tensor, found: Tensor) -> Tensor:
        said = P.argmax(dim=2)
        unusual = (found - self.mean.gather(1, said)) / self.deviation.gather(1, said)
        return weighted_probability(P, self.sharpness * unusual - self.doubt * entropy(P))


class SelfGated(Fixed):
    """The clients' probabilities, weighted by their confidence and by whom the global model sends an image to (Eq. 12).

    Only tested: what teaches in the last rounds is `EvidenceWeighted`, with a student that still learns.

    Args:
        server: with label counts n_k and the global model s.
        doubt: of the weights w_k ~ exp(-doubt H(p_k)) sum_y s_y n_k(y) / sum_j n_j(y).
    """

    needs: ClassVar[frozenset[str]] = frozenset({"classifiers", "label_counts", "student"})
    shares: Tensor

    def __init__(self, server: Server, *, doubt: NotNegative) -> None:
        super().__init__(server)
        if server.student is None:
            raise ValueError("the global model is declared as a need and has to be there")
        counts = server.uploads.told_label_counts
        self.student, self.doubt = server.student, doubt
        self.register_buffer("shares", counts / counts.sum(dim=0).clamp_min(1))

    def forward(self, votes: Votes) -> Tensor:
        """Log-probabilities `[b, c]`; the label is not used."""
        asked = sent(self.student, votes.x, self.shares).T
        return weighted_probability(votes.P, asked - self.doubt * entropy(votes.P))


def evidence(votes: Votes, own: Tensor, power: float) -> Tensor:
    """e_k(x) = (max_j z_kj - mean_j z_kj) / |phi_k|^power, `[m, b]` (Eq. 7); 0 where all features of an image are 0.

    Args:
        votes: with features.
        own: which classes j client k's model has an output for, bool `[m, c]`. What is put in place of the others
            (`models.aligned`) no features made: divided by their length, it would speak for short ones.
        power: of the length of the features.
    """
    lengths = torch.stack([torch.linalg.vector_norm(features.float(), dim=1) for features in votes.features])
    gap = votes.P.amax(dim=2) - (votes.P * own.unsqueeze(1)).sum(dim=2) / own.sum(dim=1, keepdim=True)
    smallest = torch.finfo(gap.dtype).eps
    return (gap / lengths.clamp_min(smallest) ** power).where(lengths > smallest, 0.0)


@torch.no_grad()
def sent(student: nn.Module, x: Tensor, shares: Tensor) -> Tensor:
    """log sum_y s_y(x) q_k(y), `[b, m]`: how far the global model s sends an image to whom (Eq. 12).

    Args:
        student: images to logits.
        x: `[b, C, H, W]`, as models see them.
        shares: q_k(y), `[m, c]`.
    """
    with torch.autocast(x.device.type, enabled=False):
        found = student(x).softmax(dim=1) @ shares.T
    return found.clamp_min(torch.finfo(found.dtype).tiny).log()


def shown_shares(recitals: Sequence[Recital], classes: int) -> Tensor:
    """Every client's share of what all recitals show of a class, `[m, c]`; 0 where none shows it.

    A recital is drawn by its client's own label distribution, uploaded or estimated (Eqs. 1 and 1').
    """
    shown = torch.stack([recital.labels.bincount(minlength=classes) / len(recital.labels) for recital in recitals])
    return shown / shown.sum(dim=0).where(shown.sum(dim=0) > 0, 1.0)


def mean_owners(shares: Tensor) -> float:
    """How many clients show a class, in the mean over those that are shown: 1 / sum_k q_k(y)^2, which is n of n alike.

    To four digits, so that n alike are not found to be fewer than n.

    Args:
        shares: q_k(y), `[m, c]`.
    """
    squares = shares.square().sum(dim=0)
    return round(float((1 / squares[squares > 0]).mean()), 4)


def usual(P: Tensor, found: Tensor, y: Tensor, counted: Tensor, *, pool_counts: Count) -> tuple[Tensor, Tensor]:
    """Mean and deviation of evidence, a client and answer, where that answer is a mistake, both `[m, c]` (Eq. 8).

    Mistakes are known of images that were made for a label: of recitals, not of drawings. Where a recital shows it to
    nobody, whoever names a class of it is mistaken all the more. Of some answers there are few, so all images, whatever
    they show, count for `pool_counts` more.

    Args:
        P: the clients' logits on the pool, `[m, n, c]`.
        found: their evidence, `[m, n]`.
        y: the labels that the images were made for, `[n]`.
        counted: how far a client's mistake of an image counts, `[m, n]`.
    """
    mean, variance = found.mean(dim=1), found.var(dim=1, correction=0)
    unlike, said = found - mean.unsqueeze(1), P.argmax(dim=2)
    means, deviations = [], []
    for answer in range(P.shape[2]):
        counts = (said == answer) * (y != answer) * counted
        total = counts.sum(dim=1) + pool_counts
        shift = (counts * unlike).sum(dim=1) / total
        squares = ((counts * unlike**2).sum(dim=1) + pool_counts * variance) / total
        means.append(mean + shift)
        deviations.append((squares - shift**2).clamp_min(0).sqrt())
    return torch.stack(means, dim=1), torch.stack(deviations, dim=1)


def _kept(entry: Entry) -> tuple[Tensor, Tensor, Tensor]:
    """The clients' logits `[m, n, c]`, evidence `[m, n]` and what the student said of whom to ask, `[m, n]`."""
    kept = entry.answers.transpose(0, 1)
    return kept[..., :-2], kept[..., -2], kept[..., -1]
