"""What a value must be, read from the signature that takes it: `Literal`, `None`, lists, and the rules of `values`.

Nothing is built here: a node's `_target_` is imported, its settings are bound to the signature, and every value is
held against its parameter's type. Only optimisers, which are other people's, are also tried on one number.
"""

import collections.abc
import dataclasses
import inspect
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Annotated, Any, Literal, NamedTuple, get_args, get_origin, get_type_hints

from oneshot_fl.config.compose import choices
from oneshot_fl.config.dotted import called_by
from oneshot_fl.config.keys import all_keys
from oneshot_fl.errors import OneshotError, did_you_mean, one_line
from oneshot_fl.fits import problem, shown
from oneshot_fl.values import BelowOne, LearningRate, Name, NotNegative

LABELS: dict[str, Any] = {"_target_": str, "_partial_": bool, "name": Name}
"""Keys of a node that are not handed to its target, but for the `name` of a logger."""
MISSING = "???"
STEPS = 20
"""Of an optimiser that is tried: some, as RAdam and AdaShift, move nothing in their first ten."""
OPTIMISER: dict[str, Any] = {
    "lr": LearningRate,
    "momentum": BelowOne,
    "dampening": BelowOne,
    "alpha": BelowOne,
    "rho": BelowOne,
    "betas": tuple[BelowOne, BelowOne],
    "weight_decay": NotNegative,
    "eps": NotNegative,
    "maximize": Literal[False],
}
"""The numbers of optimisers that state no more than `float`; `maximize` would train away from the goal."""


class Parameter(NamedTuple):
    """One thing that a target or a group takes."""

    hint: Any
    required: bool
    default: Any = inspect.Parameter.empty


def check_call(
    key: str,
    settings: Any,
    *,
    given: Iterable[str] = (),
    first: int = 0,
    known: Mapping[str, Any] | None = None,
    typed: str | None = None,
    labelled: bool = True,
) -> None:
    """Whether a node's `_target_` can be called with its settings and with what the program itself passes.

    Args:
        key: the node's dotted key, for instance `method.objective.adv`.
        settings: the node, resolved, as plain containers.
        given: names that the program passes where the target takes them (`spec`, `labels`).
        first: how many leading parameters it passes by position, whatever their names.
        known: hints for parameters of which the target says no more than a plain type.
        typed: what stands before a setting's name where a user types it; by default `key` and a dot.
        labelled: whether its `name` is what it is called, and not a setting as a logger's is.

    Raises:
        OneshotError: naming the first key that is wrong, and what would be right.
    """
    target = target_of(key, settings)
    name = str(settings["_target_"])
    parameters, extra = _parameters(target, first=first)
    if parameters is None:
        raise OneshotError(f"{key}._target_={name}: takes nothing, and the program passes something to it")
    if known:
        parameters = {own: _sharpened(own, each, known) for own, each in parameters.items()}
    for label, hint in LABELS.items():
        if label in settings:
            check_value(f"{key}.{label}", settings[label], hint)
    if labelled and "name" in settings and "name" in parameters:
        raise OneshotError(
            f"{key}.name={shown(settings['name'])}: is what it is called and goes no further, but {name} takes a "
            "`name` too; call that parameter otherwise, and set it by that"
        )
    labels = LABELS if labelled else LABELS.keys() - {"name"}
    own = {each: value for each, value in settings.items() if each not in labels}
    _check(key, own, parameters, given=frozenset(given), who=name.rpartition(".")[2], extra=extra, typed=typed)


def not_taken(key: str, settings: Mapping[str, Any]) -> list[str]:
    """The settings of a node that its target does not take.

    Raises:
        OneshotError: there is no such target.
    """
    parameters, extra = _parameters(target_of(key, settings), first=0)
    return [] if extra else [name for name in settings if name not in (*LABELS, *(parameters or ()))]


def check_takes_spec(group: str, node: Mapping[str, Any]) -> None:
    """Whether an architecture can be built for the images and classes that only a run finds.

    Raises:
        OneshotError: it does not take them, or there is no such target.
    """
    if "spec" in not_taken(group, {**node, "spec": None}):
        raise OneshotError(
            f"{group}._target_={node['_target_']}: does not take `spec`, and each choice of conf/{group} is built "
            "from a DataSpec; write a function build(spec) that makes yours from it and name that (docs/howto/model.md)"
        )


def parameters_of(cls: type) -> dict[str, Parameter]:
    """The fields of a dataclass that its call takes."""
    hints = get_type_hints(cls, include_extras=True)
    return {
        field.name: Parameter(hints[field.name], *_default_of(field)) for field in dataclasses.fields(cls) if field.init
    }


