"""Where metrics go while a run is under way: Lightning's loggers behind one `RunLog`.

Every metric is named `phase/quantity` and carries a step on its own axis (an epoch or a round). What a logger can show
beyond metrics is a matter of its sink: what only Weights & Biases shows is in `tracking.wandb_run`.
"""

import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Protocol

from oneshot_fl.disk import writing
from oneshot_fl.errors import OneshotError, named_line, one_line
from oneshot_fl.process import again_and_again, interruption, say
from oneshot_fl.tracking.told import METRICS, About, Outcome

if TYPE_CHECKING:
    from lightning.pytorch.loggers import CSVLogger, Logger
    from torch import Tensor


KEPT = 5.0
"""Seconds for which rows of `metrics.csv` may wait in memory."""


class Sink(Protocol):
    """One receiver."""

    shows_images: bool

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Take in metrics at a step of their axis."""

    def images(self, name: str, images: "Tensor", step: int) -> None:
        """Take in images, bytes `[n, C, H, W]`, at a step of their axis."""

    def figures(self, paths: Mapping[str, Path]) -> None:
        """Take in the run's figures."""

    def outcome(self, outcome: Outcome) -> None:
        """Take in what was found."""

    def close(self, failed: bool) -> None:
        """Flush and close, also after an error."""


class RunLog:
    """Several receivers as one; a context manager that closes them even on error."""

    def __init__(self, sinks: Sequence[Sink], *, prefix: str = "") -> None:
        self.sinks, self.prefix = list(sinks), prefix

    def within(self, prefix: str) -> "RunLog":
        """The same receivers, with every name behind `prefix`."""
        return RunLog(self.sinks, prefix=prefix)

    @property
    def shows_images(self) -> bool:
        """Whether anybody looks at images."""
        return any(sink.shows_images for sink in self.sinks)

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Hand metrics to everybody."""
        for sink in self.sinks:
            sink.log({self.prefix + name: value for name, value in metrics.items()}, step)

    def images(self, name: str, images: "Tensor", step: int) -> None:
        """Hand images to everybody who shows them."""
        for sink in self.sinks:
            if sink.shows_images:
                sink.images(self.prefix + name, images, step)

    def figures(self, paths: Mapping[str, Path]) -> None:
        """Hand figures to everybody."""
        for sink in self.sinks:
            sink.figures(paths)

    def outcome(self, outcome: Outcome) -> None:
        """Hand what was found to everybody."""
        for sink in self.sinks:
            sink.outcome(outcome)

    def __enter__(self) -> "RunLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        with ExitStack() as closing:  # one that fails to close does not keep the others open
            for sink in self.sinks:
                closing.callback(sink.close, failed=error is not None)


class LoggerSink:
    """Any of Lightning's loggers: metrics."""

    shows_images = False

    def __init__(self, logger: "Logger") -> None:
        self.logger = logger

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Metrics under their step."""
        if metrics:
            self.logger.log_metrics(dict(metrics), step)

    def images(self, name: str, images: "Tensor", step: int) -> None:
        """Lightning has no word for them."""

    def figures(self, paths: Mapping[str, Path]) -> None:
        """They lie in the run's folder already."""

    def outcome(self, outcome: Outcome) -> None:
        """It lies in the run's folder already."""

    def close(self, failed: bool) -> None:
        """Flush, and say how it ended."""
        self.logger.finalize("failed" if failed else "success")


class CsvSink(LoggerSink):
    """A file of the run's folder: it belongs to the run's results, so a full disk is an error of the run.

    The logger rewrites its whole file for each new column, as every client has one; so rows wait for `KEPT` seconds and
    are written together, also where nothing more is logged for hours. The first tells at once whether that can be done.

    Raises:
        OneshotError: from `log` and `close`, where it cannot be written.
    """

    def __init__(self, logger: "CSVLogger") -> None:
        super().__init__(logger)
        self._file = str(Path(logger.log_dir) / METRICS)
        self._lock, self._begun, self._saving = Lock(), False, ExitStack()
        self._error: OSError | None = None

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """A row under their step."""
        with self._lock, writing(self._file):
            if self._error:
                raise self._error
            super().log(metrics, step)
            if not self._begun:
                self.logger.save()
                self._saving.enter_context(again_and_again(self._save, KEPT))
                self._begun = True

    @property
    def _waiting(self) -> bool:
        """Whether there are rows in memory."""
        logger: Any = self.logger
        return bool(logger.experiment.metrics)

    def _save(self) -> None:
        """In a thread; an error is kept for whoever logs next."""
        with self._lock:
            if not self._waiting:
                return
            try:
                self.logger.save()
            except OSError as error:
                self._error = error

    def close(self, failed: bool) -> None:
        """Write what is left."""
        self._saving.close()
        with writing(self._file):
            if self._error:
                raise self._error
            super().close(failed)


