"""What the server receives, once, and what it has when a method's parts are made."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import starmap
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from oneshot_fl.artifacts import fingerprint, tensor_hash
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.proxy import Proxy
from oneshot_fl.errors import NothingLeftError, OneshotError, first_of, printable
from oneshot_fl.models.architecture import InitialModel
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.cvae import CVAE
from oneshot_fl.models.structure import structure
from oneshot_fl.recipe import digest_of
from oneshot_fl.seeds import seeded


@dataclass(frozen=True)
class ClassifierUpload:
    """What a client with a classifier uploads."""

    model: nn.Module
    """Images `[b, C, H, W]` as models see them -> logits `[b, c]`."""
    samples: int
    """Training samples of the client."""
    key: str
    """Fingerprint of everything that the upload depends on."""
    label_counts: Tensor | None = None
    """How many samples of every class the client has, `[c]`; uploaded only where a part of the method needs it."""
    name: str = ""
    """What reports call the client."""
    unknown: tuple[int, ...] = ()
    """Classes that the model has no output for, because the client's own list of classes lacks them."""
    draws: int | str = 0
    """What its recital's random draws go by: its client's number, or its file's name where several tell one number."""


@dataclass(frozen=True)
class DecoderUpload:
    """What a client with a conditional VAE uploads: its decoder and how many samples of every class it has."""

    model: nn.Module
    """`(noise [n, latent], labels [n])` -> images `[n, C, H, W]` in [0, 1]."""
    latent: int
    label_counts: Tensor
    """`[c]`"""
    key: str
    build: Callable[[], CVAE]
    """A VAE of the same architecture with new weights."""
    name: str = ""
    """What reports call the client."""
    unknown: tuple[int, ...] = ()
    """Classes that the decoder cannot be asked for, because the client's own list of classes lacks them."""


def known_classes(uploads: Sequence[ClassifierUpload | DecoderUpload], classes: int) -> Tensor:
    """Which classes each of the models can say or draw, bool `[k, c]`: all but those that its client does not name."""
    known = torch.ones(len(uploads), classes, dtype=torch.bool)
    for row, upload in zip(known, uploads, strict=True):
        row[list(upload.unknown)] = False
    return known


@dataclass(frozen=True)
class Quarantined:
    """An upload that the server does not use."""

    name: str
    """What reports call the client."""
    reason: str
    """One line."""

    @property
    def told(self) -> str:
        """What is said of it, in one line."""
        return f"quarantined {self.name}: {self.reason}"


Upload = TypeVar("Upload", ClassifierUpload, DecoderUpload)


