"""Whether there are as many clients as an attack makes hostile, of the kind that it can do something to."""

from collections.abc import Sequence
from typing import Any

from omegaconf import DictConfig

from oneshot_fl.config.compose import plain
from oneshot_fl.config.rules import target_of
from oneshot_fl.errors import OneshotError


def check_attack(attack: Any, clients: int, classifiers: Sequence[DictConfig]) -> None:
    """Before clients train for an attack that would hit fewer than it says, or nobody.

    Args:
        attack: the node, resolved; empty where nobody is hostile.
        clients: how many there are.
        classifiers: the settings of those that are uploaded, in the order of their clients.

    Raises:
        OneshotError: there are fewer clients than `attack.clients`, or fewer that upload what is tampered with; or
            none is left that a hostile one can copy.
    """
    hostile = attack.get("clients", 0) if attack else 0
    if not isinstance(hostile, int):  # an attack of one's own, which may count otherwise
        return
    if hostile > clients:
        raise OneshotError(f"attack.clients={hostile}: must be at most partition.clients={clients}")
    if hostile > (there := len(classifiers)) and _tampers_with_classifiers(attack):
        raise OneshotError(
            f"attack.clients={hostile}: attack={attack.get('name')} tampers with classifiers, and {there} of the "
            "clients upload one (clients.kinds); lower it, or choose attack=label_flip or attack=backdoor, which any "
            "client trains on"
        )
    if 0 < hostile <= there and getattr(target_of("attack", attack), "copies", False):
        _check_copied(attack, classifiers[: there - hostile], classifiers[there - hostile :])


def _check_copied(attack: Any, honest: Sequence[DictConfig], hostile: Sequence[DictConfig]) -> None:
    there = [_unnamed(node) for node in honest]
    if alone := next((node for node in hostile if _unnamed(node) not in there), None):
        raise OneshotError(
            f"attack.clients={len(hostile)}: attack={attack.get('name')} copies an honest client's model, and no "
            f"honest one has a hostile one's architecture, {alone['name']}; lower it, or choose another attack or model"
        )


def _unnamed(node: DictConfig) -> dict[Any, Any]:
    """What two architectures of different names may have in common."""
    return {key: value for key, value in plain(node).items() if key != "name"}


def _tampers_with_classifiers(attack: Any) -> bool:
    from oneshot_fl.parts.attacks import Tampering  # torch: not before it is needed

    target = target_of("attack", attack)
    return isinstance(target, type) and issubclass(target, Tampering)
