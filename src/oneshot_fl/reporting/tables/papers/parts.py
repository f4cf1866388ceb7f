"""Which runs of a table may share a sheet."""

import json
from dataclasses import dataclass, field

from oneshot_fl.reporting.tables.differences import below
from oneshot_fl.reporting.tables.papers.matching import IMAGES, Difference, differences, uses
from oneshot_fl.reporting.tables.papers.published import PAPERS, Published
from oneshot_fl.reporting.tables.run import Run

Found = dict[Published, list[Run]]
"""Runs by the number that they stand beside."""


@dataclass(frozen=True)
class Part:
    """What stands on one sheet."""

    found: Found
    told: tuple[str, ...]
    """In what it is not the paper's protocol, with methods and data sets where it is not all of them."""
    distinct: tuple[str, ...]
    """What papers do not state, where another sheet of the table has it otherwise."""


@dataclass(eq=False)
class _Way:
    """Runs of one method on one data set that differ alike from the paper's protocol."""

    example: tuple[Published, Run]
    differing: dict[str, Difference]
    found: Found = field(default_factory=dict)

    @property
    def method(self) -> str:
        return self.example[0].method

    @property
    def data(self) -> str:
        return self.example[0].data

    @property
    def stated(self) -> list[Difference]:
        return [each for each in self.differing.values() if each.stated]


def split(pairs: list[tuple[Published, Run]]) -> list[Part]:
    """As few parts as there must be; the first has the runs that are the paper's protocol."""
    sheets: list[list[_Way]] = []
    for way in sorted(_ways(pairs), key=lambda way: len(way.stated)):
        home = next((sheet for sheet in sheets if all(_may_share(way, other) for other in sheet)), None)
        if home is None:
            sheets.append([way])
        else:
            home.append(way)
    found = [{cell: runs for way in sheet for cell, runs in way.found.items()} for sheet in sheets]
    return [Part(own, _told(sheet), tuple(_distinct(sheet, sheets))) for own, sheet in zip(found, sheets, strict=True)]


def _ways(pairs: list[tuple[Published, Run]]) -> list[_Way]:
    ways: dict[str, _Way] = {}
    for cell, run in pairs:
        differing = {each.key: each for each in differences(cell, run)}
        key = json.dumps([cell.method, cell.data, [[name, each.ours] for name, each in differing.items()]])
        ways.setdefault(key, _Way((cell, run), differing)).found.setdefault(cell, []).append(run)
    return list(ways.values())


def _may_share(way: _Way, other: _Way) -> bool:
    """Whether all that both depend on is alike, but for what the paper sets by method or data set."""
    if (way.method, way.data) == (other.method, other.data):
        return False
    keys = [key for key in {**way.differing, **other.differing} if not _is_own(key, way, other)]
    return all(_alike(key, way, other) and _alike(key, other, way) for key in keys)


def _is_own(key: str, way: _Way, other: _Way) -> bool:
    own = ("method", *IMAGES, *PAPERS[way.example[0].paper].by_method)
    return below(key, own) or (way.data != other.data and below(key, ("data",)))


def _alike(key: str, way: _Way, other: _Way) -> bool:
    """Whether the other way has the same at a key in which this one differs from the protocol, if it uses it."""
    if key not in way.differing:
        return True
    if key in other.differing:
        return bool(way.differing[key].ours == other.differing[key].ours)
    return not uses(*other.example, key)


def _told(sheet: list[_Way]) -> tuple[str, ...]:
    """Every deviation once, with its methods and data sets where others that use the key do not deviate so."""
    where: dict[Difference, list[_Way]] = {}
    for way in sheet:
        for each in way.stated:
            where.setdefault(each, []).append(way)
    told: dict[tuple[str, str], list[str]] = {}
    for each, own in where.items():
        users = [way for way in sheet if uses(*way.example, each.key)]
        if all(way in own for way in users):
            told[str(each), ""] = []
            continue
        for method in dict.fromkeys(way.method for way in own):
            data = [way.data for way in own if way.method == method]
            limited = {way.data for way in users if way.method == method} - set(data)
            told.setdefault((str(each), f" on {', '.join(data)}" if limited else ""), []).append(method)
    return tuple(f"{', '.join(methods)}{data}: {text}" if methods else text for (text, data), methods in told.items())


def _distinct(sheet: list[_Way], sheets: list[list[_Way]]) -> list[str]:
    """What is not stated, where the other sheets have it otherwise."""
    values = [_not_stated(own) for own in sheets]
    return sorted(values[sheets.index(sheet)] - values[0].intersection(*values))


def _not_stated(sheet: list[_Way]) -> set[str]:
    return {f"{each.key}={each.ours}" for way in sheet for each in way.differing.values() if not each.stated}
