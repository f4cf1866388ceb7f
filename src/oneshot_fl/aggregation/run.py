"""One aggregation: a folder or zip of uploads in, one self-describing model and a report out."""

import json
import os
import time
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import yaml
from rich.console import Console

from oneshot_fl.aggregation.classes import note_of_look_alikes, note_of_unused
from oneshot_fl.aggregation.contribution import contributions
from oneshot_fl.aggregation.federation import Federation, federation_of
from oneshot_fl.aggregation.found import found_in
from oneshot_fl.aggregation.report import as_html, is_report, report_of, summary_of
from oneshot_fl.artifacts import fingerprint, tensor_hash
from oneshot_fl.config.record import CONFIG, MODEL, SUMMARY, TRACE
from oneshot_fl.config.serving import Entrance, entrance_of, serving_of
from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.decode import Decoding, Origin
from oneshot_fl.data.images import Tree, check_layout, labelled, read_images, tree_by_class, unread
from oneshot_fl.disk import make_folder, require_own, write_atomically
from oneshot_fl.errors import NothingLeftError, OneshotError
from oneshot_fl.experiment import Serving
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.parts.uploads import Quarantined
from oneshot_fl.phases.evaluate import Evaluated
from oneshot_fl.phases.trainer import device_of
from oneshot_fl.pipeline import assess, serve
from oneshot_fl.process import Interrupted, say
from oneshot_fl.recipe import described
from oneshot_fl.reporting.about import outcome
from oneshot_fl.reporting.earlier import require_no_others, tell_of_export
from oneshot_fl.reporting.run_result import Served
from oneshot_fl.reporting.server_file import server_description, write_server
from oneshot_fl.session import session
from oneshot_fl.sweeps.alone import LOCK, alone_in
from oneshot_fl.tracking.progress import terminal

REPORT, REPORT_DATA = "report.html", "report.json"
WHITE = "uploads tell which value is white, all of them the same (oneshot-fl pack --max-value)"
"""What is to be done where test images have more than 8 bits."""
STRICT = "--strict: nothing is made where an upload is turned away"


def aggregate(
    uploads: Path,
    overrides: Sequence[str],
    *,
    out: Path,
    test: Path | None,
    strict: bool,
    allow: Collection[str],
) -> dict[str, Any]:
    """Make one model of uploads; `out` gets `server.safetensors`, `summary.json`, `report.json` and `report.html`.

    Args:
        uploads: a folder or zip.
        overrides: of the server's half of the configuration.
        out: the folder for the results.
        test: a folder with a folder of images for each class, where there is one.
        strict: stop at the first upload that is turned away.
        allow: architectures that are imported although they are not ours.

    Returns:
        The summary.

    Raises:
        NothingLeftError: no upload can be used, and it is not `strict`.
        OneshotError: something is wrong with the uploads, the overrides, or the test set; `out` holds a run
            or somebody else's files, or another process works there; or an upload was turned away, and it is `strict`.
    """
    _check_apart(uploads, out)
    _check_free(out)
    new = not out.exists()
    make_folder(out)
    with _left_as_it_was(out, new=new), alone_in(out, wait=False):
        return _aggregated(uploads, overrides, out=out, test=test, strict=strict, allow=allow)


@contextmanager
def _left_as_it_was(out: Path, *, new: bool) -> Iterator[None]:
    """If something fails or is stopped: an earlier model stays, and must not be taken for this one; else nothing does.

    Args:
        new: whether the folder was made for this.
    """
    earlier = _state_of(out / MODEL)
    try:
        yield
    except (OneshotError, Interrupted):
        if (left := _state_of(out / MODEL)) and left == earlier:
            say(f"{out / MODEL}: is of an earlier aggregation, and stays as it is")
        elif left:
            say(f"{out / MODEL}: is this one's, but not all that tells of it is there; the same command ends it")
        elif new:
            (out / LOCK).unlink(missing_ok=True)
            with suppress(OSError):  # somebody has put something there
                out.rmdir()
        raise


def _state_of(file: Path) -> tuple[int, int] | None:
    """Which file lies there: one that takes its place is another, whatever it holds; None where there is none."""
    if not file.exists():
        return None
    status = file.stat()
    return status.st_ino, status.st_mtime_ns


