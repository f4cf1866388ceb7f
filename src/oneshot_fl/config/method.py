"""The slots of a method in the configuration: which ones it needs, and what may stand in them."""

import inspect
from collections.abc import Mapping
from typing import Any

from oneshot_fl.config.group_types import SLOTS, tables
from oneshot_fl.config.rules import check_call, check_group, check_optimizer, check_table, target_of
from oneshot_fl.errors import OneshotError
from oneshot_fl.fits import shown

INSIDE = frozenset({"spec"})
"""What a part of a slot's part is handed."""


def check_method(method: Any) -> None:
    """The slots of a method.

    Raises:
        OneshotError: naming the first key that is wrong.
    """
    check_group("method", method)
    check_table("method", method, tables()["method"])
    for slot in SLOTS:
        check_no_rest(f"method.{slot}", method.get(slot), f"method={method['name']} has no {slot}")
    makes_images = method.get("source") is not None
    _check_parts(method, makes_images=makes_images)
    if not makes_images:
        _check_trained(target_of("method.init", method["init"]))
    _check_losses(method, makes_images=makes_images)
    if method.get("student_optimizer") is not None:
        check_optimizer("method.student_optimizer", method["student_optimizer"])


def _check_parts(method: Mapping[str, Any], *, makes_images: bool) -> None:
    for slot, needed in SLOTS.items():
        if method.get(slot) is not None:
            _check_slot(f"method.{slot}", method[slot])
        elif slot == "init" or (needed and makes_images):
            named = f"choose it with method/{slot}=NAME"
            unnamed = f"add `- {slot}: NAME` to the defaults of its file, or choose it with +method/{slot}=NAME"
            raise OneshotError(
                f"method.{slot}: method={method['name']} needs one; {named if slot in method else unnamed}"
            )


def _check_trained(init: Any) -> None:
    """Without images the student stays as it begins."""
    if getattr(init, "untrained", False):
        raise OneshotError(
            f"method.source: is null, and nobody has trained what students begin as (method.init: {init.__name__}); "
            "choose method/init=average, or a method that makes images, for instance method=dense"
        )


def _check_losses(method: Mapping[str, Any], *, makes_images: bool) -> None:
    for slot, used in {"objective": _is_trained(method), "student": makes_images}.items():
        if method.get(slot) is not None:
            check_terms(f"method.{slot}", method[slot])
        elif used:
            none = " (or objective: {} where its images follow from no loss)" if slot == "objective" else ""
            raise OneshotError(
                f"method.{slot}: is missing, and method={method['name']} trains; write a loss in its file, "
                f"{slot}: {{NAME: {{_target_: ..., weight: 1.0}}}}{none}"
            )
    if method.get("warm_up") is not None:
        check_terms("method.warm_up.student", method["warm_up"].get("student"))


def _is_trained(method: Mapping[str, Any]) -> bool:
    """Whether a source has an optimiser; others draw or show their images, and an objective says nothing to them."""
    return any("optimizer" in node for node in sources_of(method).values())


def check_no_rest(key: str, node: Any, lacking: str) -> None:
    """A key that a sweep sets by `++` is no part where there is none to have it.

    Args:
        lacking: who lacks what, for the error.

    Raises:
        OneshotError: it was set.
    """
    if not isinstance(node, Mapping) or not node:
        return
    if not any(name == "_target_" or isinstance(value, Mapping) for name, value in node.items()):
        name, value = next(iter(node.items()))
        raise OneshotError(
            f"{key}.{name}={shown(value)}: {lacking} (no {key}._target_); leave the key to those that have one, in a "
            "sweep of theirs"
        )


def check_entry(key: str, settings: Any) -> None:
    """Whether an entry of a table, in which any may be absent, is more than null.

    Raises:
        OneshotError: it is null.
    """
    if settings is None:
        raise OneshotError(f"{key}=null: is one of several, and null is none; to leave it out write ~{key}")


def _check_slot(key: str, node: Any) -> None:
    check_group(key, node)
    if "_target_" not in node and node and all(part is None or isinstance(part, Mapping) for part in node.values()):
        for name, part in node.items():  # several sources fill one pool
            check_entry(f"{key}.{name}", part)
            _check_slot(f"{key}.{name}", part)
        return
    check_call(key, node, first=1, given=INSIDE)


def check_terms(key: str, terms: Any) -> None:
    """The terms of a loss, each with a weight.

    Raises:
        OneshotError: naming the first key that is wrong.
    """
    check_group(key, terms)
    for name, term in terms.items():
        own = f"{key}.{name}"
        if isinstance(term, Mapping) and "_target_" not in term:
            whole = [other for other, node in terms.items() if isinstance(node, Mapping) and "_target_" in node]
            raise OneshotError(
                f"{own}: there is no such term here ({', '.join(whole) or 'none'}), and a new one needs "
                f"{own}._target_; leave its keys to methods that have it, in a sweep of theirs"
            )
        if not isinstance(term, Mapping):
            weight = 0 if term is None else shown(term)
            raise OneshotError(f"{own}={shown(term)}: must be a term with a weight; write {own}.weight={weight}")
        check_call(own, term)
        if "weight" not in inspect.signature(target_of(own, term)).parameters:
            raise OneshotError(f"{own}._target_={term['_target_']}: takes no weight, which every term of a loss has")


def sources_of(method: Mapping[str, Any]) -> dict[str, Mapping[str, Any]]:
    """The nodes of a method's sources of images by their keys, in their order."""
    node = method.get("source")
    if node is None:
        return {}
    if "_target_" in node:
        return {"method.source": node}
    return {f"method.source.{name}": each for name, each in node.items()}


def making_sources(method: Mapping[str, Any], *, channels: int | None) -> dict[str, Mapping[str, Any]]:
    """Those of them that make images of so many channels, or may: some are for colour alone."""
    return {key: node for key, node in sources_of(method).items() if not (node.get("colour_only") and channels == 1)}
