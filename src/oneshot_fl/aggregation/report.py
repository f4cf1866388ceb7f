"""What an aggregation tells: `summary.json`, `report.json`, and the same report as a page."""

from collections.abc import Sequence
from typing import Any

from oneshot_fl.aggregation.contribution import Contributions, uncovered
from oneshot_fl.aggregation.federation import Federation
from oneshot_fl.experiment import Serving
from oneshot_fl.phases.evaluate import Evaluated
from oneshot_fl.recipe import described
from oneshot_fl.reporting.cost import ledger_of_server
from oneshot_fl.reporting.page.markup import Html, element, table
from oneshot_fl.reporting.run_result import Served
from oneshot_fl.reporting.summary import by_class, sureness
from oneshot_fl.reporting.versions import versions

SCHEMA = 1
STYLE = "body{font:16px sans-serif;margin:2em auto;max-width:60em}td,th{text-align:left;padding:.2em 1em .2em 0}"
TITLE = "<title>Aggregation</title>"
HEAD = f"<head><meta charset='utf-8'>{TITLE}<style>{STYLE}</style></head>"
HEADER = ("upload", "model", "samples", "says most often", "answers that change without it")


def report_of(
    federation: Federation,
    served: Served,
    added: Contributions | None,
    evaluated: Evaluated | None,
    notes: Sequence[str],
) -> dict[str, Any]:
    """Who was used and what it adds, who was turned away and why, as built-in types; shares are fractions."""
    uploads, names = served.given.uploads, federation.class_names
    used = [_accepted(federation, name, upload.key) for name, upload in uploads.named().items()]
    if added is not None:
        for row, change, favourite, share in zip(used, added.changes, added.favourites, added.shares, strict=False):
            row |= {"changes_without_it": change, "says_most_often": names[favourite], "how_often": share}
    if evaluated is not None:
        for row, accuracy in zip(used, evaluated.accuracies.clients, strict=False):
            row["accuracy"] = accuracy
    return {
        "schema": SCHEMA,
        "accepted": used,
        "quarantined": [{"name": one.name, "reason": one.reason} for one in uploads.quarantined],
        "class_names": list(names),
        "classes_of_nobody": [names[j] for j in (uncovered(uploads) if added is None else added.uncovered)],
        "images_asked": 0 if added is None else added.images,
        "test_images": None if evaluated is None else sum(evaluated.server.images),
        "tested": None if evaluated is None else _tested(evaluated, names),
        "notes": list(notes),
    }


def _tested(evaluated: Evaluated, names: tuple[str, ...]) -> dict[str, Any]:
    """What the model does on the test images, class by class."""
    return {"accuracy": evaluated.accuracies.server, **by_class(evaluated.server, names)}


def _accepted(federation: Federation, name: str, key: str) -> dict[str, Any]:
    member = next(one for one in federation.members if one.name == name)
    told = member.description
    return {
        "name": name,
        "kind": told.kind,
        "model": "+".join(one.name for one in member.architectures),
        "samples": told.samples,
        "classes": len(told.class_names),
        "sha256": member.sha256,
        "key": key,
    }


def summary_of(
    federation: Federation,
    plan: Serving,
    served: Served,
    evaluated: Evaluated | None,
    report: dict[str, Any],
    seconds: float,
) -> dict[str, Any]:
    """`summary.json` of an aggregation, of a kind of its own; accuracies are fractions, None without a test set."""
    own = plan.method.ensemble
    accuracies = None if evaluated is None else evaluated.accuracies
    return {
        "schema": SCHEMA,
        "kind": "aggregation",
        "method": plan.method.name,
        "changed": plan.record["changed"],
        "seed": plan.record["seed"],
        "data_spec": {**described(federation.spec), "class_names": list(federation.class_names)},
        "accepted": [one["name"] for one in report["accepted"]],
        "quarantined": report["quarantined"],
        "test_images": report["test_images"],
        "ensemble": {
            "name": own.name if own else "uniform",
            "rows": None if accuracies is None else accuracies.ensembles,
        },
        "server": {
            "accuracy_last": None if accuracies is None else accuracies.server,
            **{key: value for key, value in (report["tested"] or {}).items() if key != "accuracy"},
            **({} if evaluated is None else sureness(served.calibration, evaluated)),
            "model": plan.student.name,
            "key": served.server.key,
        },
        "rounds": served.server.history,
        "seconds": seconds,
        "cost": ledger_of_server([served]),
        "versions": versions(),
    }


def as_html(report: dict[str, Any]) -> str:
    """The report as one page that needs nothing else; whatever uploads say is escaped."""
    accepted = table(HEADER, map(_row, report["accepted"]))
    turned_away = table(("upload", "why"), ((one["name"], one["reason"]) for one in report["quarantined"]))
    used = f"{len(report['accepted'])} uploads used, {len(report['quarantined'])} in quarantine"
    body = element(
        "body",
        element("h1", used),
        *(element("h2", "Used"), accepted, element("p", f"Asked on {report['images_asked']} synthetic images.")),
        *(element("h2", "Quarantine"), turned_away),
        element("h2", "Classes that nobody speaks for"),
        element("p", ", ".join(report["classes_of_nobody"]) or "none"),
        *_of_tests(report),
        *(element("p", note) for note in report["notes"]),
    )
    return f"<!doctype html><html>{HEAD}{body}</html>\n"


def is_report(text: str) -> bool:
    """Whether a text is such a page."""
    return TITLE in text


def _of_tests(report: dict[str, Any]) -> list[Html]:
    """How right the model is, class by class, and the uploads are alone; nothing where there was no test set."""
    if (tested := report["tested"]) is None:
        return []
    rows = ((row["class"], row["images"], _share(row["recall"]), _share(row["auroc"])) for row in tested["by_class"])
    own = ((one["name"], _share(one["accuracy"])) for one in report["accepted"] if "accuracy" in one)
    balanced = f"{tested['balanced_accuracy']:.1%} in the mean of the classes"
    return [
        element("h2", "Tested"),
        element("p", f"Right on {tested['accuracy']:.1%} of {report['test_images']} images, {balanced}."),
        table(("class", "images", "of these right", "AUROC"), rows),
        table(("upload", "right alone"), own),
    ]


def _share(value: float | None) -> str:
    return "–" if value is None else f"{value:.1%}"


def _row(one: dict[str, Any]) -> tuple[Any, ...]:
    """An upload that was used, in the columns of `HEADER`."""
    return (
        one["name"],
        one["model"],
        "–" if one["samples"] is None else one["samples"],
        f"{one['says_most_often']} ({one['how_often']:.0%})" if "how_often" in one else "–",
        _share(one.get("changes_without_it")),
    )
