"""The hearing: every client is a witness of what the others recite, and one that contradicts them is not used.

A model that was trained on wrong labels is sound in itself, so no gate sees it; and honest clients of very skewed data
contradict each other about classes that only one of them has seen. So a client is asked only about classes that it
recites itself, and only about images that show their class to whoever recites them. R_y: those images of all others for
class y; R: the recitals of all clients; p_k(y|x): how probable class y is to client k.

    lift_k(x, y) = log p_k(y|x) - mean over R of log p_k(y|.), cut at +-cut
    hears_k      = mean over the classes y of k of the mean over R_y of lift_k(x, y)
    shows_k      = mean over the classes y of k of the mean over its own images of y, and over the others who recite y
                   too, of their lift
    testimony_k  = (hears_k + shows_k) / 2; hears_k alone where there is nothing to take the mean of in shows_k

The lift is relative to what the client says of everything, so one that always says the same says nothing. What was
measured of honest clients and of others: docs/results/attacks.md.
"""

from collections.abc import Collection, Iterator
from dataclasses import dataclass, replace
from statistics import median
from typing import ClassVar

import torch
from torch import Tensor

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.parts.recitals import said
from oneshot_fl.parts.uploads import Recital, Uploads
from oneshot_fl.values import Count, Finite, Images, Positive

FEWEST = 3
"""Clients whose recitals are heard; two that contradict each other leave nobody to say who is wrong."""
FEWEST_CLASSES = 2
"""That a client must have been asked about; of a single one, honest clients say too little to tell them from others."""

NO_NUMBERS = "answers what is recited with numbers that are not finite"


@dataclass(frozen=True)
class Witnesses:
    """Turns away clients whose testimony is too low, the one that lacks most first, as long as there are three clients.

    Before that, however many there are, those who answer with numbers that are not finite.

    Each time the testimonies are taken anew without the recitals of the one that was turned away, since they speak
    against whoever contradicts them. What a client usually says stays what it says of all recitals.

    Those who are left then must believe each other: where most of them do not either, recitals of such models tell
    nothing to others, and nobody is turned away for what it says of them.

    Args:
        spec: of the images that the models take.
        images: of each recital that the others are asked about, the first ones.
        cut: of the lift, in natural logarithms.
        least: testimony that is believed.
        classes: that a client must have been asked about for it; with fewer, less is known.
        least_of_few: testimony that is believed of a client that was asked about fewer classes, two at least.
        asked: images that it must have been asked about; with fewer, too little was recited to judge by.
    """

    spec: DataSpec
    images: Images
    cut: Positive
    least: Finite
    classes: Count
    least_of_few: Finite
    asked: Count
    needs: ClassVar[frozenset[str]] = frozenset({"classifiers", "recitals"})

    def __call__(self, uploads: Uploads, recitals: tuple[Recital, ...]) -> Uploads:
        """The uploads that are left; the others are in `quarantined`. One recital of each classifier, in its order."""
        heard = self.hear(uploads, recitals)
        without_numbers = (~heard.finite).nonzero().flatten().tolist()
        contradicted = dict(self._contradicted(heard))
        why = self.judges_nobody(recitals) or self._unbelieved(heard, contradicted)
        reasons = dict.fromkeys(without_numbers, NO_NUMBERS) | ({} if why else contradicted)
        after = uploads.without({uploads.classifiers[k].name: reason for k, reason in reasons.items()})
        return after.noted(f"the hearing judges nobody: {why}") if why else after

    def judges_nobody(self, recitals: tuple[Recital, ...]) -> str | None:
        """Why nobody can be judged by these recitals, whatever is said of them; None where somebody may be."""
        others = sorted(min(len(one.labels), self.images) for one in recitals)[1:]
        if len(recitals) < FEWEST:
            return f"{FEWEST} clients must recite for that, and {len(recitals)} did"
        if sum(others) < self.asked:
            return (
                f"nobody is asked about more than {sum(others)} images, of which hearing.asked={self.asked} are needed"
            )
        return None

    def hear(self, uploads: Uploads, recitals: tuple[Recital, ...]) -> "Statements":
        """What every client says of what every client recites."""
        recited = [replace(one, images=one.images[: self.images], labels=one.labels[: self.images]) for one in recitals]
        y = torch.cat([one.labels for one in recited])
        reciter = torch.arange(len(recited)).repeat_interleave(torch.tensor([len(one.labels) for one in recited]))
        cell = reciter * self.spec.classes + y
        size = len(recited) * self.spec.classes
        x = torch.cat([one.images for one in recited])
        answers = torch.stack([said(model, x, self.spec).log_softmax(dim=1) for model in uploads.models])
        finite = answers.isfinite().all(dim=2).all(dim=1)
        answers = answers.where(finite.view(-1, 1, 1), 0.0)  # what is no number would be in everybody's testimony
        shown = answers.argmax(dim=2)[reciter, torch.arange(len(y))] == y
        usual = answers.mean(dim=1)[:, y]
        lifts = (answers[:, torch.arange(len(y)), y] - usual).clamp(-self.cut, self.cut) * shown
        sums = torch.zeros(len(lifts), size).index_add_(1, cell, lifts)
        shape = (len(recited), self.spec.classes)
        recites, counts = (chosen.bincount(minlength=size).view(shape) for chosen in (cell, cell[shown]))
        return Statements(recites > 0, sums.view(len(lifts), *shape), counts, finite)

    def _unbelieved(self, heard: "Statements", contradicted: Collection[int]) -> str | None:
        """Why those who contradict some are not believed; None where they believe each other, or contradict nobody."""
        if not contradicted:
            return None
        present = heard.finite.clone()
        present[[*contradicted]] = False
        testimony, asked = heard.testimonies(present)
        left = testimony[present & (asked >= FEWEST_CLASSES)].tolist()
        if not left:
            return f"it would turn away {len(contradicted)}, but the others share too few classes to be asked about"
        if (usual := median(left)) >= self.least:
            return None
        return (
            f"it would turn away {len(contradicted)}, but the others recognise what they recite as little: what one "
            f"recites of a class lifts another's belief in it by {usual:.2f}, less than {self.least:g}; models that "
            "were trained for longer recite what others recognise"
        )

    def _contradicted(self, heard: "Statements") -> Iterator[tuple[int, str]]:
        """Clients that the others contradict, and the line that says so."""
        present = heard.finite.clone()
        while int(present.sum()) >= FEWEST:
            testimony, asked = heard.testimonies(present)
            least = torch.where(asked >= self.classes, self.least, self.least_of_few)
            judged = present & (asked >= FEWEST_CLASSES) & (heard.questions(present).sum(dim=1) >= self.asked)
            k = int((testimony - least).where(judged, torch.inf).argmin())
            if not judged[k] or testimony[k] >= least[k]:
                return
            present[k] = False
            yield (
                k,
                f"contradicts the others about the {int(asked[k])} classes that it shares with them: what one recites "
                f"of a class lifts the other's belief in it by {float(testimony[k]):.2f}, less than {least[k]:.3g}",
            )


