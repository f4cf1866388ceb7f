"""One job: an experiment becomes a finished run in its folder, with the trace of how it stands."""

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oneshot_fl.reporting.finished import adopt, finished
from oneshot_fl.reporting.record import traced

if TYPE_CHECKING:
    from oneshot_fl.experiment import Experiment


def job(bind: Callable[[], "Experiment"], known: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Bind, run and remember one experiment, or find that it is done already; the summary.

    Args:
        bind: makes the experiment, or says what is wrong with it: that is part of the trace.
        known: what can be told of the run before.

    Raises:
        OneshotError: something is wrong with the configuration or the data.
    """
    with traced(folder, known) as trace:
        experiment = bind()
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