def check_table(key: str, settings: Any, table: Mapping[str, Any]) -> None:
    """Whether settings without a `_target_` fit a table of their names with a type hint, or a `Parameter`, each.

    The dotted key of the whole configuration is "".

    Raises:
        OneshotError: naming the first key that is wrong, and what would be right.
    """
    check_group(key, settings)
    parameters = {
        name: hint if isinstance(hint, Parameter) else Parameter(hint, required=True) for name, hint in table.items()
    }
    _check(key, settings, parameters, given=frozenset(), who=key or "the configuration", extra=False)


def check_group(key: str, settings: Any) -> None:
    """Whether there are settings at all, with text as their names.

    Raises:
        OneshotError: there is one value, or none, where a group of settings belongs.
    """
    if not isinstance(settings, Mapping):
        group = key.replace(".", "/")
        example = settings if isinstance(settings, str) and settings.isidentifier() else "NAME"
        another = f"to choose another one write {group}={example}" if choices(group) else f"set {_keys_of(key)}"
        raise OneshotError(f"{key}={shown(settings)}: {key} is a group of settings, not a value; {another}")
    if other := [name for name in settings if not isinstance(name, str)]:
        raise OneshotError(f"{key}: {shown(other[0])} is no name of a key; names are text")


def _keys_of(key: str) -> str:
    """The keys right inside a group that has no choices."""
    inside = [each for each in all_keys() if each.rpartition(".")[0] == key]
    return f"its keys: {', '.join(inside)}" if inside else "its keys"


def check_optimizer(key: str, settings: Any) -> None:
    """Whether an optimiser's node can be called on parameters; steps on two single numbers show what torch says.

    Raises:
        OneshotError: naming the key that is wrong.
    """
    check_call(key, settings, first=1, known=OPTIMISER)
    import torch

    target = target_of(key, settings)
    options = {name: value for name, value in settings.items() if name not in LABELS}
    parameters = [torch.nn.Parameter(torch.zeros(1)) for _ in range(2)]
    try:
        optimizer = target(parameters, **options)
        for _ in range(STEPS):
            for parameter in parameters:
                parameter.grad = torch.ones(1)
            optimizer.step(closure=None)
    except Exception as error:  # another package's: whatever it raises is its answer to these settings
        raise OneshotError(f"{key}: {_last(settings)} does not work with these settings ({one_line(error)})") from error
    if not isinstance(optimizer, torch.optim.Optimizer):
        raise OneshotError(
            f"{key}._target_={settings['_target_']}: is no torch optimiser, for instance torch.optim.SGD"
        )
    if not key.startswith("clients.") and any("lr" not in group for group in optimizer.param_groups):
        raise OneshotError(f"{key}: {_last(settings)} keeps no `lr`, which schedules multiply; call its rate that")
    if not all(map(bool, parameters)):
        raise OneshotError(
            f"{key}: {_last(settings)} leaves a parameter as it is, step by step; let it step all that it is given"
        )


def target_of(key: str, settings: Any) -> Callable[..., Any]:
    """The class or function that a node names.

    Raises:
        OneshotError: there is none, it cannot be imported, or it cannot be called.
    """
    check_group(key, settings)
    name = settings.get("_target_")
    return called_by(name, f"{key}._target_={shown(name)}")


def taken_by(target: Callable[..., Any]) -> list[str]:
    """The names of the arguments that a class or function lists; of what it takes besides (`**options`) none is."""
    return list(_parameters(target, first=0)[0] or ())


def _parameters(target: Callable[..., Any], *, first: int) -> tuple[dict[str, Parameter] | None, bool]:
    """What a target takes by name behind its `first` parameters, and whether it takes any other name too.

    None where it has no place for the first ones.
    """
    try:
        signature = inspect.signature(target)
    except ValueError:  # built in, without a signature
        return {}, True
    by_position = [each for each in signature.parameters.values() if each.kind is not each.KEYWORD_ONLY]
    if first and (not by_position or by_position[0].kind is by_position[0].VAR_KEYWORD):
        return None, False
    hints = _hints(target)
    named = [each for each in signature.parameters.values() if each.kind is not each.VAR_POSITIONAL]
    usable = {
        each.name: Parameter(hints.get(each.name, Any), each.default is each.empty, each.default)
        for each in named[first:]
        if each.kind in (each.POSITIONAL_OR_KEYWORD, each.KEYWORD_ONLY)
    }
    return usable, any(each.kind is each.VAR_KEYWORD for each in named)


def _hints(target: Any) -> dict[str, Any]:
    """The type hints of a function, or of what makes a class's objects; none where they cannot be resolved."""
    source = inspect.unwrap(target.__init__ if isinstance(target, type) else target)  # type: ignore[misc]
    try:
        return get_type_hints(source, include_extras=True)
    except (NameError, AttributeError, TypeError):
        return {}


