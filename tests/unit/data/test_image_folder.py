from pathlib import Path

import pytest

from oneshot_fl.data.image_folder import image_folder
from oneshot_fl.errors import OneshotError
from tests.unit.data.image_files import write_image


@pytest.fixture
def folder(tmp_path):
    for split in ("train", "test"):
        for label, name in enumerate(("ant", "bee")):
            for number in range(3):
                write_image(tmp_path / "insects" / split / name / f"{number}.png", 40 * label + number)
    return tmp_path / "insects"


def _load(folder: Path, **options):
    settings = {"size": None, "channels": 3, "mean": [0.5], "std": [0.5]} | options
    return image_folder(root=str(folder), cache=str(folder.parent / "store"), **settings)


def test_a_tree_of_images_becomes_tensors(folder):
    data = _load(folder)
    assert data.class_names == ("ant", "bee")
    assert data.train_images.shape == (6, 3, 8, 8)
    assert data.train_images[:, 0, 0, 0].tolist() == [0, 1, 2, 40, 41, 42]
    assert data.test_labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_grey_and_resized(folder):
    data = _load(folder, channels=1, size=4)
    assert data.train_images.shape == (6, 1, 4, 4)


def test_images_are_decoded_once(folder, monkeypatch):
    first = _load(folder)
    monkeypatch.setattr("oneshot_fl.data.images._decode", None)  # a second decoding would fail
    assert _load(folder).fingerprint == first.fingerprint


def test_a_changed_file_is_decoded_again(folder):
    first = _load(folder)
    write_image(folder / "train" / "ant" / "0.png", 200)
    assert _load(folder).fingerprint != first.fingerprint


def test_a_missing_folder(tmp_path):
    with pytest.raises(OneshotError, match=r"data\.root.*train/<class>"):
        _load(tmp_path / "nowhere")


def test_a_class_that_only_the_test_set_has(folder):
    write_image(folder / "test" / "cow" / "0.png", 1)
    with pytest.raises(OneshotError, match="cow"):
        _load(folder)


def test_a_file_that_is_no_image_is_named(folder):
    (folder / "train" / "ant" / "9.png").write_text("no image")
    with pytest.raises(OneshotError, match=r"9\.png is not a readable image"):
        _load(folder)


def test_an_odd_size_is_named_with_the_way_out(folder):
    write_image(folder / "train" / "bee" / "9.png", 1, size=9)
    with pytest.raises(OneshotError, match=r"data\.size.*9x9.*data\.size=8"):
        _load(folder)


def test_an_empty_test_set(folder):
    for path in (folder / "test").rglob("*.png"):
        path.unlink()
    with pytest.raises(OneshotError, match="no image file"):
        _load(folder)


def test_test_images_of_another_size_than_those_of_training(folder):
    write_image(folder / "test" / "bee" / "9.png", 1, size=9)
    with pytest.raises(OneshotError, match=r"data\.size.*test/bee/9\.png is 9x9.*data\.size=8"):
        _load(folder)


def test_a_class_folder_without_images_does_not_shift_kept_labels(folder):
    _load(folder)
    (folder / "train" / "aardvark").mkdir()
    data = _load(folder)
    assert data.class_names == ("aardvark", "ant", "bee")
    assert data.train_labels.tolist() == [1, 1, 1, 2, 2, 2]
