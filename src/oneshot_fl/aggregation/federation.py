"""From the files of strangers to `Uploads`: loaded, tried, and brought to the classes and images of all."""

from collections import Counter, defaultdict
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor, nn

from oneshot_fl.aggregation.found import Found
from oneshot_fl.aggregation.room import crowding
from oneshot_fl.artifacts import fingerprint, tensor_hash
from oneshot_fl.config.described import architectures, load
from oneshot_fl.config.serving import OPEN, Entrance
from oneshot_fl.config.tried import latent_of, require_upload
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.decode import Tones
from oneshot_fl.errors import NothingLeftError, OneshotError, did_you_mean
from oneshot_fl.models.aligned import AlignedClassifier, AlignedDecoder
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.described import Kind, ModelDescription
from oneshot_fl.parts.slots import UploadStep, step_for
from oneshot_fl.parts.uploads import ClassifierUpload, DecoderUpload, Quarantined, Uploads
from oneshot_fl.recipe import Recipe, described, digest_of

T = TypeVar("T", bound=Hashable)
TOLD = 5
"""Reasons, and uploads with the same one, that a line has room for."""


@dataclass(frozen=True)
class Member:
    """One upload that was read and built."""

    name: str
    description: ModelDescription
    architectures: tuple[Architecture, ...]
    model: nn.Module
    sha256: str
    """Of its file."""


@dataclass(frozen=True)
class Federation:
    """Everything that was uploaded and is used, as the server works on it."""

    spec: DataSpec
    tones: Tones
    class_names: tuple[str, ...]
    members: tuple[Member, ...]
    uploads: Uploads
    notes: tuple[str, ...] = ()
    """On what was allowed and no upload names."""


def federation_of(found: Iterable[Found], *, allow: Collection[str] = (), entrance: Entrance = OPEN) -> Federation:
    """Read and build every file, and try it; what is wrong goes to `uploads.quarantined`, the rest is aligned.

    The federation's images are those that most uploads take (the first, where equally many do); its classes are the
    union of all, in the order in which they are first named. An upload that does not run, or that the gate turns away,
    has no say in any of this: the federation is built anew of the others, until the gate lets all of them through.

    Args:
        found: the files.
        allow: architectures that are imported although they are not ours.
        entrance: who is let in.

    Raises:
        NothingLeftError: no file is an upload that can be used.
        OneshotError: all uploads together know one class.
    """
    named = set[str]()
    read, unusable = _read(found, allow, entrance.unused, named)
    notes = _never_named(allow, named)
    try:
        return replace(_let_in(read, unusable, entrance.gate), notes=notes)
    except NothingLeftError as error:
        raise NothingLeftError("; ".join([*notes, str(error)])) from error


def _let_in(read: Sequence[Member], unreadable: Sequence[Quarantined], gate: Recipe[UploadStep] | None) -> Federation:
    """The federation of those that run and that the gate lets through."""
    members, unusable, turned_away = list(read), list(unreadable), list[Quarantined]()
    tried = set[str]()
    while True:
        members, failed = _tried(members, tried)
        unusable += failed
        federation = _built(members, unusable, turned_away)
        more = [] if gate is None else _turned_away(gate, federation)
        if not more:
            return federation
        turned_away += more
        members = _without(members, more)


def _read(
    found: Iterable[Found], allow: Collection[str], unused: Mapping[Kind, str], named: set[str]
) -> tuple[list[Member], list[Quarantined]]:
    """The members, and why others are none; what their architectures are called is added to `named`."""
    members: list[Member] = []
    unreadable: list[Quarantined] = []
    for each in found:
        try:
            members.append(_member(each, allow, unused, members, named))
        except OneshotError as error:
            unreadable.append(_refused(each.name, error))
    return members, unreadable


def _never_named(allow: Collection[str], named: Collection[str]) -> tuple[str, ...]:
    """What to say of each name that was allowed and that no upload has."""
    names = {allow: None} if isinstance(allow, str) else dict.fromkeys(allow)
    return tuple(
        f"--allow {name}: no upload names it{did_you_mean(name, named)}" for name in names if name not in named
    )


def _tried(read: Sequence[Member], before: set[str]) -> tuple[list[Member], list[Quarantined]]:
    """Those of `read` that are left once all whose images most of them take have been tried, and why others are not.

    Those of other images are not tried: what that takes grows with the side that a file claims, whatever its size.

    Args:
        read: the members.
        before: the names of those that were tried before; those that are tried now are added.
    """
    left, failed = list(read), list[Quarantined]()
    while new := [one for one in _of_most_images(left) if one.name not in before]:
        before.update(one.name for one in new)
        wrong = [reason for one in new if (reason := _failing(one))]
        failed += wrong
        left = _without(left, wrong)
    return left, failed


