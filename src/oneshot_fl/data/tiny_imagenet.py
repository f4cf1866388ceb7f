"""Tiny ImageNet (Le & Yang 2015) as it is distributed; Co-Boosting, Table 12."""

from pathlib import Path

from oneshot_fl.data.dataset import Dataset, make_dataset
from oneshot_fl.data.decode import Decoding
from oneshot_fl.data.image_folder import train_tree
from oneshot_fl.data.images import Tree, images_in, labelled, read_images, tree_by_class
from oneshot_fl.errors import OneshotError
from oneshot_fl.values import PathText, PixelDeviation, PixelMean, Side

ANNOTATIONS = "val_annotations.txt"


def tiny_imagenet(
    *, root: PathText, cache: PathText, size: Side | None, mean: PixelMean, std: PixelDeviation
) -> Dataset:
    """Tiny ImageNet: 100,000 + 10,000 colour 64x64 pictures, 200 classes, named by their WordNet ids.

    Reads `train/<class>/images/*` and, as the test set, `val/images/*` with `val/val_annotations.txt`; a `val` that is
    already sorted into class folders does as well. The official test set has no labels.

    Raises:
        OneshotError: a folder or the annotations are missing or do not fit each other, a class has no images in one of
            the two, a file is no image.
    """
    folder = Path(root).absolute()
    train = train_tree(folder, layout="train/<class>/images/* and val/images/*")
    classes, val = list(train), folder / "val"
    test = _annotated(val, classes) if images_in(val / "images") else tree_by_class(val)
    files = {"train": labelled(folder / "train", train, classes), "test": labelled(val, test, classes)}
    parts = read_images(files, cache=cache, how=Decoding(size, channels=3))
    train_set, test_set = parts["train"], parts["test"]
    return make_dataset(
        name="tiny_imagenet", train=train_set, test=test_set, class_names=tuple(classes), mean=mean, std=std
    )


def _annotated(folder: Path, classes: list[str]) -> Tree:
    """The images of `<folder>/images` by the classes that the file of annotations beside it gives them."""
    table = folder / ANNOTATIONS
    annotations = _read_annotations(table)
    images = {path.name: path for path in images_in(folder / "images")}
    if missing := sorted(annotations.keys() - images.keys()):
        raise OneshotError(
            f"data.root: {folder}/images lacks {len(missing)} files that {table} names: {missing[0]}, ..."
        )
    found: Tree = {name: [] for name in classes}
    for name, path in images.items():
        if annotations.get(name) not in found:
            raise OneshotError(f"data.root: {table} gives no class of the training set for images/{name}")
        found[annotations[name]].append(path)
    return found


def _read_annotations(table: Path) -> dict[str, str]:
    """File name -> class; a line holds both and a box, separated by tabs."""
    try:
        lines = table.read_text().splitlines()
    except (OSError, ValueError) as error:
        raise OneshotError(f"data.root: {table} cannot be read ({error}); it labels the images in images/") from error
    rows = [[*line.split("\t"), ""] for line in lines if line]
    return {row[0]: row[1] for row in rows}