def _aggregated(
    uploads: Path, overrides: Sequence[str], *, out: Path, test: Path | None, strict: bool, allow: Collection[str]
) -> dict[str, Any]:
    begun, console = time.perf_counter(), terminal()
    tree, entrance = known_before(overrides, test)
    with _nothing_left(strict):
        federation = federation_of(found_in(uploads), allow=allow, entrance=entrance)
    _stop_if(strict, federation.uploads.quarantined)
    architectures = [
        each
        for member in federation.members
        if member.description.kind == "classifier"
        for each in member.architectures
    ]
    with _turned_away_told(federation.uploads.quarantined):
        plan, of_plan = serving_of(federation.uploads, federation.spec, architectures, overrides)
        _description(federation, plan)
        tested, of_test = (None, ()) if test is None or tree is None else _test_set(test, tree, federation, plan)
    notes = [
        *of_plan,
        *federation.notes,
        *note_of_look_alikes(federation.class_names),
        *of_test,
        *_note_of_untested(federation, tested),
    ]
    data_key = _key(federation, tested)
    with session(plan, out, console, of=fingerprint([federation.uploads.key, data_key])) as context:
        for note in notes:
            context.progress.note(note)
        with _nothing_left(strict):
            served = serve(plan, federation.uploads, federation.spec, test=tested, data_key=data_key, context=context)
        _stop_if(strict, served.given.uploads.quarantined)
        late = note_of_unused(federation, served.given.uploads)
        for note in late:
            context.progress.note(note)
        evaluated = None if tested is None else assess(plan, served, tested, context)
        seconds = time.perf_counter() - begun
        summary = _written(out, federation, plan, served, evaluated, [*notes, *late], seconds, console)
        context.log.outcome(outcome(summary, served, [out / MODEL, out / SUMMARY]))
    return summary


def known_before(overrides: Sequence[str], test: Path | None) -> tuple[Tree | None, Entrance]:
    """The test set's files, and what is asked of single uploads.

    Raises:
        OneshotError: what is wrong with either, before uploads are read, which may take minutes, or clients train.
    """
    return None if test is None else _found_in_test(test), entrance_of(overrides)


def _description(federation: Federation, plan: Serving) -> ModelDescription:
    """What the model's file will say of it, or an `OneshotError` that says why nothing could read it again."""
    return server_description(
        plan.student, federation.spec, federation.class_names, method=plan.method.name, tones=federation.tones
    )


def _check_apart(uploads: Path, out: Path) -> None:
    """The next call would take a `server.safetensors` among the uploads for a client's."""
    if Path(os.path.realpath(out)).is_relative_to(os.path.realpath(uploads)):
        raise OneshotError(
            f"--out {out}: is {uploads} itself or lies in it, where the next call would take {MODEL} for an upload; "
            "choose a folder outside of it"
        )


def _check_free(out: Path) -> None:
    """An earlier aggregation is made again from its uploads; a run may have taken days, and other files are others'."""
    for path in (out / SUMMARY, out / TRACE):
        if what := _other_than_aggregation(path):
            raise OneshotError(
                f"--out {out}: holds {what} ({path.name}), which would be replaced; choose another folder, or move "
                "what is there away"
            )
    require_own(out / REPORT, is_report, "report of an aggregation", "another folder")
    if not (out / LOCK).exists():  # else one that was stopped may have left no more than some of its files
        require_no_others(out, also=(REPORT_DATA,))


def _other_than_aggregation(path: Path) -> str | None:
    """What a summary or trace is of; None of an aggregation's, and where there is none."""
    try:
        found = json.loads(path.read_text())
    except (FileNotFoundError, NotADirectoryError):
        return None
    except (OSError, ValueError):
        found = None
    if not isinstance(found, dict):
        return "something that is no aggregation"
    if found.get("kind") == "aggregation":
        return None
    return f"a run of method={found.get('method')} data={found.get('data')}"


