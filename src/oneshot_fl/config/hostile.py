"""Whether there are as many clients as an attack makes hostile, of the kind that it can do something to."""

from collections.abc import Sequence
from typing import Any

from oneshot_fl.config.clients import KindName
from oneshot_fl.config.rules import target_of
from oneshot_fl.errors import OneshotError


def check_attack(attack: Any, kinds: Sequence[KindName]) -> None:
    """Before clients train for an attack that would hit fewer than it says, or nobody.

    Args:
        attack: the node, resolved; empty where nobody is hostile.
        kinds: what each client trains.

    Raises:
        OneshotError: there are fewer clients than `attack.clients`, or fewer that upload what is tampered with; or
            none is left to copy from.
    """
    hostile = attack.get("clients", 0) if attack else 0
    if not isinstance(hostile, int):  # an attack of one's own, which may count otherwise
        return
    if hostile > len(kinds):
        raise OneshotError(f"attack.clients={hostile}: must be at most partition.clients={len(kinds)}")
    if hostile > (there := kinds.count("classifier")) and _tampers_with_classifiers(attack):
        raise OneshotError(
            f"attack.clients={hostile}: attack={attack.get('name')} tampers with classifiers, and {there} of the "
            "clients upload one (clients.kinds); lower it, or choose attack=label_flip or attack=backdoor, which any "
            "client trains on"
        )
    if hostile == there > 0 and getattr(target_of("attack", attack), "copies", False):
        raise OneshotError(
            f"attack.clients={hostile}: attack={attack.get('name')} copies an honest client's model, and there is "
            "none; lower it"
        )


def _tampers_with_classifiers(attack: Any) -> bool:
    from oneshot_fl.parts.attacks import Tampering  # torch: not before it is needed

    target = target_of("attack", attack)
    return isinstance(target, type) and issubclass(target, Tampering)
