"""Tables over many runs: `python -m oneshot_fl.reporting.tables DIR...`.

Reads every run below the folders, also of a sweep that is half done or partly failed, and prints the papers' tables
that the runs belong to, with their numbers beside ours, and our own tables, one for every group of comparable runs.
"""

import argparse
import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from oneshot_fl.errors import OneshotError, did_you_mean
from oneshot_fl.mistakes import mistakes_told
from oneshot_fl.process import print_whatever_it_is, say, stoppable
from oneshot_fl.reporting.tables.alike import distinct
from oneshot_fl.reporting.tables.chosen import across, runs_with
from oneshot_fl.reporting.tables.collected import collect
from oneshot_fl.reporting.tables.cost import cost_sheets
from oneshot_fl.reporting.tables.figures import draw
from oneshot_fl.reporting.tables.format import FORMATS, Sheet
from oneshot_fl.reporting.tables.measures import METRICS, measure_of
from oneshot_fl.reporting.tables.not_done import not_done_sheet
from oneshot_fl.reporting.tables.own import AGAINST, check_against, own_sheets
from oneshot_fl.reporting.tables.papers.beside import paper_sheets
from oneshot_fl.reporting.tables.papers.published import of_study, published
from oneshot_fl.reporting.tables.rank_picture import draw_ranks
from oneshot_fl.reporting.tables.rank_sheets import field_of, rank_sheets
from oneshot_fl.reporting.tables.run import Run
from oneshot_fl.reporting.tables.runs import every_run
from oneshot_fl.reporting.tables.wide import wide_sheets


def tables(
    runs: list[Run], *, which: str, against: str, studies: Sequence[str], metric: str = "accuracy"
) -> list[Sheet]:
    """All sheets that the runs make: the papers' and then our own, or only the papers' tables named by `studies`.

    Papers print accuracies, so of another metric there are only our own.

    Raises:
        OneshotError: `studies` names a table that no paper has, or the metric is not one of papers or of that round.
    """
    measure = measure_of(metric, which=which)
    if studies and metric != "accuracy":
        raise OneshotError(f"--metric {metric}: the papers' tables hold accuracies; leave out --paper or --metric")
    known = list(dict.fromkeys(cell.study for cell in published()))
    for study in studies:
        if not of_study(study):
            raise OneshotError(
                f"--paper {study}: there is no such table{did_you_mean(study, known)}; choose from {', '.join(known)}"
            )
    comparable = [run for run in runs if run.settings]
    beside = paper_sheets(comparable, which=which, studies=studies) if metric == "accuracy" else []
    return beside if studies else beside + own_sheets(comparable, measure=measure, against=against)


OF_ACCURACIES = ("against", "paper")
READ_BY = {"row": ("ranks", "wide"), "by": ("ranks",)}
"""Options of some views, and these."""
UNREAD = {
    "failed": (*OF_ACCURACIES, "which", "metric", "figures"),
    "cost": (*OF_ACCURACIES, "which", "metric", "figures"),
    "ranks": OF_ACCURACIES,
    "wide": (*OF_ACCURACIES, "figures"),
}
"""Views that are printed in the place of the tables, and options that they do not read."""


def main(arguments: Sequence[str] | None = None, *, to_do: Callable[[Sequence[Path]], int] = lambda _: 0) -> None:
    """The command line; exit code 2 and one line for a mistake.

    Args:
        to_do: how many jobs of the sweeps in or below folders have not begun, and so stand in no view.
    """
    options = _parser().parse_args(arguments)
    with mistakes_told():
        _print(options)
        if count := 0 if options.where else to_do(options.paths):  # what has not begun has no settings to choose by
            say(f"{count} jobs have not begun; oneshot-fl status SWEEP tells of each sweep how its jobs stand")


