"""Whether a value fits a type hint, and how a value is shown: words for what it should be instead."""

import dataclasses
import math
import types
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from oneshot_fl.errors import printable
from oneshot_fl.values import Rule


def problem(value: Any, hint: Any) -> str | None:
    """What a value should be instead, in words that complete "must be"; None where it fits the hint."""
    hint = Any if isinstance(hint, str) else hint
    origin, arguments = get_origin(hint), get_args(hint)
    if origin is Annotated:
        return _problem_by_rules(value, arguments[0], [each for each in arguments[1:] if isinstance(each, Rule)])
    if origin in (Union, types.UnionType):
        return _problem_of_options(value, arguments)
    if origin is Literal:
        fits = any(value == each and type(value) is type(each) for each in arguments)
        return None if fits else _one_of(arguments)
    if dataclasses.is_dataclass(hint):
        return None if isinstance(value, Mapping) else "a group of settings"
    return _problem_of_type(value, origin or hint, arguments)


def _problem_by_rules(value: Any, base: Any, rules: Sequence[Rule]) -> str | None:
    found = problem(value, base)
    if found is not None:
        huge = base is int and type(value) is int  # its type is right, and some rule says how large it may be
        broken = [rule.says for rule in rules if not (huge and rule.holds(value))]
        return broken[0] if broken and not isinstance(value, list | tuple | Mapping) else found
    return None if value is None else next((rule.says for rule in rules if not rule.holds(value)), None)


def _problem_of_options(value: Any, options: Sequence[Any]) -> str | None:
    found = [problem(value, option) for option in options]
    if None in found:
        return None
    plain = [text for text in found if text and text != A_PART]
    return ", or ".join(dict.fromkeys(plain)) or A_PART


A_PART = "a group of settings with a _target_"
SCALARS: dict[Any, tuple[str, Callable[[Any], bool]]] = {
    int: ("a whole number", lambda v: isinstance(v, int) and not isinstance(v, bool) and abs(v) < 2**63),
    float: ("a number", lambda v: isinstance(v, int | float) and not isinstance(v, bool) and is_finite(v)),
    bool: ("true or false", lambda v: isinstance(v, bool)),
    str: ("a text that is not empty", lambda v: isinstance(v, str) and v.strip() != ""),
    Path: ("a path", lambda v: isinstance(v, str) and v.strip() != ""),
    type(None): ("null", lambda v: v is None),
    None: ("null", lambda v: v is None),
}


def is_finite(value: float) -> bool:
    """Whether a number is one that arithmetic can go on with; integers too long for a float are not."""
    try:
        return math.isfinite(value)
    except OverflowError:
        return False


def _problem_of_type(value: Any, base: Any, arguments: Sequence[Any]) -> str | None:
    if base in SCALARS:
        says, fits = SCALARS[base]
        return None if fits(value) else says
    if base in (Any, object) or not isinstance(base, type):  # a type variable, a name that nothing resolves: no rule
        return None
    if issubclass(base, Mapping):
        return _problem_of_mapping(value, arguments)
    if base is tuple or (issubclass(base, Iterable) and base.__module__ in ("builtins", "collections.abc")):
        return _problem_of_list(value, base, arguments)
    return None if isinstance(value, Mapping) and "_target_" in value else A_PART


def _problem_of_mapping(value: Any, arguments: Sequence[Any]) -> str | None:
    names, values = arguments or (Any, Any)
    if not isinstance(value, Mapping):
        return "a dictionary {name: value}"
    found = next((text for one in value.values() if (text := problem(one, values))), None)
    if found:
        return f"a dictionary, each value {found}"
    found = next((text for one in value if (text := problem(one, names))), None)
    return f"a dictionary, each name {found}" if found else None


def _problem_of_list(value: Any, base: Any, arguments: Sequence[Any]) -> str | None:
    fixed = base is tuple and arguments and arguments[-1] is not Ellipsis
    hints = (
        list(arguments)
        if fixed
        else [arguments[0] if arguments else Any] * (len(value) if isinstance(value, list | tuple) else 1)
    )
    if not isinstance(value, list | tuple) or len(value) != len(hints):
        inner = problem(object(), hints[0]) if hints else None
        amount = f"a list of {len(hints)}" if fixed else "a list"
        return f"{amount}, each entry {inner}" if inner else amount
    found = next((text for one, hint in zip(value, hints, strict=True) if (text := problem(one, hint))), None)
    return f"a list{f' of {len(hints)}' if fixed else ''}, each entry {found}" if found else None


def _one_of(words: Sequence[Any]) -> str:
    texts = [str(word) for word in words]
    return texts[0] if len(texts) == 1 else f"one of {', '.join(texts)}"


def shown(value: Any) -> str:
    """A value on one line of at most 80 characters; text that YAML would read as something else in quotes."""
    text = repr(value) if isinstance(value, str) and _reads_otherwise(value) else str(value)
    text = printable(" ".join(text.split()))
    return text if len(text) <= 80 else f"{text[:77]}..."


def _reads_otherwise(text: str) -> bool:
    """Whether YAML would take these letters without quotes for a number, a switch or nothing."""
    try:
        float(text)
    except ValueError:
        return text.strip().lower() in ("", "true", "false", "yes", "no", "on", "off", "null", "~")
    return True
