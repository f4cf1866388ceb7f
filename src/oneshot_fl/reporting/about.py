"""What loggers are told of a run: its name, its study, and what it may be compared with."""

from pathlib import Path
from typing import Any

from oneshot_fl.artifacts import fingerprint
from oneshot_fl.config.record import without
from oneshot_fl.experiment import Experiment, Serving
from oneshot_fl.phases.trainer import device_of
from oneshot_fl.reporting.finished import ANYWHERE
from oneshot_fl.reporting.run_result import Served
from oneshot_fl.reporting.tables.run import Run
from oneshot_fl.reporting.tables.runs import begun
from oneshot_fl.tracking.told import About, Outcome

UNLIKE = {"logger", "plots", *ANYWHERE} - {"study"}
"""Keys in which the same run may differ when it is begun again."""


def about(plan: Serving, folder: Path, *, of: str) -> About:
    """What a run of this plan is.

    Its id follows from the study, the settings, the code, the device and `of`: the same run begun again has the same.

    Args:
        of: key of what it works on, where that is not in the plan, as an aggregation's uploads.
    """
    record, config = plan.record, plan.config
    run, compared = begun(record), comparison(record, of=of)
    told = without(config, UNLIKE)
    where = device_of(plan.trainer).type
    return About(
        folder,
        id=fingerprint([told, record["study"], record["code"]["digest"], type(plan).__name__, where, of]),
        name="-".join([*_words(plan, run), f"seed{run.seed}"]),
        group=str(run.study),
        phases="+".join(phases(plan)),
        tags=(*_words(plan, run), f"protocol:{compared['protocol']}"),
        config={**config, "comparison": compared},
    )


def phases(plan: Serving) -> list[str]:
    """The phases that a run goes through, in the order of the data flow."""
    asked = {"guidance": "stratify", "recitals": "recite"}
    found = ["clients"] if isinstance(plan, Experiment) else []
    found += [phase for need, phase in asked.items() if need in plan.needs]
    return [*found, "distill"] if plan.method.sources else [*found, "average"]


def protocol(record: Any, *, of: str = "") -> str:
    """Eight digits that runs share which may be compared (`Run.protocol`), and that work on the same."""
    return fingerprint([begun(record).protocol, of])[:8]


def comparison(record: Any, *, of: str) -> dict[str, str]:
    """By what dashboards group: runs of one `protocol` may be compared, those of one `row` differ in their seed."""
    run, digits = begun(record), protocol(record, of=of)
    own = fingerprint([run.row])[:8]
    row = ", ".join([run.label, run.data, run.split, digits, own])
    return {"partition": run.split, "protocol": digits, "row": row}


def _words(plan: Serving, run: Run) -> list[str]:
    """Method, data, partition with how uneven it is, and the server's model."""
    return [run.method, run.data, f"{run.partition}{run.spread}", plan.student.name]


def outcome(summary: dict[str, Any], served: Served, files: list[Path]) -> Outcome:
    """What a finished run found, for loggers."""
    keys = {name: upload.key for name, upload in served.given.uploads.named().items()}
    return Outcome(summary, served.guidance.U.tolist() if served.guidance else None, keys, files)
