"""Tables of our own: one for every group of comparable runs, a row for every method, ensembles and clients below.

Runs are compared only if everything agrees but method, seed and settings that only some methods use. A method that was
run with several settings of its own gets a row for each.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from oneshot_fl.errors import OneshotError, did_you_mean
from oneshot_fl.reporting.tables.conditions import conditions
from oneshot_fl.reporting.tables.differences import Settings, at, canonical, differing, listed, without_unset
from oneshot_fl.reporting.tables.estimates import Estimate, estimate
from oneshot_fl.reporting.tables.format import Sheet, interval, percent
from oneshot_fl.reporting.tables.measures import Measure
from oneshot_fl.reporting.tables.pairing import Outcomes, by_seed, not_compared, outcomes, paired
from oneshot_fl.reporting.tables.run import Run

ORDER = (
    *("fedavg", "ot", "feddf", "dense", "dense_co_boosting", "f_dafl", "f_adi", "fedisca", "dfdg", "co_boosting"),
    *("co_boosting_pp", "intactofl", "fedhydra", "fedcvae_ens", "fedcvae_fedmho", "fedcvae_kd", "fedmho", "fedmho_md"),
    *("fedmho_sd", "fedchorus", "fedchorus_quick"),
)
"""Rows in the order of the papers' tables; others follow as they come."""
AGAINST = "fedavg"
"""Where nothing else is asked for, paired differences are taken from it; not all runs have it beside them."""


def comparable(runs: Iterable[Run]) -> list[list[Run]]:
    """Groups of runs that differ in seed, method and what only it uses, in the order in which they first appear."""
    groups: dict[str, list[Run]] = {}
    for run in runs:
        groups.setdefault(run.protocol, []).append(run)
    return list(groups.values())


def titles(groups: Sequence[list[Run]]) -> list[str]:
    """What each group is; of groups that would be called alike also the settings in which they differ."""
    return names_of([describe(group[0]) for group in groups], groups)


def names_of(short: Sequence[str], groups: Sequence[list[Run]]) -> list[str]:
    """Short names of groups; those that are alike with the settings, or with whose architecture, they differ in."""
    return told_apart(short, shared_of(groups), "; ")


def shared_of(groups: Sequence[list[Run]]) -> list[Settings]:
    """What the runs of each group agree in, their architectures under `of`."""
    return [{**group[0].shared, "of": group[0].models} for group in groups]


def told_apart(names: Sequence[str], settings: Sequence[Settings], joint: str) -> list[str]:
    """Names, each another; those that are alike with what they set of the settings in which they differ."""
    several = list(zip(names, map(without_unset, set_apart(names, settings)), strict=True))
    short, whole = ([with_own(*named, joint, whole=whole) for named in several] for whole in (False, True))
    return _numbered([long if short.count(name) > 1 else name for name, long in zip(short, whole, strict=True)])


def with_own(name: str, own: Settings, joint: str, *, whole: bool = False) -> str:
    """A name and what sets it apart, if anything does; parts by their class, or `whole`."""
    return f"{name}{joint if name else ''}{listed(own, whole=whole)}" if own else name


def _numbered(names: Sequence[str]) -> list[str]:
    """Names, those that are still alike with a number."""
    return [f"{name} #{names[:n].count(name) + 1}" if names.count(name) > 1 else name for n, name in enumerate(names)]


def set_apart(names: Sequence[str], settings: Sequence[Settings]) -> list[Settings]:
    """By dotted keys what sets each apart from the others of its name; nothing where it has its name alone."""
    apart: list[Settings] = [{} for _ in names]
    for name in {name for name in names if names.count(name) > 1}:
        alike = [position for position, other in enumerate(names) if other == name]
        for position, own in zip(alike, differing([settings[p] for p in alike]), strict=True):
            apart[position] = own
    return apart


