"""A page over many runs, in one file that fetches nothing."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from importlib.resources import files
from pathlib import Path
from string import Template
from typing import Any

from oneshot_fl.disk import make_folder, require_own, write_atomically
from oneshot_fl.errors import OneshotError
from oneshot_fl.reporting.page.markup import Html, element, escaped, script_code, script_data
from oneshot_fl.reporting.page.payload import payload
from oneshot_fl.reporting.page.sections import all_runs, counts_of, failures, sheet_of, verdicts
from oneshot_fl.reporting.page.settings import Setting, left_out, settings_of
from oneshot_fl.reporting.tables.measures import Measure
from oneshot_fl.reporting.tables.own import AGAINST, check_against, group_sheet, not_the_same
from oneshot_fl.reporting.tables.papers.beside import paper_sheets
from oneshot_fl.reporting.tables.run import Run
from oneshot_fl.version import __version__

Json = dict[str, Any]
MEGABYTE = 1_000_000
MADE_BY = "Made by oneshot_fl"
"""By which a page is known."""


@dataclass(frozen=True)
class Choices:
    """What a page is to tell."""

    measure: Measure
    """What server models are judged by."""
    which: str = "last"
    """The round, `last` or `best`, that stands beside the papers' numbers."""
    against: str = AGAINST
    """The method that the tables' paired differences are taken from."""
    megabytes: float = 8
    """How much of the page pictures of runs may take."""
    title: str = "Sweep"
    to_do: int = 0
    """Jobs of the sweep that have not begun, of which there is no run yet."""


def write_report(runs: list[Run], out: Path, choices: Choices) -> Path:
    """Write the page over `runs`, done or not, to `out`; links to their folders are relative to that.

    Raises:
        OneshotError: the library that draws is not installed, no run is of the method that was asked for, the page
            cannot be written, or something else lies there.
    """
    check_against(choices.against, runs)
    make_folder(out.parent)
    require_own(out, lambda text: not text or MADE_BY in text, "report of ours")
    library = drawing_library()
    write_atomically(out, report_page(runs, out, choices, library=library))
    return out


def drawing_library() -> str:
    """Vega, Vega-Lite and vega-embed as one script; bundling takes some five seconds of a core.

    Raises:
        OneshotError: the package that holds them is not installed.
    """
    try:
        import vl_convert
    except ImportError as error:
        raise OneshotError(f"report: {error.name} is missing; pip install 'oneshot-fl[report]'") from error
    return vl_convert.javascript_bundle("window.vegaEmbed = vegaEmbed;")


def report_page(runs: list[Run], out: Path, choices: Choices, *, library: str) -> str:
    """The page as text; `library` is the script that draws."""
    settings, measure, against = settings_of(runs), choices.measure, choices.against
    budget = int(choices.megabytes * MEGABYTE)
    data = payload(runs, settings, out, measure=measure, budget=budget) | {"against": against}
    cells = {
        "title": choices.title,
        "about": _about(runs, measure),
        "counts": counts_of(runs, to_do=choices.to_do),
        "verdicts": verdicts(settings, measure),
        "unlike": _notes([*not_the_same(each.rows for each in settings), *left_out(settings, measure)]),
        "numbers": _joined(_numbers(settings, measure, against)),
        "papers": _joined(_papers(settings, choices.which)) or element("p", "No run belongs to a table of the papers."),
        "failures": failures(runs, out),
        "runs": all_runs(data["runs"], [setting.name for setting in settings], out),
        "data": script_data(data),
        "specs": script_data(_specs()),
        "style": Html(_asset("page.css")),
        "library": script_code(library),
        "code": Html("\n".join(map(_asset, ("charts.js", "run.js", "page.js")))),
    }
    return Template(_asset("page.html")).substitute({name: escaped(cell) for name, cell in cells.items()})


def _about(runs: Sequence[Run], measure: Measure) -> str:
    versions = sorted({told for run in runs if (told := _version(run))})
    by = f", of runs by {' and '.join(versions)}" if versions else ""
    made = f"{datetime.now():%d %B %Y, %H:%M}"
    return f"{measure.note}; {measure.header}. {MADE_BY} {__version__} on {made}{by}."


def _version(run: Run) -> str:
    """Of the program that made it, where its summary tells."""
    return str(((run.summary or {}).get("versions") or {}).get("oneshot_fl") or "")


def _joined(parts: Iterable[Html]) -> Html:
    return Html("".join(parts))


def _notes(lines: Iterable[str]) -> Html:
    return _joined(element("p", line, class_="note") for line in lines)


def _numbers(settings: Iterable[Setting], measure: Measure, against: str) -> list[Html]:
    return [
        sheet_of(group_sheet(setting.title, setting.runs, measure=measure, against=against), setting=setting)
        for setting in settings
    ]


def _papers(settings: Iterable[Setting], which: str) -> list[Html]:
    runs = [run for setting in settings for run in setting.runs]
    return [sheet_of(sheet) for sheet in paper_sheets(runs, which=which)]


def _specs() -> Json:
    """The charts in Vega-Lite, without their data."""
    folder = files(__package__) / "assets" / "charts"
    return {path.name.removesuffix(".json"): json.loads(path.read_text("utf-8")) for path in folder.iterdir()}


def _asset(name: str) -> str:
    return (files(__package__) / "assets" / name).read_text("utf-8")
