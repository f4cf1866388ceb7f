"""What a model file says of its model, in the metadata of a safetensors file: uploads and server models alike.

One JSON text under the key `oneshot_fl`. Whatever it says was written by somebody else: every value is checked, and
nothing that it names is imported here (`config.described` builds).
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

from oneshot_fl.data.class_names import ClassNames, ShortText, class_name
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.decode import USUAL, Byte, Tones
from oneshot_fl.errors import OneshotError
from oneshot_fl.fits import problem, shown
from oneshot_fl.values import Channels, Count, CountOrZero, Deviations, Means, Positive, Rule, Side

FORMAT = 1
"""The version of this format; a reader refuses any other."""
KEY = "oneshot_fl"
"""Of the metadata."""
LONGEST = 1_000_000
"""Characters of the JSON text."""
MOST_ARCHITECTURES = 20
MOST_VALUES, DEEPEST = 200, 3
"""Values inside one architecture, and how deep they are nested."""

Kind = Literal["classifier", "decoder"]
"""Images to logits, or the decoder of a conditional VAE."""
Accuracy = Annotated[float, Rule("a number between 0 and 1", lambda value: 0 <= value <= 1)]
Architectures = Annotated[
    list[dict[str, Any]],
    Rule(f"a list of 1 to {MOST_ARCHITECTURES} architectures", lambda v: 1 <= len(v) <= MOST_ARCHITECTURES),
]
TABLE: dict[str, Any] = {
    "format": int,
    "kind": Kind,
    "architectures": Architectures,
    "data": dict[str, Any],
    "class_names": ClassNames,
    "number": CountOrZero | None,
    "samples": Count | None,
    "label_counts": list[CountOrZero] | None,
    "versions": dict[ShortText, ShortText],
    "method": ShortText | None,
    "accuracy": Accuracy | None,
    "temperature": Positive | None,
}
DATA: dict[str, Any] = {
    "channels": Channels,
    "size": Side,
    "mean": Means,
    "std": Deviations,
    "max_value": Positive,
    "background": Byte,
}
OPTIONAL = frozenset({"number", "samples", "label_counts", "versions", "method", "accuracy", "temperature"})
DATA_OPTIONAL = frozenset({"max_value", "background"})


@dataclass(frozen=True)
class ModelDescription:
    """What a model file says of its model."""

    kind: Kind
    architectures: tuple[Mapping[str, Any], ...]
    """One, or several whose models vote (`models.per_architecture`); a decoder has one. Each holds what a file of
    conf/model holds: `name`, `_target_` and the target's plain arguments; or a `name` of conf/model alone."""
    spec: DataSpec
    class_names: tuple[str, ...]
    """In the order of the logits."""
    number: int | None = None
    """Of the client in its federation, from 0."""
    samples: int | None = None
    """That the model was trained on."""
    label_counts: tuple[int, ...] | None = None
    """How many samples of every class those were, `[c]`."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """Of the programs that made it, by their names."""
    method: str | None = None
    """Of a server model."""
    accuracy: float | None = None
    """Of a server model on the test set, a fraction."""
    temperature: float | None = None
    """What logits are divided by before the softmax; None: not calibrated."""
    tones: Tones = USUAL
    """Of the image files that the model was trained on."""

    def metadata(self) -> dict[str, str]:
        """What `described_by` reads, for a safetensors file; names of classes as `class_name` writes them."""
        told = {
            "kind": self.kind,
            "architectures": [dict(one) for one in self.architectures],
            "data": self._data(),
            "class_names": list(map(class_name, self.class_names)),
            "number": self.number,
            "samples": self.samples,
            "label_counts": None if self.label_counts is None else list(self.label_counts),
            "versions": dict(self.versions),
            "method": self.method,
            "accuracy": self.accuracy,
            "temperature": self.temperature,
        }
        return as_metadata(told)

    def _data(self) -> dict[str, Any]:
        """What its images are; of the tones only what is not usual."""
        spec, usual = self.spec, vars(USUAL)
        needed = {"channels": spec.channels, "size": spec.size, "mean": list(spec.mean), "std": list(spec.std)}
        return needed | {name: value for name, value in vars(self.tones).items() if value != usual[name]}


def as_metadata(told: Mapping[str, Any]) -> dict[str, str]:
    """Plain values of this format, those that are None left out, as the metadata of a file."""
    kept = {name: value for name, value in told.items() if value is not None}
    return {KEY: json.dumps({"format": FORMAT, **kept}, allow_nan=False)}


def described_by(metadata: Mapping[str, str], source: str) -> ModelDescription:
    """What the metadata of a file say.

    Args:
        metadata: of a safetensors file.
        source: what an error calls it.

    Raises:
        OneshotError: nothing is said under our key, or something there is not what it should be; names the first.
    """
    told = _parsed(metadata, source)
    _check_table(told, TABLE, OPTIONAL, source, "")
    _check_table(told["data"], DATA, DATA_OPTIONAL, source, "data.")
    for number, architecture in enumerate(told["architectures"]):
        _check_architecture(architecture, source, f"architectures[{number}]")
    if told["kind"] == "decoder" and len(told["architectures"]) > 1:
        raise OneshotError(f"{source}: architectures: a decoder has one, not {len(told['architectures'])}")
    names, counts, samples = told["class_names"], told.get("label_counts"), told.get("samples")
    if other := [name for name in names if name != class_name(name)]:
        raise OneshotError(
            f"{source}: class_names: {shown(ascii(other[0]))} must be written {shown(ascii(class_name(other[0])))}, "
            "without white space around it and in Unicode's form NFC"
        )
    if counts is not None and (len(counts) != len(names) or not sum(counts) or samples not in (None, sum(counts))):
        together = "" if samples is None else f", and make up samples={samples}"
        raise OneshotError(
            f"{source}: label_counts={shown(counts)}: must be one number for each of {len(names)} class_names, not all "
            f"0{together}"
        )
    return ModelDescription(
        kind=told["kind"],
        architectures=tuple(told["architectures"]),
        spec=_spec(told["data"], len(names), source),
        class_names=tuple(names),
        number=told.get("number"),
        samples=sum(counts) if samples is None and counts else samples,
        label_counts=None if counts is None else tuple(counts),
        versions=told.get("versions") or {},
        **{name: told.get(name) for name in ("method", "accuracy", "temperature")},
        tones=Tones.of(told["data"]),
    )


def _parsed(metadata: Mapping[str, str], source: str) -> dict[str, Any]:
    text = metadata.get(KEY)
    if not isinstance(text, str):
        raise OneshotError(
            f"{source}: says nothing of its model (no metadata under {KEY!r}); make it with `oneshot-fl pack`"
        )
    if len(text) > LONGEST:
        raise OneshotError(
            f"{source}: what it says of its model has {len(text):,} characters, more than {LONGEST:,}; names of "
            "classes take most of them"
        )
    try:
        told = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise OneshotError(f"{source}: the metadata under {KEY!r} are no JSON") from error
    if not isinstance(told, dict):
        raise OneshotError(f"{source}: the metadata under {KEY!r} must be a JSON object")
    if told.get("format") != FORMAT:
        raise OneshotError(
            f"{source}: format={shown(told.get('format'))}: this version of oneshot_fl reads format {FORMAT}"
        )
    return told


def _check_table(
    told: Mapping[str, Any], table: Mapping[str, Any], optional: frozenset[str], source: str, prefix: str
) -> None:
    for name, hint in table.items():
        if name not in told and name not in optional:
            raise OneshotError(f"{source}: {prefix}{name} is missing")
        if name in told and (wanted := problem(told[name], hint)):
            raise OneshotError(f"{source}: {prefix}{name}={shown(told[name])}: must be {wanted}")
    if unknown := sorted(told.keys() - table.keys()):
        raise OneshotError(f"{source}: {prefix}{shown(unknown[0])} is no part of format {FORMAT}")


def _check_architecture(told: Mapping[str, Any], source: str, key: str) -> None:
    """Whether it has a name or a target, and its arguments are plain and few."""
    target = told.get("_target_")
    if problem(told.get("name", target), ShortText) or problem(target, ShortText | None):
        raise OneshotError(f"{source}: {key} needs a name of conf/model (a decoder's of conf/cvae), or a _target_")
    if target is None and len(told) > 1:
        raise OneshotError(f"{source}: {key} has arguments but no _target_; give a name alone, or the _target_")
    arguments = {name: value for name, value in told.items() if name != "_target_"}
    if _values(arguments, DEEPEST) > MOST_VALUES:
        raise OneshotError(
            f"{source}: {key}: arguments must be at most {MOST_VALUES} numbers, switches and short texts, in lists and "
            f"dictionaries nested at most {DEEPEST} deep, whose names are plain words, _target_ none of them"
        )


def _values(node: Any, depth: int) -> int:
    """How many values there are inside; more than may be where one is not plain."""
    if isinstance(node, dict | list) and depth == 0:
        return MOST_VALUES + 1
    if isinstance(node, dict):
        plain = all(
            problem(name, ShortText) is None and name.isidentifier() and not name.startswith("_") for name in node
        )
        return sum(_values(value, depth - 1) for value in node.values()) if plain else MOST_VALUES + 1
    if isinstance(node, list):
        return 1 + sum(_values(value, depth - 1) for value in node)
    return 1 if problem(node, bool | int | float | ShortText | None) is None else MOST_VALUES + 1


def _spec(data: Mapping[str, Any], classes: int, source: str) -> DataSpec:
    """One number for each channel, where there is only one for all."""
    channels = data["channels"]
    for name in ("mean", "std"):
        if len(data[name]) not in (1, channels):
            wanted = "1 number" if channels == 1 else f"1 or {channels} numbers"
            raise OneshotError(f"{source}: data.{name}={shown(data[name])}: must be {wanted}")
    mean, std = (tuple(map(float, data[name])) * (channels // len(data[name])) for name in ("mean", "std"))
    return DataSpec(channels, data["size"], classes, mean, std)