def _default_of(field: "dataclasses.Field[Any]") -> tuple[bool, Any]:
    if field.default_factory is not dataclasses.MISSING:
        return False, field.default_factory()
    return field.default is dataclasses.MISSING, field.default


def _sharpened(name: str, parameter: Parameter, known: Mapping[str, Any]) -> Parameter:
    if name not in known or get_origin(parameter.hint) is Annotated:
        return parameter
    return parameter._replace(hint=known[name])


def _check(
    key: str,
    settings: Mapping[Any, Any],
    parameters: Mapping[str, Parameter],
    *,
    given: frozenset[str],
    who: str,
    extra: bool,
    typed: str | None = None,
) -> None:
    start = _dotted(key, "") if typed is None else typed
    open_names = [name for name in parameters if name not in given]
    for name, value in settings.items():
        dotted = _dotted(key, name)
        if name in given and name in parameters:
            raise OneshotError(f"{dotted}: the program itself passes this to {who}; leave it out")
        if name not in parameters and not extra:
            found = did_you_mean(f"{start}{name}", [f"{start}{each}" for each in open_names])
            raise OneshotError(_unknown(_dotted(key, shown(name)), found, open_names, who))
        parameter = parameters.get(name, Parameter(Any, required=False))
        if isinstance(value, str) and value == MISSING:
            raise OneshotError(has_no_value(dotted))
        if parameter.required or type(value) is not type(parameter.default) or value != parameter.default:
            check_value(dotted, value, parameter.hint)
        if isinstance(value, Mapping):
            _check_inside(dotted, value, parameter.hint, given)
    for name in open_names:
        if parameters[name].required and name not in settings:
            raise OneshotError(f"{_dotted(key, name)}: is missing, and {who} needs it; set {start}{name}=...")


def _check_inside(key: str, value: Mapping[Any, Any], hint: Any, given: frozenset[str]) -> None:
    """A group inside a group: a part, where the hint asks for one, or a dataclass's settings."""
    if "_target_" in value and hint is not Any and get_origin(hint) is not collections.abc.Mapping:
        if key.endswith("optimizer") or is_optimizer(key, value):
            return check_optimizer(key, value)
        _check_takes_some(key, value, hint, given)
        return check_call(key, value, given=given)
    for option in (hint, *get_args(hint)):
        if dataclasses.is_dataclass(option) and isinstance(option, type):
            check_table(key, value, parameters_of(option))
    return None


def _check_takes_some(key: str, settings: Any, hint: Any, given: frozenset[str]) -> None:
    """A part that waits to be called takes something of what it will be called with."""
    if get_origin(hint) is not collections.abc.Callable or not given:
        return
    parameters, extra = _parameters(target_of(key, settings), first=0)
    if not extra and given.isdisjoint(parameters or ()):
        raise OneshotError(
            f"{key}._target_={settings['_target_']}: does not take {' or '.join(sorted(given))}, which it gets"
        )


def is_optimizer(key: str, settings: Any) -> bool:
    """Whether a node's target is a class of torch optimisers."""
    target, torch = target_of(key, settings), sys.modules.get("torch")
    return torch is not None and isinstance(target, type) and issubclass(target, torch.optim.Optimizer)


def _dotted(key: str, name: Any) -> str:
    return f"{key}.{name}".lstrip(".")


def _unknown(key: str, found: str, known: Sequence[str], who: str) -> str:
    takes = f"takes {', '.join(known)}" if known else "takes no settings"
    of_a_run = all(map(str.isidentifier, key.split(".")))  # and none in a file of a model
    remedy = f"; where a chosen file sets it, ~{key} leaves it out" if of_a_run else ""
    return f"{key}: there is no such key{found}; {who} {takes}{remedy}"


def has_no_value(key: str) -> str:
    """What to say about a key that is `???`."""
    return f"{key}: has no value; set it on the command line, {key}=..."


def check_value(key: str, value: Any, hint: Any) -> None:
    """Whether a value fits a type hint.

    Raises:
        OneshotError: it does not; names the entry of a dictionary that does not, and says what would.
    """
    if not (wanted := problem(value, hint)):
        return
    if isinstance(value, Mapping) and get_origin(hint) in (dict, Mapping):
        for name, entry in value.items():
            check_value(_dotted(key, name), entry, get_args(hint)[1])
    raise OneshotError(f"{key}={shown(value)}: must be {wanted}")


def _last(settings: Mapping[str, Any]) -> str:
    return str(settings["_target_"]).rpartition(".")[2]
