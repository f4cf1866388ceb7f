"""What loggers are told of a run: its name, its study, and what it may be compared with."""

from pathlib import Path
from typing import Any

from oneshot_fl.artifacts import fingerprint
from oneshot_fl.experiment import Experiment, Serving
from oneshot_fl.phases.trainer import device_of
from oneshot_fl.reporting.run_result import Served
from oneshot_fl.reporting.tables.runs import SPREADS, begun
from oneshot_fl.tracking.told import About, Outcome

UNLIKE = ("logger", "store", "hydra", "plots", "workers")
"""Keys in which the same run may differ when it is begun again."""


def about(plan: Serving, folder: Path, *, of: str) -> About:
    """What a run of this plan is.

    Its id follows from the study, the settings, the code, the device and `of`: the same run begun again has the same.

    Args:
        of: key of what it works on, where that is not in the plan, as an aggregation's uploads.
    """
    record, config = plan.record, plan.config
    told = {key: value for key, value in config.items() if key not in UNLIKE}
    where = device_of(plan.trainer).type
    return About(
        folder,
        id=fingerprint([told, record["study"], record["code"]["digest"], type(plan).__name__, where, of]),
        name="-".join([*_words(plan), f"seed{record['seed']}"]),
        group=str(record["study"]),
        phases="+".join(phases(plan)),
        tags=(*_words(plan), f"protocol:{protocol(record)}"),
        config=config,
    )


def phases(plan: Serving) -> list[str]:
    """The phases that a run goes through, in the order of the data flow."""
    asked = {"guidance": "stratify", "recitals": "recite"}
    found = ["clients"] if isinstance(plan, Experiment) else []
    found += [phase for need, phase in asked.items() if need in plan.needs]
    return [*found, "distill"] if plan.method.sources else [*found, "average"]


def protocol(record: Any) -> str:
    """Eight digits that runs share which may be compared (`Run.protocol`)."""
    return fingerprint(begun(record).protocol)[:8]


def _words(plan: Serving) -> list[str]:
    """Method, data, partition with how uneven it is, and the server's model."""
    partition = plan.config["partition"]
    spread = partition.get(SPREADS.get(partition["name"], ""))
    return [plan.method.name, plan.record["data"], f"{partition['name']}{_plain(spread)}", plan.student.name]


def _plain(value: Any) -> str:
    return "" if value is None else f"{value:g}" if isinstance(value, int | float) else str(value)


def outcome(summary: dict[str, Any], served: Served, files: list[Path]) -> Outcome:
    """What a finished run found, for loggers."""
    keys = {name: upload.key for name, upload in served.given.uploads.named().items()}
    return Outcome(summary, served.guidance.U.tolist() if served.guidance else None, keys, files)
