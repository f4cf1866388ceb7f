import shutil

import pytest

from oneshot_fl.data.domains import image_domains
from oneshot_fl.errors import OneshotError
from tests.unit.data.image_files import write_image

VALUES = {"cartoon": 10, "photo": 20, "sketch": 30}
"""A domain and the value of its first class's pixels; it has 1 + its place images a class."""


@pytest.fixture
def folder(tmp_path):
    for place, (domain, value) in enumerate(VALUES.items()):
        for label, name in enumerate(("cat", "dog")):
            for number in range(1 + place):
                write_image(tmp_path / "animals" / domain / name / f"{number}.png", value + label)
    (tmp_path / "animals" / "splits").mkdir()
    (tmp_path / "animals" / "splits" / "train.txt").write_text("no domain")
    return tmp_path / "animals"


def _load(folder, held_out, **options):
    settings = {
        "domains": None,
        "size": None,
        "channels": 3,
        "max_value": None,
        "background": 128,
        "mean": [0.5],
        "std": [0.5],
    } | options
    return image_domains(root=str(folder), cache=str(folder.parent / "store"), held_out=held_out, **settings)


def test_one_domain_is_the_test_set_and_the_others_are_the_training_set(folder):
    data = _load(folder, "photo")
    assert data.class_names == ("cat", "dog")
    assert data.domain_names == ("cartoon", "sketch")
    assert data.train_images[:, 0, 0, 0].tolist() == [10, 11, 30, 30, 30, 31, 31, 31]
    assert data.train_labels.tolist() == [0, 1, 0, 0, 0, 1, 1, 1]
    assert data.train_domains.tolist() == [0, 0, 1, 1, 1, 1, 1, 1]
    assert data.test_images[:, 0, 0, 0].tolist() == [20, 20, 21, 21]
    assert data.test_labels.tolist() == [0, 0, 1, 1]


def test_named_domains_in_their_order(folder):
    data = _load(folder, "cartoon", domains=["sketch", "cartoon"])
    assert data.domain_names == ("sketch",)
    assert data.train_images[:, 0, 0, 0].tolist() == [30, 30, 30, 31, 31, 31]


def test_another_held_out_domain_decodes_nothing_again(folder, monkeypatch):
    first = _load(folder, "photo")
    monkeypatch.setattr("oneshot_fl.data.images._decoded", None)
    second = _load(folder, "sketch")
    assert second.test_images[:, 0, 0, 0].tolist() == [30, 30, 30, 31, 31, 31]
    assert first.fingerprint != second.fingerprint


def test_domains_that_are_numbers(folder):
    for year, domain in ((2019, "photo"), (2020, "sketch")):
        (folder / domain).rename(folder / str(year))
    assert _load(folder, 2019, domains=[2019, 2020]).domain_names == ("2020",)


@pytest.mark.parametrize(
    ("held_out", "domains", "line", "quoted"),
    [
        (202301, None, r"there is no domain 202301; .*2023_01.* ", r"data\.held_out=\"2023_01\""),
        ("photo", [202301, "photo"], r"lacks 202301; .* ", r"data\.domains=\[\"2023_01\",\.\.\.\]"),
    ],
)
def test_a_name_of_which_hydra_makes_another_number_is_told_with_its_quotes(folder, held_out, domains, line, quoted):
    (folder / "sketch").rename(folder / "2023_01")
    with pytest.raises(OneshotError, match=rf"{line}in two kinds of quotes, '{quoted}'$"):
        _load(folder, held_out, domains=domains)


def test_one_name_is_one_domain_however_the_disk_or_the_keyboard_composes_it(folder):
    (folder / "sketch").rename(folder / "zu\u0308rich")  # as a Mac writes it
    data = _load(folder, "z\u00fcrich", domains=["photo", "z\u00fcrich"])
    assert (data.domain_names, len(data.test_labels)) == (("photo",), 6)
    assert _load(folder, "photo").domain_names == ("cartoon", "z\u00fcrich")
    shutil.copytree(folder / "photo", folder / "z\u00fcrich")
    with pytest.raises(OneshotError, match=r"^data\.root: .*has two folders of the domain zürich"):
        _load(folder, "photo")


def test_a_training_domain_may_lack_a_class_and_labels_stay(folder):
    shutil.rmtree(folder / "cartoon" / "cat")
    assert _load(folder, "photo").train_labels.tolist() == [1, 0, 0, 0, 1, 1, 1]


def test_a_class_that_only_the_held_out_domain_has(folder):
    write_image(folder / "photo" / "cow" / "0.png", 1)
    with pytest.raises(OneshotError, match=r"data\.root: .*photo has classes that are not among .*: cow"):
        _load(folder, "photo")


def test_a_class_that_the_held_out_domain_lacks(folder):
    write_image(folder / "photo" / "cow" / "0.png", 1)
    with pytest.raises(OneshotError, match=r"data\.root: .*sketch has no image file of cow "):
        _load(folder, "sketch")


def test_an_empty_class_folder_of_a_training_domain_is_refused_by_name(folder):
    for path in (folder / "cartoon" / "cat").iterdir():
        path.unlink()
    with pytest.raises(OneshotError, match=r"data\.root: .*cartoon has no image file of cat "):
        _load(folder, "photo")


def test_hidden_folders_are_no_domains_and_no_classes(folder):
    write_image(folder / ".ipynb_checkpoints" / "cat" / "0.png", 1)
    write_image(folder / "photo" / ".ipynb_checkpoints" / "0.png", 1)
    data = _load(folder, "sketch")
    assert (data.domain_names, data.class_names) == (("cartoon", "photo"), ("cat", "dog"))


@pytest.mark.parametrize("held_out", [None, "foto"])
def test_a_held_out_domain_that_is_missing_or_unknown(folder, held_out):
    with pytest.raises(OneshotError, match=r"data\.held_out: .*one of cartoon, photo, sketch$"):
        _load(folder, held_out)


def test_a_domain_that_is_not_there(folder):
    with pytest.raises(OneshotError, match=r"data\.root: .*animals lacks clipart; .*photo, clipart"):
        _load(folder, "photo", domains=["photo", "clipart"])


def test_a_folder_without_domains(tmp_path):
    with pytest.raises(OneshotError, match=r"data\.root: .*nowhere holds 0 domains.*<domain>/<class>"):
        _load(tmp_path / "nowhere", "photo")


def test_a_single_class(folder):
    for domain in VALUES:
        shutil.rmtree(folder / domain / "dog")
    with pytest.raises(OneshotError, match=r"data\.root: .*cartoon, sketch.*fewer than 2 class"):
        _load(folder, "photo")


def test_domains_of_different_sizes_are_resized_or_named(folder):
    write_image(folder / "sketch" / "dog" / "9.png", 1, size=12)
    assert _load(folder, "photo", size=4).train_images.shape == (9, 3, 4, 4)
    with pytest.raises(OneshotError, match=r"data\.size: .*sketch/dog/9\.png is 12x12"):
        _load(folder, "photo")
