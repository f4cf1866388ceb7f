"""One-shot federated learning: every client uploads its model once, the server makes one good model of them.

The public face: `run` an experiment, `aggregate` other people's uploads, `load` the global model that either left, read
the `results` of many runs, have the `uploads` of a run's clients as files. Threads that run, aggregate, train or load
take turns; processes do not.
"""

from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oneshot_fl.errors import OneshotError
from oneshot_fl.imported import watch
from oneshot_fl.process import one_at_a_time
from oneshot_fl.version import __version__

if TYPE_CHECKING:
    from oneshot_fl.aggregation.of_run import ClientUpload
    from oneshot_fl.serving.model import ServedModel

__all__ = ["Result", "__version__", "aggregate", "load", "results", "run", "train_client", "uploads"]

watch()


@dataclass(frozen=True)
class Result:
    """What a run or an aggregation left."""

    summary: dict[str, Any]
    """`summary.json`; accuracies are fractions."""
    folder: Path
    """Absolute."""

    @property
    def accuracy(self) -> float | None:
        """The server's test accuracy after the last round, a fraction; None of an aggregation without a test set."""
        return self.summary["server"]["accuracy_last"]

    def model(self, *, allow: Collection[str] = ()) -> "ServedModel":
        """The global model, as `load` gives it.

        Raises:
            OneshotError: another run or aggregation has taken the folder since, or its model cannot be read.
        """
        from oneshot_fl.reporting.earlier import holds

        if not holds(self.folder, self.summary):
            raise OneshotError(
                f"{self.folder}: holds another result by now; give every run a folder of its own, or take the model "
                f"that is there with oneshot_fl.load({str(self.folder)!r})"
            )
        return load(self.folder, allow=allow)


def run(*overrides: str, folder: str | Path | None = None, config_dir: str | Path | None = None) -> Result:
    """One run, as `python -m oneshot_fl OVERRIDES` does it: `run("method=dense", "data=mnist", "data.root=DIR")`.

    Args:
        overrides: Hydra's, one `key=value` each.
        folder: for everything that the run leaves; by default a new one below `outputs/`.
        config_dir: a folder of your own YAML files, as `--config-dir` takes it.

    Raises:
        OneshotError: something is wrong with the overrides or the data, in one line that says what.
    """
    from oneshot_fl.config import from_overrides
    from oneshot_fl.job import job

    _check_overrides(overrides, "run")
    _check_paths(folder=folder, config_dir=config_dir, optional=("folder", "config_dir"))
    place = Path("outputs", datetime.now().strftime("%Y-%m-%d/%H-%M-%S-%f")) if folder is None else Path(folder)
    found = place.absolute()  # also after the caller has gone to another folder
    with _turn(config_dir):
        return Result(job(*from_overrides(*overrides), place), found)


def aggregate(
    uploads: str | Path,
    *overrides: str,
    folder: str | Path,
    test: str | Path | None = None,
    strict: bool = False,
    allow: Collection[str] = (),
    config_dir: str | Path | None = None,
) -> Result:
    """One model of other people's uploads, as `oneshot-fl aggregate UPLOADS --out FOLDER` makes it.

    Args:
        uploads: a folder or zip with one `.safetensors` file a client (`oneshot-fl pack`).
        overrides: of the server's settings: `aggregate("uploads", "method=dense", folder="out")`.
        folder: for the model and the report.
        test: a folder with a folder of images for each class, where there is one.
        strict: stop at the first upload that is turned away.
        allow: architectures that are imported although they are not ours: `["torchvision.models.resnet18"]`; a text is
            one name.
        config_dir: a folder of your own YAML files, of which `overrides` choose.

    Raises:
        NothingLeftError: no upload can be used, and it is not `strict`.
        OneshotError: something is wrong with the uploads, the overrides or the test set, in one line that says what.
    """
    from oneshot_fl.aggregation.run import aggregate as make

    _check_paths(uploads=uploads, folder=folder, test=test, config_dir=config_dir, optional=("test", "config_dir"))
    _check_overrides(overrides, "aggregate", first="uploads, ")
    _check_names(allow=allow)
    _check_switches(strict=strict)
    tested, found = None if test is None else Path(test), Path(folder).absolute()
    with _turn(config_dir):
        summary = make(Path(uploads), overrides, out=Path(folder), test=tested, strict=strict, allow=allow)
    return Result(summary, found)


