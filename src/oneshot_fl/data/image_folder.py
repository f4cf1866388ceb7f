"""Bring your own data: a folder with `train/<class>/*` and `test/<class>/*`."""

from pathlib import Path

from oneshot_fl.data.dataset import Dataset, make_dataset
from oneshot_fl.data.images import class_files, read_images, subfolders
from oneshot_fl.errors import OneshotError
from oneshot_fl.values import Channels, Deviations, Means, PathText, Side


def image_folder(
    *, root: PathText, cache: PathText, size: Side | None, channels: Channels, mean: Means, std: Deviations
) -> Dataset:
    """Read every image below `root` (`read_images`); classes are the sorted names of the folders in `train`.

    Raises:
        OneshotError: a folder is missing or empty, a class is in `test` only, a file is no image, sizes differ.
    """
    folder = Path(root).absolute()
    classes = train_classes(folder)
    files = {split: class_files(folder / split, classes) for split in ("train", "test")}
    parts = read_images(folder, files, cache=cache, size=size, channels=channels)
    return make_dataset(name=folder.name, **parts, class_names=tuple(classes), mean=mean, std=std)


def train_classes(folder: Path, *, layout: str = "train/<class>/* and test/<class>/*") -> list[str]:
    """The sorted names of the folders in `<folder>/train`.

    Raises:
        OneshotError: there are fewer than two; says which `layout` is needed.
    """
    classes = subfolders(folder / "train")
    if len(classes) < 2:
        raise OneshotError(
            f"data.root: {folder}/train holds {len(classes)} class folders, at least 2 are needed: "
            f"set data.root to a folder with {layout} images"
        )
    return classes