class TensorBoardSink(LoggerSink):
    """TensorBoard also shows images and figures."""

    shows_images = True

    def images(self, name: str, images: "Tensor", step: int) -> None:
        """In a row, under their step."""
        self._writer.add_images(name, images, step)

    def figures(self, paths: Mapping[str, Path]) -> None:
        """Every figure under its own name."""
        from matplotlib.image import imread

        for name, path in paths.items():
            picture = imread(path)
            self._writer.add_image(name, picture, dataformats="HWC" if picture.ndim == 3 else "HW")

    @property
    def _writer(self) -> Any:
        logger: Any = self.logger
        return logger.experiment


class Dispensable:
    """A sink that a run can do without: its first error is told in one line, and then it is only closed."""

    def __init__(self, sink: Sink, name: str) -> None:
        self._sink, self._name, self._failed = sink, name, False
        self.shows_images = sink.shows_images

    def log(self, metrics: Mapping[str, float], step: int) -> None:
        """Hand metrics on."""
        self._hand(self._sink.log, metrics, step)

    def images(self, name: str, images: "Tensor", step: int) -> None:
        """Hand images on."""
        self._hand(self._sink.images, name, images, step)

    def figures(self, paths: Mapping[str, Path]) -> None:
        """Hand figures on."""
        self._hand(self._sink.figures, paths)

    def outcome(self, outcome: Outcome) -> None:
        """Hand what was found on."""
        self._hand(self._sink.outcome, outcome)

    def close(self, failed: bool) -> None:
        """Close it, also where it has failed before: it may still hold a file or a connection."""
        self._try(self._sink.close, failed)

    def _hand(self, receive: Callable[..., None], *given: object) -> None:
        if not self._failed:
            self._try(receive, *given)

    def _try(self, receive: Callable[..., None], *given: object) -> None:
        try:
            receive(*given)
        except Exception as error:
            if stopped := interruption():  # an extension module may have made this error of it
                raise stopped from error
            if not self._failed:
                say(f"logger: {self._name} failed ({named_line(error)}) and gets nothing more; the run goes on")
            self._failed, self.shows_images = True, False


def sink_of(logger: "Logger") -> Sink:
    """The sink that gets the most out of a logger.

    Raises:
        OneshotError: the logger's service cannot be reached.
    """
    from lightning.pytorch.loggers import CSVLogger, TensorBoardLogger, WandbLogger

    warnings.filterwarnings("ignore", message="Experiment logs directory .* exists")  # it is the run's own folder
    if isinstance(logger, WandbLogger):
        from oneshot_fl.tracking.wandb_run import WandbSink

        return WandbSink(logger)
    if isinstance(logger, CSVLogger):
        return CsvSink(logger)
    return TensorBoardSink(logger) if isinstance(logger, TensorBoardLogger) else LoggerSink(logger)


def opened(build: Any, settings: Mapping[str, Any], about: About) -> Sink:
    """A logger's sink, from what builds the logger and what its file sets; the rest it is told of the run.

    What it raises later is told and ends no run, unless it is `metrics.csv` that cannot be written.

    Raises:
        OneshotError: it cannot be built here, or its service cannot be reached.
    """
    name = str(settings.get("_target_"))
    try:
        sink = sink_of(build(**_told(build, settings, about)))
    except OneshotError:
        raise
    except ImportError as error:
        extra = "; pip install 'oneshot-fl[mlflow]'" if name.endswith(".MLFlowLogger") else ""
        raise OneshotError(f"logger: {name} needs another package ({one_line(error)}){extra}") from error
    except Exception as error:  # anybody's: a logger may be a user's own
        raise OneshotError(
            f"logger: {name} cannot be opened ({named_line(error)}); it is called with its keys and save_dir, "
            "the run's folder"
        ) from error
    return sink if isinstance(sink, CsvSink) else Dispensable(sink, name)


def _told(build: Any, settings: Mapping[str, Any], about: About) -> dict[str, Any]:
    """What a logger is told of the run, where its file says nothing else."""
    from lightning.pytorch.loggers import WandbLogger

    told: dict[str, Any] = {"save_dir": str(about.folder)}
    if _class_of(build) is WandbLogger:
        from oneshot_fl.tracking.wandb_run import told_of

        told |= told_of(about, settings)
    own = {"name": settings["name"]} if "name" in settings else {}  # elsewhere it is a label, here the logger's own
    return {key: value for key, value in told.items() if settings.get(key) is None} | own


def _class_of(build: Any) -> Any:
    return getattr(build, "func", build)