def train_client(
    folder: str | Path,
    *overrides: str,
    out: str | Path,
    number: int = 0,
    classes: Sequence[str] = (),
    counts: bool = False,
    config_dir: str | Path | None = None,
) -> str:
    """Train one client of a federation on its own images, write its upload and return the upload's SHA-256.

    It trains as client `number` of a run does: with the same settings and samples it gets the same weights.

    Args:
        folder: one folder of images for each class.
        overrides: of clients' settings: `train_client("images", "model=cnn2", "data.size=28", out="a.safetensors")`;
            of the others `partition.clients` and, where the clients need it, `method=NAME`.
        out: the upload, ending in `.safetensors`.
        number: of the client, from 0; its random draws depend on it.
        classes: of the federation, in an order that all clients share; by default those that there are images of.
        counts: whether the upload tells how many samples of each class there are.
        config_dir: a folder of your own YAML files: `model=small` is its `model/small.yaml`.

    Raises:
        OneshotError: something is wrong with the images or the overrides, or training diverged, in one line.
    """
    from oneshot_fl.aggregation.client import train_client as train

    _check_paths(folder=folder, out=out, config_dir=config_dir, optional=("config_dir",))
    _check_overrides(overrides, "train_client", first="folder, ")
    _check_names(classes=classes)
    _check_switches(counts=counts)
    if type(number) is not int:
        raise OneshotError(f"number={number!r}: must be a whole number of at least 0")
    if not Path(folder).is_dir():
        raise OneshotError(f"folder={folder}: there is no such folder; give one with a folder of images for each class")
    with _turn(config_dir):
        return train(Path(folder), overrides, out=Path(out), number=number, class_names=classes, counts=counts)


def uploads(*overrides: str, folder: str | Path, config_dir: str | Path | None = None) -> "list[ClientUpload]":
    """What the clients of a run upload, as files: for `aggregate`, `load`, or a server of your own.

    The clients are trained, or come from the store where a run has trained them. Each has its `file` and the `indices`
    of its training images.

    Args:
        overrides: those of the run: `uploads("data=mnist", "data.root=DIR", "budget=reduced", folder="uploads")`. An
            attack has been made on the uploads, and they tell label counts where the method asks for them; gate,
            hearing and all that the server does come later.
        folder: a new or an empty one, for a `client-K.safetensors` each.
        config_dir: a folder of your own YAML files, of which `overrides` choose.

    Raises:
        OneshotError: something is wrong with the overrides or the data, or the folder holds something, in one line.
    """
    from oneshot_fl.aggregation.of_run import uploads_of_run

    _check_paths(folder=folder, config_dir=config_dir, optional=("config_dir",))
    _check_overrides(overrides, "uploads")
    with _turn(config_dir):
        return uploads_of_run(overrides, Path(folder))


def load(place: str | Path, *, allow: Collection[str] = ()) -> "ServedModel":
    """The global model in a folder that a run left, or in a model file, in evaluation mode.

    `model.predict(images)` takes files, folders, Pillow's pictures or pixels. Called with images `[b, C, H, W]` that
    are normalised as `model.spec` says, it gives logits `[b, c]`. It waits for runs in other threads: a model that is
    built draws from the random numbers that all threads share.

    Args:
        allow: names of functions or classes, not ours, that may be imported to build the model.

    Raises:
        OneshotError: there is no such model, its file is damaged, it does not answer as its file says, or its
            architecture is not allowed.
    """
    from oneshot_fl.ambient import undisturbed
    from oneshot_fl.serving.load import load as loaded

    _check_paths(place=place)
    _check_names(allow=allow)
    with one_at_a_time(), undisturbed():
        return loaded(Path(place), allow=allow)


def results(*folders: str | Path) -> list[dict[str, Any]]:
    """The summaries of every finished run in or below `folders`, oldest first; of copies (`done before`) one.

    Raises:
        OneshotError: there is no folder, or one is missing or holds no run.
    """
    from oneshot_fl.reporting.tables.runs import every_run

    if not folders:
        raise OneshotError('results(): needs a folder of runs, for instance results("outputs")')
    for folder in folders:
        _check_paths(folder=folder)
    return [run.summary for run in every_run(map(Path, folders)) if run.summary]


@contextmanager
def _turn(config_dir: str | Path | None) -> Iterator[None]:
    """What a run, an aggregation or a client has for itself: this process, the caller's YAML files, Hydra and torch."""
    from oneshot_fl.ambient import undisturbed
    from oneshot_fl.config.compose import apart_from_a_callers, reading_also

    with one_at_a_time(), reading_also(config_dir), apart_from_a_callers(), undisturbed():
        yield


def _check_overrides(overrides: Sequence[object], function: str, *, first: str = "") -> None:
    for each in overrides:
        if isinstance(each, list | tuple):
            raise OneshotError(f"{each!r}: overrides are given one by one; write {function}({first}*{each!r})")
        if not isinstance(each, str) or not each.strip():
            raise OneshotError(f"{each!r}: must be an override, a text like 'seed=0'")


def _check_paths(*, optional: Collection[str] = (), **places: object) -> None:
    for name, place in places.items():
        if place is None and name in optional:
            continue
        if not isinstance(place, str | PathLike) or place == "" or "\0" in str(place):
            raise OneshotError(f"{name}={place!r}: must be a path, a text or a pathlib.Path")


def _check_names(**given: object) -> None:
    for name, names in given.items():
        if not isinstance(names, Collection) or not all(isinstance(each, str) for each in names):
            raise OneshotError(f"{name}={names!r}: must be names, as in {name}=['a', 'b']")


def _check_switches(**given: object) -> None:
    for name, value in given.items():
        if type(value) is not bool:
            raise OneshotError(f"{name}={value!r}: must be True or False")