@dataclass(frozen=True)
class Uploads:
    """The hinge of a run: left of it clients and their data, right of it only this."""

    classifiers: tuple[ClassifierUpload, ...]
    decoders: tuple[DecoderUpload, ...] = ()
    quarantined: tuple[Quarantined, ...] = ()
    """What was turned away on the way here, and why."""
    notes: tuple[str, ...] = field(default=(), compare=False)
    """What gates and hearings have to say besides, a line each."""

    def __post_init__(self) -> None:
        """Gates and reports know uploads by their names alone: two of one name would be judged as one."""
        names = [upload.name for upload in self._own]
        if repeated := [name for name, times in Counter(names).items() if name and times > 1]:
            raise ValueError(f"several uploads are called {repeated[0]}: every client needs a name of its own")

    @property
    def models(self) -> list[nn.Module]:
        """The classifiers themselves; m counts those."""
        return [upload.model for upload in self.classifiers]

    @property
    def sizes(self) -> list[int]:
        """Training samples of each client with a classifier, `[m]`."""
        return [upload.samples for upload in self.classifiers]

    @property
    def label_counts(self) -> Tensor | None:
        """Of each client with a classifier, `[m, c]`; None unless all uploaded theirs."""
        counts = [upload.label_counts for upload in self.classifiers if upload.label_counts is not None]
        return torch.stack(counts) if counts and len(counts) == len(self.classifiers) else None

    @property
    def told_label_counts(self) -> Tensor:
        """The same for a part that declared the need: without them whoever made the part is wrong, not the user."""
        if self.label_counts is None:
            raise ValueError("label counts are declared as a need and have to be there")
        return self.label_counts

    @property
    def key(self) -> str:
        """Fingerprint of all uploads that are used."""
        return fingerprint([[upload.key for upload in kind] for kind in (self.classifiers, self.decoders)])

    def left_by(self, step: Callable[["Uploads"], "Uploads"], who: str) -> "Uploads":
        """What a step (an attack, a gate) leaves of them; uploads that it drops without a word count as turned away.

        What it draws from torch, and does not seed, it draws in every run.

        Args:
            step: what the uploads pass through.
            who: it is, for the lines that say so.

        Raises:
            OneshotError: it gives something else, or turns away a client that there is not.
        """
        with seeded(0, who):
            after = step(self)
        if not isinstance(after, Uploads):
            raise OneshotError(
                f"{who}: gives a {type(after).__name__} instead of the uploads that are left; let it return "
                "uploads.without({name: reason}) or dataclasses.replace(uploads, classifiers=...)"
            )
        turned_away = [one for one in after.quarantined if one not in self.quarantined]
        there = [name for name in self.named() if name]
        if unknown := [one.name for one in turned_away if one.name not in there]:
            raise OneshotError(f"{who}: turns away {first_of(unknown)}, but there are {', '.join(there)}")
        known = {*after.named(), *(one.name for one in turned_away)}
        left_out = [Quarantined(name, f"left out by {who}") for name in there if name not in known]
        said = [line for line in after.notes if line not in self.notes]
        return replace(after, quarantined=(*self.quarantined, *turned_away, *left_out), notes=(*self.notes, *said))

    def through(
        self, step: Callable[["Uploads"], "Uploads"], described: Mapping[str, Any], *, who: str = "a step"
    ) -> "Uploads":
        """The same, where an upload that the step changed gets a key that says by what, and what came of it.

        That is the step's settings and code, all uploads, since it may have looked at the others too, and what it made,
        since it may have drawn. An upload is changed where another stands in its place, and where its model was written
        into.

        Args:
            step: what the uploads pass through.
            described: the step's settings, plain, and whatever else it looks at.
            who: it is, for the lines that say so.

        Raises:
            OneshotError: as of `left_by`.
        """
        before = self.contents()
        after = self.left_by(step, who)
        untouched = frozenset(map(id, self._own)) - frozenset(map(id, self._written_since(before)))
        by = fingerprint([self.key, described, digest_of(__name__, described)])
        return replace(
            after,
            classifiers=_rekeyed(after.classifiers, untouched, by),
            decoders=_rekeyed(after.decoders, untouched, by),
        )

    @property
    def _own(self) -> tuple["ClassifierUpload | DecoderUpload", ...]:
        """All that are used, also where several have no name."""
        return (*self.classifiers, *self.decoders)

    def contents(self) -> list[str]:
        """Of every upload that is used a hash over what can be written into while it stays the same object."""
        return [_contents(upload) for upload in self._own]

    def _written_since(self, before: Sequence[str]) -> list["ClassifierUpload | DecoderUpload"]:
        """Those that had other `contents` before."""
        pairs = zip(self._own, self.contents(), before, strict=True)
        return [upload for upload, now, then in pairs if now != then]

    def require_unwritten(self, before: Sequence[str], who: str) -> None:
        """Whether all are as they were.

        Args:
            before: their `contents` then.
            who: has worked with them since, for the line that says that it wrote.

        Raises:
            OneshotError: somebody wrote into one.
        """
        if written := [upload.name for upload in self._written_since(before)]:
            raise OneshotError(
                f"{who} writes into the uploaded models of {first_of(written)}, which others ask too; let it work on "
                "a copy (copy.deepcopy(model), or tensor.clone() of what state_dict() gives)"
            )

    def without(self, reasons: Mapping[str, str]) -> "Uploads":
        """What is left when some are turned away: by the name of their client, each for its reason."""
        return replace(
            self,
            classifiers=tuple(upload for upload in self.classifiers if upload.name not in reasons),
            decoders=tuple(upload for upload in self.decoders if upload.name not in reasons),
            quarantined=(*self.quarantined, *starmap(_turned_away, reasons.items())),
        )

    def noted(self, line: str) -> "Uploads":
        """The same, with something to say of them."""
        return replace(self, notes=(*self.notes, line))

    def require(self, needs: frozenset[str], method: str) -> None:
        """Whether there is an upload of every kind that a method needs, `classifiers` and `decoders`, with its counts.

        Raises:
            NothingLeftError: there is none, or no upload at all, and some were turned away.
            OneshotError: there is none, and nobody was turned away; or `label_counts` are needed and one has none.
        """
        if self.quarantined and not self.named():
            raise NothingLeftError(f"no upload is left: all were turned away: {self._reasons()}")
        there = {"classifiers": self.classifiers, "decoders": self.decoders}
        for kind in (kind for kind, sent in there.items() if kind in needs and not sent):
            if not self.quarantined:
                raise OneshotError(f"method={method}: needs {kind}, and nobody uploaded one; choose another method")
            raise NothingLeftError(f"method={method}: needs {kind}, and none is left; turned away: {self._reasons()}")
        untold = [upload.name for upload in self.classifiers if upload.label_counts is None]
        if "label_counts" in needs and untold:
            raise OneshotError(
                f"method={method}: needs label counts of every classifier (oneshot-fl pack --counts), and there are "
                f"none of {first_of(untold)}"
            )

    def _reasons(self) -> str:
        """Why the first was turned away, and how many more were."""
        return first_of([f"{one.name}: {one.reason}" for one in self.quarantined])

    def named(self) -> dict[str, ClassifierUpload | DecoderUpload]:
        """All uploads by the name of their client."""
        decoders = {upload.name: upload for upload in self.decoders}
        return {**{upload.name: upload for upload in self.classifiers}, **decoders}


