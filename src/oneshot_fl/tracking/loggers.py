"""Where metrics go while a run is under way: metrics.csv, Weights & Biases, TensorBoard.

Every metric is named `phase/quantity` and carries a step on its own axis (an epoch or a round).
"""

import csv
import os
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Protocol

from oneshot_fl.errors import OneshotError


class Logger(Protocol):
    """One receiver of metrics."""

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Take in metrics at a step of their axis."""

    def figures(self, paths: Mapping[str, Path]) -> None:
        """Take in the run's figures."""

    def close(self, failed: bool) -> None:
        """Flush and close, also after an error."""


class RunLog:
    """Several loggers as one; a context manager that closes them even on error."""

    def __init__(self, loggers: Sequence[Logger], *, prefix: str = "") -> None:
        self.loggers, self.prefix = list(loggers), prefix

    def within(self, prefix: str) -> "RunLog":
        """The same loggers, with every metric's name behind `prefix`."""
        return RunLog(self.loggers, prefix=prefix)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Hand metrics to every logger."""
        for logger in self.loggers:
            logger.log({self.prefix + name: value for name, value in metrics.items()}, step)

    def figures(self, paths: Mapping[str, Path]) -> None:
        """Hand figures to every logger."""
        for logger in self.loggers:
            logger.figures(paths)

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as closing:  # one that fails to close does not keep the others open
            for logger in self.loggers:
                closing.callback(logger.close, failed=error is not None)


class CsvLogger:
    """`metrics.csv` in long form (metric, step, value), flushed line by line so that a killed run keeps its own."""

    def __init__(self, folder: Path) -> None:
        self._file = (folder / "metrics.csv").open("w", newline="", buffering=1)
        self._writer = csv.writer(self._file)
        self._writer.writerow(("metric", "step", "value"))

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """One row per metric."""
        self._writer.writerows((name, step, repr(value)) for name, value in metrics.items())

    def figures(self, paths: Mapping[str, Path]) -> None:
        """Figures lie in the run's folder already."""

    def close(self, failed: bool) -> None:
        """Close the file."""
        self._file.close()


class TensorBoardLogger:
    """Scalars and figures as TensorBoard event files in `<run>/tensorboard`."""

    def __init__(self, folder: Path) -> None:
        from torch.utils.tensorboard import SummaryWriter

        self._writer = SummaryWriter(str(folder / "tensorboard"))

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """One scalar per metric."""
        for name, value in metrics.items():
            self._writer.add_scalar(name, value, step)

    def figures(self, paths: Mapping[str, Path]) -> None:
        """Every figure under its own name."""
        from matplotlib.image import imread

        for name, path in paths.items():
            self._writer.add_image(name, imread(path), dataformats="HWC")

    def close(self, failed: bool) -> None:
        """Flush and close."""
        self._writer.close()


class WandbLogger:
    """One Weights & Biases run per job, named from the choices and grouped by study.

    Args:
        mode: `online`, `offline`, or None: WANDB_MODE if set, else online where an API key is known, else offline.
        config: the resolved configuration.
    """

    def __init__(
        self,
        folder: Path,
        *,
        project: str,
        entity: str | None,
        study: str,
        run_name: str,
        mode: str | None,
        config: Any,
    ) -> None:
        import wandb

        chosen = mode or os.environ.get("WANDB_MODE") or ("online" if wandb.api.api_key else "offline")
        try:
            self._run = wandb.init(
                project=project,
                entity=entity,
                group=study,
                name=run_name,
                dir=str(folder),
                mode=chosen,  # type: ignore[arg-type]
                config=config,
                reinit="finish_previous",
                settings=wandb.Settings(silent=True, console="off"),
            )
        except wandb.Error as error:
            raise OneshotError(
                f"logger: Weights & Biases cannot start ({error}); use logger.mode=offline or logger=csv"
            ) from error
        self._wandb = wandb
        self._axes: set[str] = set()

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Log against an axis per phase (`distill/step`), because phases count different things."""
        axes = {f"{name.rsplit('/', 1)[0]}/step" for name in metrics}
        for axis in axes - self._axes:
            self._run.define_metric(f"{axis.removesuffix('/step')}/*", step_metric=axis)
        self._axes |= axes
        self._run.log({**metrics, **dict.fromkeys(axes, step)})

    def figures(self, paths: Mapping[str, Path]) -> None:
        """Every figure as an image panel."""
        self._run.log({name: self._wandb.Image(str(path)) for name, path in paths.items()})

    def close(self, failed: bool) -> None:
        """Finish the run; a failed job is marked as such."""
        self._run.finish(exit_code=1 if failed else 0)