def _check_view(options: argparse.Namespace) -> None:
    """One view at a time, and no option that it does not read."""
    for name, readers in READ_BY.items():
        if (given := getattr(options, name)) and not any(getattr(options, view) for view in readers):
            needed = " or ".join(f"--{view}" for view in readers)
            raise OneshotError(f"--{name} {given[0]}: says what {needed} tells; add {needed}, or leave out --{name}")
    views = [view for view in UNREAD if getattr(options, view)]
    if len(views) > 1:
        raise OneshotError(f"--{views[1]}: is another view than --{views[0]}; leave out one of them")
    usual = _parser().parse_args([])
    for view in views:
        if told := [name for name in UNREAD[view] if getattr(options, name) != getattr(usual, name)]:
            raise OneshotError(f"--{told[0]}: says nothing to --{view}; leave out one of them")


def _print(options: argparse.Namespace) -> None:
    _check_view(options)
    every = runs_with(every_run(options.paths), options.where)
    if options.collect:
        collect(every, options.collect)
    runs = distinct(across(every, options.across))
    if options.failed:
        print(FORMATS[options.format]([not_done_sheet(runs)]))
        return
    if options.cost:
        print(FORMATS[options.format](cost_sheets([run for run in runs if run.settings])))
        return
    if options.ranks:
        _print_ranks(runs, options)
        return
    print(FORMATS[options.format](_wide(runs, options) if options.wide else _usual(runs, options)))
    if missing := sum(run.status != "done" for run in runs):
        say(f"{missing} of {len(runs)} runs without a result; --failed lists them")
    if options.figures:
        for path in draw(runs, options.figures):
            print(path, file=sys.stderr)


def _usual(runs: list[Run], options: argparse.Namespace) -> list[Sheet]:
    check_against(options.against, runs)
    return tables(runs, which=options.which, against=options.against, studies=options.paper, metric=options.metric)


def _wide(runs: list[Run], options: argparse.Namespace) -> list[Sheet]:
    measure = measure_of(options.metric, which=options.which)
    return wide_sheets([run for run in runs if run.settings], measure, options.row)


def _print_ranks(runs: list[Run], options: argparse.Namespace) -> None:
    measure = measure_of(options.metric, which=options.which)
    field = field_of([run for run in runs if run.settings], measure, options.row)
    print(FORMATS[options.format](rank_sheets(field, measure, options.by)))
    if options.figures:
        print(draw_ranks(field.ranking, options.figures), file=sys.stderr)


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m oneshot_fl.reporting.tables", description=__doc__)
    parser.add_argument("paths", nargs="*", type=Path, default=[Path("multirun")], metavar="DIR")
    parser.add_argument(
        "--where",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="only runs with this setting: distill.rounds=8,25",
    )
    parser.add_argument(
        "--across",
        action="append",
        default=[],
        metavar="KEY",
        help="compare also runs that differ in this setting: trainer.precision",
    )
    default = "terminal" if sys.stdout.isatty() else "markdown"
    parser.add_argument("--format", choices=FORMATS, default=default, help="default: terminal, piped markdown")
    parser.add_argument("--which", choices=("last", "best"), default="last", help="round of the server (default last)")
    parser.add_argument("--metric", choices=METRICS, default="accuracy", help="what is told (default accuracy)")
    parser.add_argument("--against", default=AGAINST, metavar="METHOD", help="base of the paired differences")
    parser.add_argument(
        "--paper", action="append", default=[], metavar="TABLE", help="only this table, whole: fedhydra/table1"
    )
    parser.add_argument("--failed", action="store_true", help="only the runs without a result, and how to run them")
    parser.add_argument("--cost", action="store_true", help="what runs took: seconds, memory, MACs, bytes, energy")
    parser.add_argument("--ranks", action="store_true", help="how methods rank over settings and seeds, and how surely")
    parser.add_argument("--wide", action="store_true", help="one table: a row for every method, a column a setting")
    parser.add_argument(
        "--row", action="append", default=[], metavar="ROW", help="of --ranks and --wide: only these rows or methods"
    )
    parser.add_argument("--by", action="append", default=[], metavar="KEY", help="ranks also by a setting's values")
    parser.add_argument("--collect", type=Path, metavar="FILE", help="write the summaries there, to be read like a DIR")
    parser.add_argument(
        "--figures", type=Path, metavar="DIR", help="draw accuracy against rounds, AE against SA, or ranks there"
    )
    return parser


if __name__ == "__main__":
    with stoppable():
        print_whatever_it_is()
        main()