def _failing(member: Member) -> Quarantined | None:
    try:
        require_upload(member.model, member.description, member.architectures, member.name)
    except OneshotError as error:
        return _refused(member.name, error)
    return None


def _refused(name: str, error: OneshotError) -> Quarantined:
    return Quarantined(name, str(error).removeprefix(f"{name}: "))


def _without(members: Sequence[Member], quarantined: Sequence[Quarantined]) -> list[Member]:
    names = {one.name for one in quarantined}
    return [one for one in members if one.name not in names]


def _built(read: Sequence[Member], unusable: Sequence[Quarantined], turned_away: Sequence[Quarantined]) -> Federation:
    """The federation of those of `read` whose images most of them take and whose classes one model can name."""
    of_most = _of_most_images(read)
    named = {one.name: one.description.class_names for one in of_most}
    crowded = [Quarantined(name, why) for name, why in crowding(named).items()]
    members = _without(of_most, crowded)
    if not members:
        raise _nothing_left([*unusable, *turned_away, *crowded])
    size = _images_of(members[0])
    others = [_of_other_images(one, size) for one in read if _images_of(one) != size]
    names = tuple(dict.fromkeys(name for one in members for name in one.description.class_names))
    if len(names) < 2:
        raise OneshotError(
            f"uploads: all of them know one class, {names[0]}; add some that know another to tell it from"
        )
    spec = _common_spec(members, len(names))
    tones = _common_tones([one.description.tones for one in members])
    uploads = _uploads(members, spec, names, [*unusable, *others, *crowded, *turned_away])
    return Federation(spec, tones, names, tuple(members), uploads)


def _nothing_left(quarantined: Sequence[Quarantined]) -> NothingLeftError:
    alike = defaultdict[str, list[str]](list)
    for one in quarantined:
        alike[one.reason].append(one.name)
    reasons = [f"{_some_of(names)}: {reason}" for reason, names in alike.items()]
    more = f"; and {len(reasons) - TOLD} more" * (len(reasons) > TOLD)
    return NothingLeftError(f"no upload can be used ({'; '.join(reasons[:TOLD])}{more})")


def _some_of(names: Sequence[str]) -> str:
    return ", ".join(names[:TOLD]) + f" and {len(names) - TOLD} more" * (len(names) > TOLD)


def _turned_away(gate: Recipe[UploadStep], federation: Federation) -> list[Quarantined]:
    """Whom the gate turns away of a federation's uploads."""
    uploads = federation.uploads
    after = uploads.left_by(step_for(gate, federation.spec), f"gate={gate.name}")
    return list(after.quarantined[len(uploads.quarantined) :])


def _member(
    found: Found, allow: Collection[str], unused: Mapping[Kind, str], before: Sequence[Member], named: set[str]
) -> Member:
    file = found.read()
    named.update(str(one["_target_"]) for one in file.description.architectures if "_target_" in one)
    if same := [one.name for one in before if one.sha256 == file.sha256]:
        raise OneshotError(f"{found.name}: is the same file as {same[0]}")
    told = file.description
    if told.kind in unused:
        raise OneshotError(f"{found.name}: {unused[told.kind]}")
    if told.kind == "decoder" and told.label_counts is None:
        raise OneshotError(f"{found.name}: a decoder needs label_counts beside it")
    known = architectures(told, allow=allow, source=found.name)
    return Member(found.name, told, known, load(file, allow=allow), file.sha256)


def _of_most_images(members: Sequence[Member]) -> list[Member]:
    """Those whose images most of them take."""
    size = _most_common([_images_of(one) for one in members]) if members else None
    return [one for one in members if _images_of(one) == size]


def _images_of(member: Member) -> tuple[int, int]:
    return member.description.spec.channels, member.description.spec.size


def _of_other_images(member: Member, size: tuple[int, int]) -> Quarantined:
    (channels, side), (most, pixels) = _images_of(member), size
    return Quarantined(
        member.name, f"takes {channels}x{side}x{side} images, and most of the others {most}x{pixels}x{pixels}"
    )


def _most_common(values: Sequence[T]) -> T:
    """The first of those that are there most often."""
    return Counter(values).most_common(1)[0][0]


