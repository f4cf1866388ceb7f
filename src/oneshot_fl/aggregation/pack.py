"""A client's model as an upload: made on the client's own machine, and read back as the server will."""

import pickle
from collections.abc import Collection, Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path, PurePosixPath
from typing import Any, TypeVar
from zipfile import BadZipFile, ZipFile, is_zipfile

import torch
from torch import Tensor, nn

from oneshot_fl.aggregation.found import check_name
from oneshot_fl.config.compose import choice, choices
from oneshot_fl.config.described import AUTOENCODERS, CLASSIFIERS, architectures, build, load
from oneshot_fl.config.dotted import called_by
from oneshot_fl.config.rules import taken_by
from oneshot_fl.config.tried import inputs_of, require_upload
from oneshot_fl.disk import make_folder, replacing
from oneshot_fl.errors import OneshotError, did_you_mean, named_line
from oneshot_fl.models.described import ModelDescription, as_metadata, described_by
from oneshot_fl.models.model_file import read_model, write_model
from oneshot_fl.process import say
from oneshot_fl.reporting.versions import versions

T = TypeVar("T")

ALONE = "save the state dict alone: torch.save(model.state_dict(), FILE)"
"""The remedy for files that hold more than tensors by their names."""
MOST_NAMED = 8
"""Keys of a dictionary that an error lists."""
SAME = 1e-4
"""Of the largest answer: what two builds of one model may differ by in the same weights."""


def pack(model: Path, told: Mapping[str, Any], *, target: str, arguments: Mapping[str, Any], out: Path) -> str:
    """Write an upload of a model and return its SHA-256.

    Args:
        model: a state dict, a whole module or a dictionary with a `state_dict`, as `torch.save` writes them. It is the
            client's own file: a whole module is unpickled, which runs its code. What all names begin with because a
            wrapper was saved (`module.`) is left out where only that makes the weights fit, and said.
        told: `kind`, `data`, `class_names` and, where they may be told, `samples` and `label_counts`.
        target: a name of conf/model, or the dotted name of a class or function that builds the model.
        arguments: of a class or function. `num_classes` is added where only that makes the weights fit.
        out: the file; what was there is replaced once the new one has been checked.

    Raises:
        OneshotError: the file is no model, does not fit what is told of it or, as a whole module, answers otherwise, a
            decoder comes without label counts, or `out` has another ending than uploads.
    """
    check_name(out)
    if told.get("kind") == "decoder" and told.get("label_counts") is None:
        raise OneshotError("--counts is missing: a decoder is asked for as many images as its client had of each class")
    saved = _loaded(model)
    state = _state(saved, model)
    foreign = {target} - CLASSIFIERS - AUTOENCODERS  # our own builders are called as the server calls them
    description, prefix = _fitting(state, told, target, arguments, foreign)
    if prefix:
        say(f"{model}: all of its tensors' names begin with {prefix}, which the model's do not; it is left out")
    state = _unwrapped(state)[prefix]
    expected = build(description, allow=foreign, source=str(model)).state_dict()
    for name, each in expected.items():
        if each.is_floating_point() and not state[name].is_floating_point():
            raise OneshotError(f"{model}: tensor {name} is {state[name].dtype}; save the model's ordinary weights")
    make_folder(out.parent)
    with replacing(out) as new:
        write_model(new, {name: tensor.to(expected[name].dtype) for name, tensor in state.items()}, description)
        file = read_model(new, source=str(out))
        known = architectures(description, allow=foreign, source=str(out))
        packed = load(file, allow=foreign)
        require_upload(packed, description, known, str(out), classes="--classes")
        given = inputs_of(description, known, 2, drawn=True)
        if isinstance(saved, nn.Module) and not _answer_alike(saved, prefix, packed, given):
            raise OneshotError(
                f"{model}: the module in it answers two images otherwise than what {target} makes of its weights"
                f"{_arguments_of(target)}; if another model is meant, {ALONE}"
            )
    return file.sha256


def state_of(path: Path) -> dict[str, Tensor]:
    """The tensors of a model that somebody saved on this machine.

    Raises:
        OneshotError: it cannot be read, or holds no model, or one of tensors that no upload has.
    """
    return _state(_loaded(path), path)


def _state(found: Any, path: Path) -> dict[str, Tensor]:
    """The tensors of what was loaded from this file."""
    found = found.state_dict() if isinstance(found, nn.Module) else found
    found = found.get("state_dict", found) if isinstance(found, Mapping) else found
    if not isinstance(found, Mapping) or not found:
        raise OneshotError(f"{path}: holds neither a state dict nor a module")
    if not all(isinstance(each, Tensor) for each in found.values()):
        raise OneshotError(f"{path}: holds a dictionary of more than tensors ({_keys(found)}); {ALONE}")
    for name, tensor in found.items():
        if what := _unusual(tensor):
            raise OneshotError(f"{path}: tensor {name} is {what}; save the model's ordinary weights")
    return {str(name): tensor for name, tensor in found.items()}