@dataclass(frozen=True)
class Statements:
    """What every client says of what every client recites, by class."""

    recites: Tensor
    """Whether client j recites class y at all, `[j, y]`."""
    lifts: Tensor
    """Sum of client k's lifts over those images of client j's for class y, `[k, j, y]`."""
    counts: Tensor
    """Images of client j's recital that show class y to itself, `[j, y]`."""
    finite: Tensor
    """Whether all that client k says are finite numbers, `[k]`; of one that says others, all lifts are 0."""

    def questions(self, present: Tensor) -> Tensor:
        """Images that each client is asked about, by class `[m, c]`; recitals of those `present` count."""
        return torch.einsum("kj,jy->ky", _others(present), self.counts.double()) * self.recites

    def testimonies(self, present: Tensor) -> tuple[Tensor, Tensor]:
        """Of each client `[m]`, and how many classes it was asked about `[m]`; recitals of those `present` count."""
        others, lifts, recites = _others(present), self.lifts.double(), self.recites.double()
        asked = self.questions(present)
        hears = _over_classes(torch.einsum("kj,kjy->ky", others, lifts), asked)
        shown = torch.einsum("kj,jy->ky", others, recites) * self.counts
        shows = _over_classes(torch.einsum("kj,jy,jky->ky", others, recites, lifts), shown)
        showed = (shown > 0).any(dim=1)  # else shows_k is 0 for want of images, not of belief
        return torch.where(showed, (hears + shows) / 2, hears), (asked > 0).sum(dim=1)


def _over_classes(sums: Tensor, images: Tensor) -> Tensor:
    """Means over images, and of those over the classes that there are images of; both `[m, c]`, the result `[m]`."""
    there = images > 0
    return (sums / images.clamp_min(1) * there).sum(dim=1) / there.sum(dim=1).clamp_min(1)


def _others(present: Tensor) -> Tensor:
    """Whether client j is another one than client k and present, as numbers `[k, j]`."""
    return (present & ~torch.eye(len(present), dtype=torch.bool)).double()
