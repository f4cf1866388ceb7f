"""What a search over settings (`hydra/sweeper=optuna`) chooses by, and what it found; never by test images.

A search minimises the disagreement of the server's model with its ensemble on images that the model was not trained on
(`evaluate.validation`). Of many trials the best looks better than it is, so their number stands beside it.
"""

import json
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

import yaml

from oneshot_fl.config.named import code_of, named
from oneshot_fl.config.record import CONFIG, SUMMARY
from oneshot_fl.disk import write_atomically
from oneshot_fl.errors import OneshotError, one_line
from oneshot_fl.sweeps.lines import last_line
from oneshot_fl.sweeps.manifest import MANIFEST, read_manifest
from oneshot_fl.sweeps.rerun import GRID
from oneshot_fl.sweeps.state import Job, jobs_of

BEST = "best.json"


def searches(sweeper: str) -> bool:
    """Whether a sweeper of this class, by its dotted name, chooses jobs by what others gave."""
    return bool(sweeper) and sweeper.rpartition(".")[2] != GRID


def check_objective(sweeper: str, config: Mapping[str, Any] | None) -> None:
    """A search has something to choose by.

    Raises:
        OneshotError: it would have to look at test images.
    """
    if config is None or not searches(sweeper) or (config.get("evaluate") or {}).get("validation"):
        return
    raise OneshotError(
        "hydra/sweeper: a search must not choose by test images; set evaluate.validation=synthetic and "
        "distill.held_out=0.1, or evaluate.validation=proxy"
    )


def check_direction(sweeper: str, direction: object) -> None:
    """A search looks for the least disagreement, which is what it is told of each trial.

    Raises:
        OneshotError: it would look for the most, or for several values.
    """
    name = getattr(direction, "name", direction)  # Optuna's default is one of its own enum
    if searches(sweeper) and name not in (None, "minimize"):
        raise OneshotError(
            f"hydra.sweeper.direction={name}: must be minimize; a search is told one value of each trial, its "
            "disagreement, and the least is the best"
        )


def value_of(summary: Mapping[str, Any], sweeper: str) -> float:
    """What a job hands to its sweeper: what a search minimises, else the server's test accuracy.

    Raises:
        OneshotError: a search gets nothing to choose by, without a classifier or without a held-out image.
    """
    if not searches(sweeper):
        return float(summary["server"]["accuracy_last"])
    if summary["validation"] is None:
        raise OneshotError(_nothing_to_choose_by(summary))
    return float(summary["validation"]["disagreement"])


def _nothing_to_choose_by(summary: Mapping[str, Any]) -> str:
    if all(client["accuracy"] is None for client in summary["clients"]):
        return "evaluate.validation: there is no ensemble of classifiers to compare with; choose others"
    return "distill.held_out: of a batch of images this share is not even one; set a larger one"


def told(value: float, sweeper: str) -> str:
    """The same in words."""
    return f"validation disagreement {value:.2%}" if searches(sweeper) else f"server accuracy {value:.2%}"


def best_of(folder: Path, done: Collection[int]) -> str | None:
    """The best trial of the search in `folder` as a line, also written to `best.json`; without one neither is there.

    Of trials that agree equally often the one with the nearest probabilities is best; trials of the same settings count
    as one. Those of an earlier command count where code and data are still the same.

    Args:
        done: the numbers of those that this command ran, or found to be done.
    """
    if not (folder / MANIFEST).exists() or not searches((manifest := read_manifest(folder)).sweeper):
        return None
    found = {job: summary for job in jobs_of(folder, manifest) if (summary := _validated(job))}
    known = _of_now(found, done)
    others = f"{len(found) - len(known)} of other code or data" if len(found) > len(known) else ""
    if not known:
        (folder / BEST).unlink(missing_ok=True)
        return f"no trial counts: {others}; the same command runs them again" if others else None
    best, summary = min(known.items(), key=lambda pair: _order(pair[1]["validation"]))
    validation, accuracy = summary["validation"], summary["server"]["accuracy_last"]
    trials, count = len({*manifest.jobs.values()}), len({job.overrides for job in known})
    chosen = {"job": best.number, "overrides": list(best.overrides), "folder": str(best.folder)}
    record = {"trials": trials, "done": count, **chosen, "validation": validation, "test_accuracy": accuracy}
    write_atomically(folder / BEST, json.dumps(record, indent=1))
    if trials == 1:
        return f"all trials are the same ({best.what}): search a setting, as KEY=interval(a,b) or KEY=choice(a,b)"
    apart = f"{validation['disagreement']:.2%} disagreement on {validation['images']} {validation['of']} images"
    if count > 1 and len({_order(each["validation"]) for each in known.values()}) == 1:
        return (
            f"all {count} trials gave the very same, {apart}: what is searched ({best.what}) changes nothing here; a "
            "method may have its own, as method.student_optimizer.lr"
        )
    return (
        f"best of {count} trial{'s' * (count > 1)} by {apart}: {best.what}; its test accuracy, by which nothing was "
        f"chosen, is {accuracy:.2%}; {best.folder}{others and f'; {others} do not count'}"
    )


def closing_lines(folder: Path, done: Collection[int]) -> list[str]:
    """What a sweep says when it ends; where its folder cannot be read any more, why, which changes no exit code."""
    try:
        return [line for line in (last_line(folder), best_of(folder, done)) if line]
    except OneshotError:  # what lies there is no sweep, as the launcher has said
        return []
    except (OSError, ValueError, KeyError, TypeError) as error:
        return [f"{folder}: cannot tell what came of the sweep ({one_line(error)})"]


def _validated(job: Job) -> dict[str, Any] | None:
    """The summary of a job that is done and has something to compare it by."""
    if job.status != "done" or job.folder is None:
        return None
    summary: dict[str, Any] = json.loads((job.folder / SUMMARY).read_text())
    return summary if summary.get("validation") else None


def _of_now(found: Mapping[Job, dict[str, Any]], done: Collection[int]) -> dict[Job, dict[str, Any]]:
    """The trials that count, of those that have something to compare them by."""
    now = {job: summary for job, summary in found.items() if job.number in done}
    data = {summary.get("data_sha256") for summary in (now or found).values()}
    alike = {job: summary for job, summary in found.items() if summary.get("data_sha256") in data}
    return now | {job: summary for job, summary in alike.items() if job in now or _is_of_this_code(job, summary)}


def _is_of_this_code(job: Job, summary: Mapping[str, Any]) -> bool:
    """Whether a trial would run the code again that it ran."""
    if job.folder is None:
        return False
    try:
        config = yaml.safe_load((job.folder / CONFIG).read_text())
        digest: str = code_of(config, named(config))
    except (OneshotError, OSError, yaml.YAMLError):  # what it ran is gone
        return False
    return digest == (summary.get("code") or {}).get("digest")


def _order(validation: Mapping[str, Any]) -> tuple[float, float]:
    return validation["disagreement"], validation["divergence"]
