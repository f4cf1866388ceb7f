"""One job: an experiment becomes a finished run in its folder, with the trace of how it stands."""

from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oneshot_fl.config.record import SUMMARY
from oneshot_fl.devices import arithmetic, lease_device
from oneshot_fl.errors import UNTOLD, OneshotError
from oneshot_fl.process import say
from oneshot_fl.reporting.earlier import drawn_in, require_free
from oneshot_fl.reporting.finished import Finished, adopt, finished, hashes_of, join_sweep, record_of
from oneshot_fl.reporting.record import traced
from oneshot_fl.sweeps.alone import alone_in
from oneshot_fl.tracking.progress import terminal

if TYPE_CHECKING:
    from oneshot_fl.experiment import Experiment

COMMAND = ("overrides", "searched")
"""What whoever asks for a run knows of its command; a composed configuration only knows that of Hydra's own jobs."""


def job(
    bind: Callable[[], "Experiment"],
    known: Mapping[str, Any],
    config: Mapping[str, Any] | None,
    folder: Path,
    *,
    check: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """Find that a run is done already, or lease a device, bind, run and remember it, and print it; the summary.

    It is remembered only if its code and data stayed the same while it was under way, and under the arithmetic that it
    had: what was looked for is a guess, made before torch is loaded (`devices.arithmetic_here`). The device comes
    before the folder: a process keeps its device for all its jobs, so it would never end to wait for a folder whose
    holder waits for that device.

    Args:
        bind: makes the experiment, or says what is wrong with it: that, as what is wrong with its data, is part of the
            trace, but for a single run in the folder of a result, which stays as it is.
        known: what can be told of the run before.
        config: the whole configuration, plain and resolved; None where that cannot be, which `bind` says.
        folder: for all that it leaves; of several processes one works there at a time.
        check: raises where what has come of the run must not count.

    Raises:
        OneshotError: something is wrong with the configuration or the data, or the folder cannot be written, or holds
            what no run has left there.
    """
    place = remembered(config)
    done = place and place.find(folder)
    if place and done == folder:  # nothing is written there, and perhaps nothing can be
        return _done_before(place, folder, known, folder)
    device = None if done else _device(config)
    with alone_in(folder):
        if place and (done := place.find(folder)):
            return _done_before(place, done, known, folder)
        device = device or _device(config)
        bound = _seen_through(bind()) if (folder / SUMMARY).is_file() and "job" not in known else None
        require_free(folder)
        with traced(folder, known) as trace:
            if device:
                trace.on(device)
            experiment = bound or bind()
            used = _device_used(experiment)
            if device is None or device.split(":")[0] != used:
                trace.on(used)
            place = place and replace(place, arithmetic=arithmetic(used, experiment.trainer.precision))
            record = {**experiment.record, **{key: known[key] for key in COMMAND if key in known}}
            trace.describe({**record, **_own(known), **(place.told if place else {})})
            from oneshot_fl.pipeline import run
            from oneshot_fl.reporting.printed import print_summary

            summary = run(replace(experiment, record=record), folder)
            check()
            trace.record |= hashes_of(folder)
            if place and not _is_still(place, config):
                trace.record = {key: told for key, told in trace.record.items() if key not in place.told}
                place = None
        if place:
            _remember(place, folder)
        print_summary(terminal(), summary, [folder / SUMMARY, *drawn_in(folder)])
        return summary


def _seen_through(experiment: "Experiment") -> "Experiment":
    """The same, once all is seen that can be seen before a result is about to be another's; it is forgotten again."""
    from oneshot_fl.pipeline import ready

    ready(experiment)
    return experiment


def _done_before(place: Finished, done: Path, known: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Make `folder` what a finished run is, and say so; the summary."""
    summary = take_over(done, known, folder)
    _remember(place, folder)
    print(f"done before, in {done}: server accuracy {summary['server']['accuracy_last']:.2%}")
    return summary


def _remember(place: Finished, folder: Path) -> None:
    """A run that is done stays done where its store cannot be written any more, which only is told."""
    try:
        place.remember(folder)
    except OneshotError as error:
        say(f"{error}; until then this run is found in its own folder alone")


def remembered(config: Mapping[str, Any] | None) -> Finished | None:
    """Where a run would be remembered; None where it cannot be, or where the door has to say what is wrong with it."""
    try:
        return finished(config) if config is not None else None
    except UNTOLD:
        return None


def _is_still(place: Finished, config: Mapping[str, Any] | None) -> bool:
    """Whether code and data are, once a run has ended, what its key was made of before it began.

    In between it may have waited for hours, for a device or a folder, and read what was edited meanwhile.
    """
    now = remembered(config)
    return now is not None and now.key == place.key


def take_over(done: Path, known: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Make `folder`, in which nobody else works (`alone_in`), what a finished run is; the summary.

    A folder that is that run itself stays as it is, but for the number that a sweep gives it only now.

    Raises:
        OneshotError: it cannot be written.
        OSError, ValueError: the run was moved or damaged meanwhile.
    """
    if done.resolve() == folder.resolve():
        join_sweep(folder, known)
        return adopt(done, folder)
    require_free(folder)
    with traced(folder, record_of(done, known)):
        return adopt(done, folder)


def _device_used(experiment: "Experiment") -> str:
    """The kind of device that a run computes on: torch may not be able to use the one that was leased."""
    from oneshot_fl.phases.trainer import device_of

    return device_of(experiment.trainer).type


def _own(known: Mapping[str, Any]) -> dict[str, Any]:
    """What a sweep knows of a job and its experiment does not."""
    return {key: known[key] for key in ("job",) if key in known}


def _device(config: Mapping[str, Any] | None) -> str | None:
    """One device for this process, before CUDA starts; None where the configuration asks for none."""
    trainer = (config or {}).get("trainer")
    if not isinstance(trainer, Mapping):
        return None
    jobs = trainer.get("jobs_per_gpu")
    if type(jobs) is not int or jobs < 1:  # the door says what it must be
        return None
    return lease_device(str(trainer.get("accelerator")), jobs, waiting=say)
