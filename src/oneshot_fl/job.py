"""One job: a composed configuration becomes a finished run in its folder, with the trace of how it stands."""

from pathlib import Path
from typing import Any

from omegaconf import DictConfig

from oneshot_fl.config import experiment_of
from oneshot_fl.config.record import choices
from oneshot_fl.reporting.finished import adopt, finished
from oneshot_fl.reporting.record import traced


def job(cfg: DictConfig, folder: Path) -> dict[str, Any]:
    """Check, run and remember one experiment, or find that it is done already; the summary.

    Raises:
        OneshotError: something is wrong with the configuration or the data.
    """
    with traced(folder, choices(cfg)) as trace:
        experiment = experiment_of(cfg)
        place = finished(experiment.record, experiment.config, experiment.store)
        trace.describe({**experiment.record, **({"key": place.key} if place else {})})
        if place and (done := place.find()):
            summary = adopt(done, folder)
            print(f"done before, in {done}: server accuracy {summary['server']['accuracy_last']:.2%}")
        else:
            from oneshot_fl.pipeline import run

            summary = run(experiment, folder)
    if place:
        place.remember(folder)
    return summary
