import shutil

import pytest

from oneshot_fl.data.tiny_imagenet import tiny_imagenet
from oneshot_fl.errors import OneshotError
from tests.unit.data.image_files import write_image

ANT, BEE = "n01", "n02"


@pytest.fixture
def official(tmp_path):
    """Two classes of two training images, and three test images whose names do not tell their class."""
    root = tmp_path / "tiny-imagenet-200"
    for label, name in enumerate((ANT, BEE)):
        for number in range(2):
            write_image(root / "train" / name / "images" / f"{name}_{number}.JPEG", 100 * label)
        (root / "train" / name / f"{name}_boxes.txt").write_text("no image")
    for number, value in enumerate((100, 0, 100)):
        write_image(root / "val" / "images" / f"val_{number}.JPEG", value)
    (root / "val" / "val_annotations.txt").write_text(
        "".join(f"val_{number}.JPEG\t{name}\t0\t0\t62\t62\n" for number, name in enumerate((BEE, ANT, BEE)))
    )
    return root


def _only_bees(root):
    table = root / "val" / "val_annotations.txt"
    table.write_text(table.read_text().replace(ANT, BEE))


def _load(root, **options):
    settings = {"size": 8, "mean": [0.5], "std": [0.5]} | options
    return tiny_imagenet(root=str(root), cache=str(root.parent / "store"), **settings)


def test_the_official_layout(official):
    data = _load(official)
    assert data.class_names == (ANT, BEE)
    assert data.train_images.shape == (4, 3, 8, 8)
    assert data.train_labels.tolist() == [0, 0, 1, 1]
    assert data.test_labels.tolist() == [0, 1, 1]
    assert data.test_images[:, 0, 0, 0].tolist() == [0, 100, 100]


@pytest.mark.parametrize("inner", ["", "images"])
@pytest.mark.parametrize("leftover", [True, False])
def test_a_val_that_is_sorted_into_class_folders(official, inner, leftover):
    val = official / "val"
    for number, name in enumerate((BEE, ANT, BEE)):
        (val / name / inner).mkdir(parents=True, exist_ok=True)
        shutil.move(val / "images" / f"val_{number}.JPEG", val / name / inner)
    if not leftover:
        shutil.rmtree(val / "images")
        (val / "val_annotations.txt").unlink()
    data = _load(official)
    assert data.test_labels.tolist() == [0, 1, 1]
    assert data.test_images[:, 0, 0, 0].tolist() == [0, 100, 100]


def test_changed_annotations_count_although_images_are_kept(official):
    _load(official)
    table = official / "val" / "val_annotations.txt"
    table.write_text(table.read_text().replace(f"val_0.JPEG\t{BEE}", f"val_0.JPEG\t{ANT}"))
    assert _load(official).test_labels.tolist() == [0, 0, 1]


@pytest.mark.parametrize(
    ("damage", "says"),
    [
        (lambda root: (root / "val" / "val_annotations.txt").unlink(), r"val_annotations\.txt cannot be read"),
        (_only_bees, r"val has no image file of n01 "),
        (lambda root: (root / "val" / "images" / "val_1.JPEG").unlink(), r"lacks 1 files .*: val_1\.JPEG"),
        (lambda root: write_image(root / "val" / "images" / "val_9.JPEG", 0), r"no class .* images/val_9\.JPEG"),
        (lambda root: (root / "val" / "val_annotations.txt").write_text("val_0.JPEG\n"), r"no class .*val_0\.JPEG"),
        (lambda root: shutil.rmtree(root / "val"), r"no image file in .*val"),
        (lambda root: shutil.rmtree(root / "train"), r"train holds 0 class folders.*train/<class>/images"),
        (lambda root: write_image(root / "val" / "n03" / "0.JPEG", 0), None),
    ],
)
def test_what_does_not_fit_is_named(official, damage, says):
    damage(official)
    if says is None:
        shutil.rmtree(official / "val" / "images")
        says = "classes that are not among n01, n02: n03"
    with pytest.raises(OneshotError, match=rf"^data\.root: .*{says}"):
        _load(official)