def _loaded(path: Path) -> Any:
    """What somebody saved: tensors alone are read without running any code.

    Raises:
        OneshotError: it cannot be read.
    """
    if not path.exists():
        raise OneshotError(f"{path}: there is no such file")
    if _is_torchscript(path):  # torch.load would warn, and then refuse it in words of its own
        raise OneshotError(f"{path}: is TorchScript, code and tensors in one; {ALONE}")
    try:
        try:
            return torch.load(path, map_location="cpu", weights_only=True)
        except pickle.UnpicklingError:  # more than tensors: a whole module, whose code this machine trusts
            return torch.load(path, map_location="cpu", weights_only=False)
    except Exception as error:  # unpickling raises whatever the pickled classes raise
        if _is_without_code(error):
            raise OneshotError(
                f"{path}: holds an object whose code is not found here ({named_line(error)}); {ALONE}"
            ) from error
        raise OneshotError(f"{path}: cannot be read as what torch.save writes ({named_line(error)})") from error


def _is_torchscript(path: Path) -> bool:
    """Whether it is an archive with what only scripted models have, their constants."""
    if not is_zipfile(path):
        return False
    try:
        with ZipFile(path) as archive:
            return any(PurePosixPath(name).name == "constants.pkl" for name in archive.namelist())
    except (BadZipFile, OSError):
        return False


def _is_without_code(error: Exception) -> bool:
    """Whether unpickling met a class that this program cannot import, as one of the script that saved it."""
    return isinstance(error, ImportError) or "Can't get attribute" in str(error)


def _keys(found: Mapping[Any, Any]) -> str:
    names = [str(key) for key in found]
    return ", ".join(names[:MOST_NAMED]) + ", ..." * (len(names) > MOST_NAMED)


def _unwrapped(state: Mapping[str, Tensor]) -> dict[str, dict[str, Tensor]]:
    """The state as it is under "", and under every prefix of whole parts that all of its names share without it.

    DataParallel, torch.compile and Lightning's modules put one before the names of the model that they wrap.
    """
    found = {"": dict(state)}
    parts = next(iter(state)).split(".")[:-1]
    for count in range(1, len(parts) + 1):
        prefix = "".join(f"{part}." for part in parts[:count])
        if not all(name.startswith(prefix) for name in state):
            break
        found[prefix] = _below(state, prefix)
    return found


def _unusual(tensor: Tensor) -> str | None:
    """What is unlike the weights that a file of uploads holds; None of those."""
    kinds = {
        "quantized": tensor.is_quantized,
        "without numbers (meta)": tensor.is_meta,
        "complex": tensor.is_complex(),
        f"{tensor.layout}": tensor.layout != torch.strided,
    }
    return next((what for what, so in kinds.items() if so), None)


def _fitting(
    state: Mapping[str, Tensor],
    told: Mapping[str, Any],
    target: str,
    arguments: Mapping[str, Any],
    allow: Collection[str],
) -> tuple[ModelDescription, str]:
    """The description whose model has the tensors of the state, with `num_classes` only where that is needed.

    Beside it is the prefix without which the state's names are the model's; empty where they are as they stand.
    """
    _described(told, {"name": target})  # a wrong kind is told as such: by it the name is looked up
    named = _named(target, arguments, "model" if told.get("kind") == "classifier" else "cvae")
    options: list[dict[str, Any]] = [named]
    if "_target_" in named and "num_classes" not in arguments:
        options.append({**named, "num_classes": len(told["class_names"])})
    given = {prefix: _shapes(each) for prefix, each in _unwrapped(state).items()}
    wrong: list[OneshotError] = []
    for option in options:
        description = _described(told, option)
        try:
            model = build(description, allow=allow, source=target)
        except OneshotError as error:
            wrong.append(error)
            continue
        expected = _shapes(model.state_dict())
        nearest = max(given, key=lambda prefix: _in_common(expected, given[prefix]))
        if expected == given[nearest]:
            return description, nearest
        if part := _part_with(expected, given[""]):
            wrong.insert(0, OneshotError(f"{target}: {_part_told(part, given[''])}"))
            continue
        differs = _difference(expected, given[nearest], len(told["class_names"]))
        without = f"without {nearest} " if nearest else ""
        # What was built says more than what was not, and most where it was built for the classes that were told.
        hint = "" if "--classes" in differs else _arguments_of(target)
        wrong.insert(0, OneshotError(f"{target}: its tensors are not those of the file {without}{differs}{hint}"))
    raise wrong[0]