@contextmanager
def _nothing_left(strict: bool) -> Iterator[None]:
    """Where it is strict, uploads of which none is left are uploads that were turned away, as any other."""
    try:
        yield
    except NothingLeftError as error:
        if strict:
            raise OneshotError(f"{error} ({STRICT})") from error
        raise


@contextmanager
def _turned_away_told(quarantined: Sequence[Quarantined]) -> Iterator[None]:
    """An error about those that are left comes before the notes, and may have its cause in one that is not."""
    try:
        yield
    except OneshotError:
        for one in quarantined:
            say(one.told)
        raise


def _stop_if(strict: bool, quarantined: Sequence[Quarantined]) -> None:
    if strict and quarantined:
        first = quarantined[0]
        raise OneshotError(f"{first.name}: {first.reason} ({STRICT})")


def _origin(test: Path) -> Origin:
    return Origin(f"test={test}", WHITE)


def _found_in_test(folder: Path) -> Tree:
    """The test images by class, whatever classes the federation has; there are some."""
    origin = _origin(folder)
    found = tree_by_class(folder, origin)
    check_layout(folder, found, origin)
    labelled(folder, found, list(found), complete=False, origin=origin)
    return found


def _test_set(folder: Path, found: Tree, federation: Federation, plan: Serving) -> tuple[ImageBatches, tuple[str, ...]]:
    """Test images, decoded to the federation's size, and notes on them; every folder is one of its classes."""
    spec, origin = federation.spec, _origin(folder)
    files = labelled(folder, found, list(federation.class_names), complete=False, origin=origin)
    how = Decoding(spec.size, spec.channels, federation.tones)
    images, labels = read_images({"test": files}, cache=str(plan.store), how=how, origin=origin)["test"]
    device = device_of(plan.trainer)
    batches = ImageBatches(images.to(device), labels.to(device), spec=spec, batch_size=plan.evaluation.batch_size)
    return batches, unread([folder], {"test": files}, origin)


def _note_of_untested(federation: Federation, test: ImageBatches | None) -> list[str]:
    """Classes without a test image: of them the accuracy tells nothing."""
    if test is None:
        return []
    there = set(test.labels.unique().tolist())
    absent = [name for label, name in enumerate(federation.class_names) if label not in there]
    return [f"test: no image of {', '.join(absent)}, so its accuracy tells nothing of them"] if absent else []


def _key(federation: Federation, test: ImageBatches | None) -> str:
    """Of the images' space and of the test set, whose accuracies are in the history."""
    tested = None if test is None else tensor_hash((test.images, test.labels))
    return fingerprint([described(federation.spec), list(federation.class_names), tested])


def _written(
    out: Path,
    federation: Federation,
    plan: Serving,
    served: Served,
    evaluated: Evaluated | None,
    notes: Sequence[str],
    seconds: float,
    console: Console,
) -> dict[str, Any]:
    """Everything that an aggregation leaves; the summary comes last, so that where it is all is."""
    used = served.given.uploads
    added = contributions(used, served.server, federation.spec) if used.classifiers else None
    report = report_of(federation, served, added, evaluated, notes)
    summary = summary_of(federation, plan, served, evaluated, report, seconds)
    accuracy = summary["server"]["accuracy_last"]
    write_server(
        out, served.server.model, _description(federation, plan), accuracy=accuracy, temperature=served.temperature
    )
    tell_of_export(out)
    write_atomically(out / CONFIG, yaml.safe_dump(dict(plan.config), sort_keys=False))
    write_atomically(out / REPORT_DATA, json.dumps(report, indent=1))
    write_atomically(out / REPORT, as_html(report))
    write_atomically(out / SUMMARY, json.dumps(summary, indent=1))
    console.print(f"{_told(summary)}; report: {out / REPORT}", soft_wrap=True)
    return summary


def _told(summary: dict[str, Any]) -> str:
    """What was used and, where there is a test set, how right the model is on it."""
    accepted, turned_away = len(summary["accepted"]), len(summary["quarantined"])
    used = f"{accepted} of {accepted + turned_away} uploads used"
    server = summary["server"]
    if server["accuracy_last"] is None:
        return used
    return f"{used}, test accuracy {server['accuracy_last']:.2%} of {summary['test_images']} images"