def _turned_away(name: str, reason: object) -> Quarantined:
    """For a reason that a gate of somebody else's may give on several lines, or as a number."""
    return Quarantined(name, printable(str(reason)))


def _contents(upload: ClassifierUpload | DecoderUpload) -> str:
    """A hash, good in this process, over an upload's model, how it computes too, and what is said of its samples."""
    return fingerprint([structure(upload.model), _numbers(upload)])


def _numbers(upload: ClassifierUpload | DecoderUpload) -> list[Any]:
    """The same of its numbers alone, which are called alike in every process."""
    tensors = [*upload.model.parameters(), *upload.model.buffers()]
    counts = [] if upload.label_counts is None else [upload.label_counts]
    return [tensor_hash([*tensors, *counts]), upload.samples if isinstance(upload, ClassifierUpload) else None]


def _rekeyed(after: tuple[Upload, ...], untouched: frozenset[int], by: str) -> tuple[Upload, ...]:
    """The uploads, with a new key for each whose `id` is not among the untouched."""
    return tuple(
        upload
        if id(upload) in untouched
        else replace(upload, key=fingerprint([upload.key, place, by, _numbers(upload)]))
        for place, upload in enumerate(after)
    )


@dataclass(frozen=True)
class Recital:
    """What one client's model alone was inverted to."""

    images: Tensor
    """uint8 `[n, C, H, W]`"""
    labels: Tensor
    """What they were made for, `[n]`."""
    key: str
    """Fingerprint of everything that they depend on."""


@dataclass(frozen=True)
class Server:
    """What the server has when a method's parts are made; a part declares in `needs` what it takes besides `spec`.

    `classifiers`, `decoders`: at least one upload of that kind; `label_counts`: with the classifiers. `guidance`,
    `proxy`, `recitals`, `student`, `start`: see below.
    """

    spec: DataSpec
    uploads: Uploads
    guidance: Tensor | None = None
    """Guidance matrix U `[c, m]` of FedHydra's stratification; computed only where some part needs it."""
    proxy: Proxy | None = None
    """The server's own images."""
    recitals: tuple[Recital, ...] | None = None
    """One of every classifier; made only where some part needs them."""
    student: nn.Module | None = None
    """The global model, once there is one: as it is while it is taught, and finished for ensembles that are tested."""
    start: InitialModel | None = None
    """Where the clients of this communication round began; None in the first, where they began at random weights."""
    bank: ClientBank | None = None
    """The classifiers behind one call, run as the settings of the distillation say; None outside of one."""

    def lacks(self, needs: frozenset[str]) -> frozenset[str]:
        """Which of these needs nothing here meets, of those that are computed or uploaded on demand."""
        there = {
            "guidance": self.guidance,
            "recitals": self.recitals,
            "label_counts": self.uploads.label_counts,
            "student": self.student,
        }
        return frozenset(name for name, value in there.items() if name in needs and value is None)
