"""What is to be noted of the names of a federation's classes."""

from collections.abc import Iterable
from unicodedata import normalize

from oneshot_fl.aggregation.federation import Federation
from oneshot_fl.errors import first_of
from oneshot_fl.parts.uploads import Uploads


def note_of_look_alikes(names: Iterable[str]) -> list[str]:
    """One line where names of classes are so alike that they may mean the same."""
    alike: dict[str, list[str]] = {}
    for name in names:
        alike.setdefault("".join(normalize("NFKC", name).casefold().split()), []).append(name)
    groups = [group for group in alike.values() if len(group) > 1]
    if not groups:
        return []
    first, more = " and ".join(map(repr, groups[0][:2])), f" (and {len(groups) - 1} more such)" * (len(groups) > 1)
    return [
        f"classes {first} differ only in case, spaces or Unicode form{more}: each is a class of its own; if they mean "
        "the same, pack uploads again with one name"
    ]


def note_of_unused(federation: Federation, used: Uploads) -> list[str]:
    """One line where only uploads have a class that were turned away once the federation was built.

    The hearing does that: without their classes all recitals would have to be made again.
    """
    left = used.named()
    spoken = {name for one in federation.members if one.name in left for name in one.description.class_names}
    unused = [repr(name) for name in federation.class_names if name not in spoken]
    if not unused:
        return []
    return [f"class {first_of(unused)}: only uploads that were turned away have it; the model still answers for it"]