def _named(target: str, arguments: Mapping[str, Any], group: str) -> dict[str, Any]:
    if "." in target:
        called_by(target, f"--model {target}")
        return {"_target_": target, **arguments}
    if target not in (known := choices(group)):
        given = f"{target}.CLASS" if target and find_spec(target) else f"my_module.{target}"
        raise OneshotError(
            f"--model {target}: is no choice of conf/{group}{did_you_mean(target, known) or ';'} a class of your own "
            f"is given with its module, --model {given}, other names are {', '.join(known)}"
        )
    if arguments:
        builder = choice(group, target).get("_target_", "PACKAGE.FUNCTION")
        raise OneshotError(
            f"--arg {next(iter(arguments))}: the name {target} stands alone in a file; give what builds it, --model "
            f"{builder}, and all of its arguments"
        )
    return {"name": target}


def _arguments_of(target: str) -> str:
    """What to say of a model whose tensors are others, where it is built by arguments."""
    if "." not in target:
        return ""
    taken = [name for name in taken_by(called_by(target, target)) if name != "spec"]
    told = f"; --arg NAME=VALUE tells what it is built with: {', '.join(taken)}" if taken else ""
    return f"{told}; where it was changed after that, give a function of your own that does both, --model MODULE.NAME"


@torch.no_grad()
def _answer_alike(saved: nn.Module, prefix: str, packed: nn.Module, given: Sequence[Tensor]) -> bool:
    """Whether a saved module, without its wrapper, answers as the packed model, or cannot be asked or compared.

    An activation that an argument chooses is in none of the tensors. Whoever packs a model that answers in another
    shape, as logits alone of a module that also returns features, does so on purpose.
    """
    try:
        wanted = saved.get_submodule(prefix[:-1]).float().eval()(*[each.clone() for each in given])
    except Exception:  # it may need a GPU, or what was there only in training: that makes its weights no worse
        return True
    answer = packed(*given)
    if not isinstance(wanted, Tensor) or wanted.shape != answer.shape:
        return True
    tolerance = SAME * wanted.nan_to_num().abs().max().item()
    return torch.allclose(answer, wanted.float(), rtol=0, atol=tolerance, equal_nan=True)


def _described(told: Mapping[str, Any], architecture: Mapping[str, Any]) -> ModelDescription:
    """Checked as if somebody else had written it."""
    try:
        metadata = as_metadata({**told, "architectures": [dict(architecture)], "versions": versions()})
    except ValueError as error:
        raise OneshotError("pack: what is told of the model holds a number that is not finite") from error
    return described_by(metadata, "pack")


def _shapes(state: Mapping[str, Tensor]) -> dict[str, tuple[int, ...]]:
    return {name: tuple(tensor.shape) for name, tensor in state.items()}


def _in_common(expected: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]]) -> int:
    """How many names both have."""
    return len(expected.keys() & given.keys())


def _part_with(expected: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]]) -> str:
    """What the names of the expected tensors begin with among others, as in a module that has a loss's weights too."""
    first = next(iter(expected), "")
    starts = [name.removesuffix(first) for name in given if name.endswith(f".{first}")]
    return next((start for start in starts if expected == _below(given, start)), "")


def _below(given: Mapping[str, T], start: str) -> dict[str, T]:
    """What is named behind a prefix, without it."""
    return {name.removeprefix(start): each for name, each in given.items() if name.startswith(start)}


def _part_told(part: str, given: Mapping[str, tuple[int, ...]]) -> str:
    other = next(name for name in given if not name.startswith(part))
    return (
        f"the file has its tensors below {part}, beside others as {other}; save that part alone: "
        f"torch.save(whole.{part[:-1]}.state_dict(), FILE)"
    )


def _difference(expected: Mapping[str, tuple[int, ...]], given: Mapping[str, tuple[int, ...]], classes: int) -> str:
    """The first tensor that differs, and where only the number of answers does, the option that tells it."""
    names = [name for name in [*expected, *given] if expected.get(name) != given.get(name)]
    instead = next((f", but {name}" for name in given if names[0] not in given and name not in expected), "")
    found = f"{given.get(names[0], 'none')}{instead}"
    first = f"({names[0]}: expected {expected.get(names[0], 'none')}, the file has {found})"
    answers = {_answers(expected.get(name, ()), given.get(name, ()), classes) for name in names}
    if len(answers) > 1 or None in answers:
        return first
    return f"{first}; --classes names {classes}, the model answers {answers.pop()}"


def _answers(expected: tuple[int, ...], given: tuple[int, ...], classes: int) -> int | None:
    """How many classes the given tensor answers, if it differs from the expected one in nothing else."""
    return given[0] if given and expected == (classes, *given[1:]) else None