def rows_of(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """The runs of every row by its label: those of one method with the same settings of its own."""
    rows: dict[str, list[Run]] = {}
    for run in runs:
        rows.setdefault(canonical([run.label, run.row]), []).append(run)
    first = [row[0] for row in rows.values()]
    labels = told_apart([run.label for run in first], [_own_beside(run, first) for run in first], " ")
    return dict(zip(labels, rows.values(), strict=True))


def _own_beside(run: Run, others: Sequence[Run]) -> Settings:
    """Its own settings without groups that others of its label do not use: what makes them do so tells them apart."""
    unused = frozenset().union(*(run.used - other.used for other in others if other.label == run.label))
    return {group: value for group, value in run.own.items() if group not in unused}


def not_the_same(places: Iterable[Mapping[str, Iterable[Run]]]) -> list[str]:
    """A line for every row whose own settings differ between groups: labels tell settings of one group apart alone."""
    own: dict[str, list[Settings]] = {}
    for rows in places:
        for label, runs in rows.items():
            own.setdefault(label, []).extend(run.own for run in runs)
    told = {label: dict.fromkeys(listed(without_unset(each)) for each in differing(own[label])) for label in own}
    return [f"{label} is not the same everywhere: {'; '.join(each)}." for label, each in told.items() if len(each) > 1]


def labels_in(groups: Iterable[list[Run]]) -> list[str]:
    """The labels of all rows of groups, each once."""
    return list(dict.fromkeys(label for group in groups for label in rows_of(group)))


def labels_meant(row: str, labels: Sequence[str], others: Sequence[str] = ()) -> list[str]:
    """The labels that a row stands for: itself, else those of the method of that name.

    Args:
        row: a label, a method, or one of `others`.
        labels: of methods' rows.
        others: rows of no method, which only their whole label stands for.

    Raises:
        OneshotError: it is none of them.
    """
    known = [*labels, *others]
    meant = [row] if row in known else [label for label in labels if _method(label) == row]
    if not meant:
        near = did_you_mean(row, [*known, *map(_method, labels)])
        raise OneshotError(f"--row {row}: is no row of these runs{near}; choose from {', '.join(known)}")
    return meant


def _method(label: str) -> str:
    return label.partition(" ")[0]


def check_against(against: str, runs: Iterable[Run]) -> None:
    """A method that was asked for has to be a row somewhere.

    Raises:
        OneshotError: it is none, with the rows that there are.
    """
    labels = labels_in(comparable(runs))
    if against != AGAINST and against not in labels:
        near = did_you_mean(against, labels)
        raise OneshotError(f"--against {against}: is no row of these runs{near}; choose from {', '.join(labels)}")


def own_sheets(runs: Iterable[Run], *, measure: Measure, against: str) -> list[Sheet]:
    """A table for every group of comparable runs; the arguments are those of `group_sheet`."""
    groups = comparable(runs)
    named = zip(titles(groups), groups, strict=True)
    return [group_sheet(title, group, measure=measure, against=against) for title, group in named]


def group_sheet(title: str, runs: list[Run], *, measure: Measure, against: str) -> Sheet:
    """One group's table.

    Args:
        measure: what is told of server, ensembles and clients.
        against: the method (or label) from which the paired differences are taken.
    """
    rows_by_label = rows_of(runs)
    labels = sorted(rows_by_label, key=rank)
    server = {label: outcomes(rows_by_label[label], measure.server) for label in labels}
    base = server.get(against, Outcomes({}))
    rows, records = [], []
    for label in labels:
        values = server[label].values
        difference = paired(server[label], base) if label != against else None
        gap = _gap(values, difference) if base.values and label != against else ["", ""]
        rows.append([label, *_row(values), *gap, _not_done(rows_by_label[label])])
        records.append(_record(label, values, difference))
    for label, values in references({label: rows_by_label[label] for label in labels}, measure).items():
        rows.append([label, *_row(values), "", "", ""])
        records.append(_record(label, values, None))
    records = [{"metric": measure.key, **record} for record in records]
    header = ["", "seeds", measure.header, "95% CI", f"minus {against}, paired", "95% CI", "not done"]
    filled = [column for column in range(len(header)) if any(row[column] for row in rows)]
    notes = [*unmeasured(runs, measure), *not_compared(server), *mixed_code(rows_by_label), *reasons(runs)]
    return Sheet(
        title, [header[column] for column in filled], [[row[column] for column in filled] for row in rows],
        [f"{measure.note}, mean ± standard deviation over seeds.", *notes], records,
    )  # fmt: skip


def rank(label: str) -> tuple[int, str]:
    """A key that sorts rows by their labels."""
    name = _method(label)
    return (ORDER.index(name) if name in ORDER else len(ORDER), label)


def references(rows: dict[str, list[Run]], measure: Measure) -> dict[str, dict[int, float]]:
    """Ensembles, and single clients, which methods mostly share; what differs between them is that row's."""
    done = {label: mine for label, runs in rows.items() if (mine := [run for run in runs if run.summary])}
    names = dict.fromkeys(name for runs in done.values() for run in runs for name in _reported(run, measure))
    found = {label: values for name in names for label, values in _ensemble_rows(name, done, measure).items()}
    clients = {label: by_seed(runs, lambda summary: _mean(measure.clients(summary))) for label, runs in done.items()}
    return found | _shared("clients, mean", clients)


def _ensemble_rows(name: str, done: dict[str, list[Run]], measure: Measure) -> dict[str, dict[int, float]]:
    reported = {label: [run for run in runs if name in _reported(run, measure)] for label, runs in done.items()}
    own = {
        label: by_seed(runs, lambda summary: measure.ensembles(summary)[name])
        for label, runs in reported.items()
        if runs
    }
    return _shared(f"ensemble: {name}", own)


def _shared(name: str, own: dict[str, dict[int, float]]) -> dict[str, dict[int, float]]:
    """One row where the server's rows share a seed, each with some other, and agree in all; else one for each of them.

    Of rows without a seed in common nobody knows whether they are of one ensemble, or of one way to train clients.
    """
    told = {label: values for label, values in own.items() if values}
    if not told:
        return {}
    joined, *others = told.values()
    while (fitting := next((values for values in others if _fit(values, joined)), None)) is not None:
        joined = {**joined, **fitting}
        others.remove(fitting)
    if others:
        return {f"{name} of {label}": values for label, values in told.items()}
    return {name: dict(sorted(joined.items()))}


def _fit(first: dict[int, float], second: dict[int, float]) -> bool:
    shared = first.keys() & second.keys()
    return bool(shared) and all(first[seed] == second[seed] for seed in shared)


def _reported(run: Run, measure: Measure) -> list[str]:
    return list(measure.ensembles(run.summary)) if run.summary else []


def _mean(values: list[float]) -> float | None:
    return sum(values) / len(values) if values else None


def unmeasured(runs: list[Run], measure: Measure) -> list[str]:
    """Runs that are done and tell nothing of the measure: earlier versions did not take it, or it is not defined."""
    without = [run.summary for run in runs if run.summary and measure.server(run.summary) is None]
    undefined = sum(map(measure.taken, without))
    untold = len(without) - undefined
    return [
        *([f"{untold} finished runs do not tell it; run them again."] if untold else []),
        *([f"For {undefined} finished runs it is not defined on their test images."] if undefined else []),
    ]


def _row(values: dict[int, float]) -> list[str]:
    if not values:
        return ["", "–", ""]
    own = estimate(list(values.values()))
    return [", ".join(map(str, values)), percent(own), interval(own)]


def _gap(values: dict[int, float], difference: Estimate | None) -> list[str]:
    """A paired difference, with the number of its seeds where the row has others besides."""
    n = difference.n if difference else 0
    counted = [f"(n = {n})"] if n < len(values) else []
    if difference is None:
        return [" ".join(counted), ""]
    return [" ".join([percent(difference, signed=True), *counted]), interval(difference, signed=True)]


def _record(label: str, values: dict[int, float], difference: Estimate | None) -> dict[str, Any]:
    own = estimate(list(values.values())) if values else None
    return {
        "row": label,
        "n": len(values),
        "seeds": " ".join(map(str, values)),
        "mean": own and own.mean,
        "std": own and own.std,
        "ci95_half_width": own and own.half_width,
        "paired_n": difference and difference.n,
        "paired_difference": difference and difference.mean,
        "paired_ci95_half_width": difference and difference.half_width,
    }


def _not_done(runs: list[Run]) -> str:
    ordered = sorted(runs, key=lambda run: run.seed)
    return ", ".join(f"{run.status} {run.seed}" for run in ordered if run.status != "done")


def mixed_code(rows: dict[str, list[Run]]) -> list[str]:
    """Rows whose seeds were not all run by the same code: a difference between them need not be the seed's."""
    found = {label: digests(runs) for label, runs in rows.items()}
    return [f"{label}: run by code that differs: {', '.join(own)}." for label, own in found.items() if own[1:]]


def digests(runs: Iterable[Run]) -> list[str]:
    """Of the code of runs that are done, each once, shortened."""
    return sorted({code["digest"][:8] for run in runs if (code := (run.summary or {}).get("code"))})


def reasons(runs: list[Run]) -> list[str]:
    """Why runs failed, each reason once, without its full stop."""
    errors = dict.fromkeys(run.error.rstrip(".") for run in runs if run.status == "failed" and run.error)
    return [f"Failed: {error}." for error in errors]


def describe(run: Run) -> str:
    """Data, partition, architectures, conditions and budget of a group of runs in one line."""
    hidden = ("name", "min_samples", "retries", "_target_", "_partial_")
    partition = {key: value for key, value in run.setting("partition", {}).items() if key not in hidden}
    values = ", ".join(f"{key}={value}" for key, value in partition.items())
    told = [
        run.data,
        f"{run.partition}({values})",
        held_out(run),
        run.architectures,
        other_server(run),
        *conditions(run),
    ]
    return f"{', '.join(filter(None, told))}, budget {run.budget} ({local_epochs(run)}, {server_rounds(run)})"


def held_out(run: Run) -> str:
    """The share of the training set that was taken away from all clients; empty where none was."""
    return f"{run.setting('proxy.fraction'):.0%} held out" if run.holds_out else ""


def other_server(run: Run) -> str:
    """The server's architecture where it is not that of all clients, else empty."""
    return "" if {run.models["server"]} == set(run.models["clients"]) else f"server {run.models['server']}"


def local_epochs(run: Run) -> str:
    """How long clients train."""
    return f"{run.setting('clients.epochs')} local epochs"


def server_rounds(run: Run) -> str:
    """How long the server distils by the budget, also where a method takes another number of rounds by itself."""
    return f"{at(run.shared, 'distill.rounds')} rounds of {run.setting('distill.generator_steps')} generator steps"
