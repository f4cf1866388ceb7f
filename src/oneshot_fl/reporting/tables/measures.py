"""What a table of our own can tell of a run: accuracy, or a figure that does not follow the frequent classes."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from oneshot_fl.errors import OneshotError

Summary = dict[str, Any]
METRICS = {
    "accuracy": "Test accuracy in percent",
    "balanced_accuracy": "Mean recall of the classes in percent",
    "macro_auroc": "Mean area under the ROC curve of each class against all others, in percent",
    "ece": "Expected calibration error in percent (0 is best)",
}
"""What each is, in a table's note."""
ENSEMBLE_ROWS = {"accuracy": "rows", "balanced_accuracy": "balanced"}
"""Where a summary holds it for every ensemble, which nobody asked for the others."""


@dataclass(frozen=True)
class Measure:
    """Where a summary holds it; None or nothing where it does not, as in summaries of earlier versions."""

    key: str
    """The server's figure in a summary."""
    header: str
    note: str
    server: Callable[[Summary], float | None]
    ensembles: Callable[[Summary], dict[str, float]]
    """By the ensemble's name."""
    taken: Callable[[Summary], bool]
    """Whether the run looked for it at all; what it looked for and tells as null is not defined on its test images."""
    clients: Callable[[Summary], list[float]]
    """Of those that upload a classifier."""
    lower_is_better: bool = False

    @property
    def sign(self) -> int:
        """What makes more of it better."""
        return -1 if self.lower_is_better else 1


def measure_of(metric: str, *, which: str) -> Measure:
    """The measure of one of `METRICS` after the `last` or `best` round of the server.

    Raises:
        OneshotError: there is no such figure, or it is only taken after the last round.
    """
    if metric not in METRICS:
        raise OneshotError(f"--metric {metric}: there is no such figure; choose from {', '.join(METRICS)}")
    if metric != "accuracy" and which != "last":
        raise OneshotError(f"--metric {metric}: is taken after the last round only; leave out --which {which}")
    key = f"accuracy_{which}" if metric == "accuracy" else metric
    return Measure(
        key=key,
        header=f"server, {which} round",
        note=METRICS[metric],
        server=lambda summary: summary["server"].get(key),
        ensembles=lambda summary: summary["ensemble"].get(ENSEMBLE_ROWS.get(metric)) or {},
        taken=lambda summary: key in summary["server"],
        clients=lambda summary: [own for client in summary["clients"] if (own := client.get(metric)) is not None],
        lower_is_better=metric == "ece",
    )