def _common_spec(members: Sequence[Member], classes: int) -> DataSpec:
    """Normalised as most classifiers want their images: decoders draw pixels, whatever mean their files tell."""
    asking = [one for one in members if one.description.kind == "classifier"] or members
    mean, std = _most_common([(one.description.spec.mean, one.description.spec.std) for one in asking])
    return DataSpec(*_images_of(members[0]), classes, mean, std)


def _common_tones(all_tones: Sequence[Tones]) -> Tones:
    """White only where nobody says otherwise: an image of 12 bits is none of 16."""
    white = {tones.max_value for tones in all_tones} - {None}
    return Tones(white.pop() if len(white) == 1 else None, _most_common([tones.background for tones in all_tones]))


def _uploads(
    members: Sequence[Member], spec: DataSpec, names: tuple[str, ...], quarantined: Sequence[Quarantined]
) -> Uploads:
    classifiers = [one for one in members if one.description.kind == "classifier"]
    decoders = [one for one in members if one.description.kind == "decoder"]
    sized = all(one.description.samples is not None for one in classifiers)
    numbers = Counter(one.description.number for one in classifiers)
    return Uploads(
        tuple(
            _classifier(one, spec, names, sized=sized, alone=numbers[one.description.number] == 1)
            for one in classifiers
        ),
        tuple(_decoder(one, spec, names) for one in decoders),
        tuple(quarantined),
    )


def _classifier(
    member: Member, spec: DataSpec, names: tuple[str, ...], *, sized: bool, alone: bool
) -> ClassifierUpload:
    """An upload as it is where nothing needs aligning; where not all tell their size, all weigh alike.

    Args:
        sized: whether all of them do.
        alone: whether nobody else tells this client's number, so that it says what is drawn for it alone.
    """
    told, positions = member.description, _positions(member, names)
    alike = told.class_names == names and told.spec == spec
    model = member.model if alike else AlignedClassifier(member.model, told.spec, spec, positions)
    samples = told.samples if sized and told.samples else 1
    key, counts = _key(member, spec, names, samples), _counts(told, positions)
    draws = told.number if told.number is not None and alone else member.name  # the number makes the model of a run
    return ClassifierUpload(model.eval(), samples, key, counts, member.name, _unknown(positions), draws)


def _decoder(member: Member, spec: DataSpec, names: tuple[str, ...]) -> DecoderUpload:
    told, positions = member.description, _positions(member, names)
    counts, architecture = _counts(told, positions), member.architectures[0]
    if counts is None:
        raise ValueError("a decoder without label counts has been refused")
    model = member.model if told.class_names == names else AlignedDecoder(member.model, positions)
    return DecoderUpload(
        model.eval(),
        latent_of(architecture, told.spec),
        counts,
        _key(member, spec, names, int(counts.sum())),
        partial(architecture.build, spec),  # type: ignore[arg-type]  # a `CVAE`
        member.name,
        _unknown(positions),
    )


def _positions(member: Member, names: tuple[str, ...]) -> list[int | None]:
    own = {name: place for place, name in enumerate(member.description.class_names)}
    return [own.get(name) for name in names]


def _unknown(positions: Sequence[int | None]) -> tuple[int, ...]:
    return tuple(each for each, place in enumerate(positions) if place is None)


def _counts(told: ModelDescription, positions: Sequence[int | None]) -> Tensor | None:
    if told.label_counts is None:
        return None
    return torch.tensor([0 if place is None else told.label_counts[place] for place in positions])


@torch.no_grad()
def _answers(member: Member) -> str | None:
    """What somebody else's classifier says to two images: its code may also read what no key knows, as a file."""
    told = member.description
    if told.kind != "classifier":
        return None
    images = torch.linspace(-1, 1, 2 * told.spec.channels * told.spec.size**2)
    return tensor_hash([member.model(images.view(2, told.spec.channels, told.spec.size, told.spec.size))])


def _key(member: Member, spec: DataSpec, names: tuple[str, ...], samples: int) -> str:
    """Of the file's content, of what the federation makes of it, and of the code of both."""
    inputs = {
        "file": member.sha256,
        "answers": _answers(member) if any(one.is_foreign for one in member.architectures) else None,
        "architectures": described(member.architectures),
        "spec": described(spec),
        "class_names": list(names),
        "samples": samples,
    }
    return fingerprint({**inputs, "code": digest_of(AlignedClassifier.__module__, inputs)})
