"""Bring your own data: a folder with `train/<class>/*` and `test/<class>/*`."""

from pathlib import Path

from oneshot_fl.data.dataset import Dataset, make_dataset
from oneshot_fl.data.decode import Byte, Decoding, Tones
from oneshot_fl.data.images import Tree, labelled, read_images, tree_by_class, unread
from oneshot_fl.data.sound import trained_on
from oneshot_fl.errors import OneshotError
from oneshot_fl.values import Channels, PathText, PixelDeviation, PixelMean, Positive, Side


def image_folder(
    *,
    root: PathText,
    cache: PathText,
    size: Side | None,
    channels: Channels,
    max_value: Positive | None,
    background: Byte,
    mean: PixelMean,
    std: PixelDeviation,
) -> Dataset:
    """Read every image below `root` (`read_images`); classes are the sorted names of the folders in `train`.

    Raises:
        OneshotError: a folder is missing, a class has no images in `train` or in `test` or is in `test` only, a file
            is no image, sizes differ.
    """
    folder = Path(root).absolute()
    train = train_tree(folder)
    classes = list(train)
    files = {
        "train": labelled(folder / "train", train, classes),
        "test": labelled(folder / "test", tree_by_class(folder / "test"), classes),
    }
    tones = Tones(max_value, background)
    parts = read_images(files, cache=cache, how=Decoding(size, channels, tones))
    left_out = unread([folder / part for part in files], files)
    return make_dataset(
        name=folder.name,
        train=parts["train"],
        test=parts["test"],
        class_names=tuple(classes),
        mean=mean,
        std=std,
        tones=tones,
        notes=left_out + trained_on(parts["train"][0], parts["test"][0], "data.root"),
    )


def train_tree(folder: Path, *, layout: str = "train/<class>/* and test/<class>/*") -> Tree:
    """The images of every folder in `<folder>/train`, sorted by its name.

    Raises:
        OneshotError: there is no `folder`, or fewer than two in it, which says which `layout` is needed; and as
            `tree_by_class`.
    """
    if not folder.is_dir():
        raise OneshotError(f"data.root: there is no folder {folder}; set data.root to one with {layout} images")
    found = tree_by_class(folder / "train")
    if len(found) < 2:
        nearer = f" ({folder.parent}, for instance)" if folder.name == "train" else ""
        raise OneshotError(
            f"data.root: {folder}/train holds {len(found)} class folders, at least 2 are needed: "
            f"set data.root to a folder with {layout} images{nearer}"
        )
    return found
