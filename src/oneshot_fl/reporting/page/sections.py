"""The parts of the page that are tables: they are there without a script, and in print."""

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from oneshot_fl.reporting.page.markup import Html, element, escaped, table
from oneshot_fl.reporting.page.run_cards import href
from oneshot_fl.reporting.page.settings import Setting
from oneshot_fl.reporting.page.verdict import Verdict, verdict_of
from oneshot_fl.reporting.tables.estimates import Estimate
from oneshot_fl.reporting.tables.format import Sheet, interval, percent
from oneshot_fl.reporting.tables.measures import Measure
from oneshot_fl.reporting.tables.not_done import not_done_sheet
from oneshot_fl.reporting.tables.run import Run

STATUSES = ("done", "unfinished", "interrupted", "failed")
NEAREST = 3
"""Rivals whose distance the table of verdicts tells."""


def counts_of(runs: Sequence[Run], *, to_do: int) -> Html:
    """How the runs stand, as a line of figures; `to_do` have not begun."""
    number = {status: sum(run.status == status for run in runs) for status in STATUSES} | {"to do": to_do}
    shown = [element("li", element("b", count), f" {status}") for status, count in number.items() if count]
    return element("ul", *shown, class_="counts")


def verdicts(settings: Iterable[Setting], measure: Measure) -> Html:
    """A row for every setting: the best server model, its distance to the next, and how sure that is."""
    rows, attributes = [], []
    for setting in settings:
        verdict = verdict_of(setting, measure)
        told = _verdict(verdict) if verdict else ["–", "–", "–", "No run is done."]
        rows.append([_called(setting), *told])
        attributes.append({"data_s": setting.number})
    header = ("setting", "best in the mean", measure.header, "ahead of, paired", "how sure")
    return element("div", table(header, rows, of_rows=attributes, named=True), class_="cards")


def _called(setting: Setting) -> Html:
    """The name, and below it what its number stands for: a hover is nothing on a phone and in print."""
    name = element("span", setting.name, title=setting.title)
    return Html(name + element("div", setting.apart, class_="note")) if setting.apart else name


def _verdict(verdict: Verdict) -> list[Any]:
    gaps = [_gap(label, gap) for label, gap in list(verdict.rivals.items())[:NEAREST]]
    more = len(verdict.rivals) - NEAREST
    gaps += [element("div", f"and {more} more")] if more > 0 else []
    value = [percent(verdict.value), interval(verdict.value), _seeds(verdict.value)]
    return [
        element("b", verdict.best),
        Html(" ".join(element("span", part) for part in value if part)),
        Html("".join(gaps)) or "–",
        verdict.words,
    ]


def _gap(label: str, gap: Estimate | None) -> Html:
    if gap is None:
        return element("div", f"{label}: no seed to compare")
    limits = interval(gap, signed=True) or _seeds(gap)
    return element("div", f"{label}: {gap.mean * 100:+.2f} {limits}")


def _seeds(value: Estimate) -> str:
    return f"{value.n} seed{'s' if value.n > 1 else ''}"


def sheet_of(sheet: Sheet, *, setting: Setting | None = None) -> Html:
    """A table as `oneshot-fl tables` prints it, with its notes, to be unfolded; that of a setting under its name."""
    notes = [element("p", note, class_="note") for note in sheet.notes]
    inside = [table(sheet.header, sheet.rows), *notes]
    if setting is None:
        return element("details", element("summary", sheet.title), *inside)
    title = element("p", sheet.title, class_="note")
    return element("details", element("summary", setting.name), title, *inside, data_s=setting.number)


def failures(runs: Sequence[Run], out: Path) -> Html:
    """The runs without a result, why, and the command that runs each again."""
    missing = [run for run in runs if run.status != "done"]
    if not missing:
        return element("p", "None: all runs are done.")
    sheet = not_done_sheet(missing)
    rows = [
        [name, status, reason or "–", _folder(run, out), _command(command)]
        for run, (name, status, reason, _, command) in zip(missing, sheet.rows, strict=True)
    ]
    return Html(table(sheet.header, rows) + "".join(element("p", note, class_="note") for note in sheet.notes))


def all_runs(cards: Sequence[dict[str, Any]], names: Sequence[str], out: Path) -> Html:
    """Every run with its folder and its command."""
    rows = [
        [
            names[card["s"]] if card["s"] is not None else "–",
            card["m"],
            card["seed"],
            card["status"],
            f"{card['last']:.2%}" if "last" in card else "–",
            _link(card.get("folder"), card.get("href")),
            _command(card["command"]),
        ]
        for card in cards
    ]
    of_rows = [{"data_s": card["s"], "data_m": card["m"]} if card["s"] is not None else {} for card in cards]
    header = ("setting", "method", "seed", "status", "server, last round", "folder", "command")
    return table(header, rows, of_rows=of_rows)


def _folder(run: Run, out: Path) -> Html:
    return escaped("–") if run.folder is None else _link(str(run.folder), href(run.folder, out))


def _link(folder: str | None, place: str | None) -> Html:
    if not folder or not place:
        return escaped("–")
    name = Path(folder).absolute().name or folder  # of `.`, and of the root
    return element("a", name if len(name) < 44 else f"{name[:20]}…{name[-20:]}", href=place, title=folder)


def _command(text: str) -> Html:
    """To be unfolded, and whole in print."""
    if not text:
        return escaped("–")
    return element("details", element("summary", "show"), element("code", text), class_="command")
