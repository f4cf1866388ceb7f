import errno
import json
import os
import re
import shutil
import unicodedata
from dataclasses import fields
from pathlib import Path

import pytest
import torch
from PIL import Image
from torchvision.datasets import ImageFolder

from oneshot_fl.code import digest
from oneshot_fl.data.decode import Decoding, Tones, decode
from oneshot_fl.data.decode_all import decode_all
from oneshot_fl.data.image_folder import image_folder
from oneshot_fl.data.images import Unusable, images_and_unusable_in, images_in, labelled, read_images, tree_by_class
from oneshot_fl.errors import OneshotError
from tests.damage import forbid
from tests.unit.data.image_files import write_image


@pytest.fixture
def folder(tmp_path):
    for brighter, split in ((0, "train"), (10, "test")):
        for label, name in enumerate(("ant", "bee")):
            for number in range(3):
                write_image(tmp_path / "insects" / split / name / f"{number}.png", 40 * label + number + brighter)
    return tmp_path / "insects"


def _load(folder: Path, **options):
    settings = {
        "size": None,
        "channels": 3,
        "max_value": None,
        "background": 128,
        "mean": [0.5],
        "std": [0.5],
    } | options
    return image_folder(**{"root": str(folder), "cache": str(folder.parent / "store"), **settings})


def test_a_tree_of_images_becomes_tensors(folder):
    data = _load(folder)
    assert data.class_names == ("ant", "bee")
    assert data.train_images.shape == (6, 3, 8, 8)
    assert data.train_images[:, 0, 0, 0].tolist() == [0, 1, 2, 40, 41, 42]
    assert data.test_labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_classes_have_the_names_that_model_files_have(folder):
    (folder / "train" / "bee").rename(folder / "train" / "be\u0301 ")
    (folder / "test" / "bee").rename(folder / "test" / "b\u00e9")
    data = _load(folder)
    assert data.class_names == ("ant", "b\u00e9")
    assert data.test_labels.tolist() == [0, 0, 0, 1, 1, 1]


def test_labels_and_images_are_in_one_order_however_a_disk_composes_their_names(tmp_path):
    for form in ("NFC", "NFD"):
        for value, name in enumerate(("pr\u00e9/\u00e9", "pr\u00e9/z", "prz/0")):  # decomposed, e is before z
            for split in ("train", "test"):
                write_image(tmp_path / form / split / unicodedata.normalize(form, f"{name}.png"), value)
    composed, decomposed = _load(tmp_path / "NFC"), _load(tmp_path / "NFD")
    assert composed.class_names == ("prz", "pr\u00e9")
    assert composed.train_images[:, 0, 0, 0].tolist() == [2, 1, 0]
    assert composed.fingerprint == decomposed.fingerprint


@pytest.mark.parametrize(
    ("name", "line"),
    [(" ant", "has two folders of the class ant"), ("a\nb", r"the class folder 'a\\nb' in .* must have another name")],
)
def test_names_that_no_model_file_can_hold_are_refused(folder, name, line):
    for split in ("train", "test"):
        shutil.copytree(folder / split / "bee", folder / split / name)
    with pytest.raises(OneshotError, match=rf"^data\.root: .*{line}"):
        _load(folder)
    assert not (folder.parent / "store").exists()  # nothing was decoded


def test_grey_and_resized(folder):
    data = _load(folder, channels=1, size=4)
    assert data.train_images.shape == (6, 1, 4, 4)


def test_a_data_set_knows_how_its_files_were_read(folder):
    assert _load(folder).tones == Tones()
    assert _load(folder, max_value=4095.0, background=0).to(torch.device("cpu")).tones == Tones(4095.0, 0)


@pytest.mark.parametrize(("side", "fits"), [(7, False), (8, True), (1024, True), (1025, False)])
def test_images_as_they_are_have_a_side_that_could_be_set(side, fits, tmp_path):
    for split in ("train", "test"):
        for name in ("ant", "bee"):
            write_image(tmp_path / "insects" / split / name / "0.png", 1, size=side)
    if fits:
        assert _load(tmp_path / "insects").spec.size == side
    else:
        with pytest.raises(OneshotError, match=rf"data\.size=null: .*0\.png is {side} pixels high.*between 8 and 1024"):
            _load(tmp_path / "insects")
        assert _load(tmp_path / "insects", size=16).spec.size == 16


@pytest.mark.parametrize("ending", ["jfif", "jp2", "avif", "gif", "tiff", "webp"])
def test_what_pillow_reads_by_itself_is_read(folder, ending):
    write_image(folder / "train" / "ant" / "0.png", 200)
    Image.open(folder / "train" / "ant" / "0.png").save(
        folder / "train" / "ant" / f"9.{ending}", format="JPEG" if ending == "jfif" else None
    )
    data = _load(folder)
    assert len(data.train_labels) == 7
    assert data.train_images[3, :, 0, 0].tolist() == pytest.approx([200] * 3, abs=3)
    assert data.notes == ()


def test_files_that_are_not_read_are_counted_in_one_note(folder):
    (folder / "train" / ".hidden").write_text("not meant")
    assert _load(folder).notes == ()
    shutil.copy(folder / "train" / "ant" / "0.png", folder / "train" / "ant" / "noending")
    shutil.copy(folder / "train" / "ant" / "0.png", folder / "train" / "loose.png")
    (folder / "test" / "bee" / "labels.csv").write_text("a,b")
    (note,) = _load(folder).notes
    assert note.startswith(
        f"data.root: files that are not read as images: 3, for instance {folder}/train/loose.png; they"
    )
    assert ".avif" in note


def test_test_images_that_are_trained_on_are_counted_in_a_note(folder):
    shutil.copy(next((folder / "train" / "ant").iterdir()), folder / "test" / "bee" / "again.png")
    (line,) = _load(folder).notes
    assert re.match(r"data\.root: 1 of \d+ test images are training images too", line)


def test_images_are_decoded_once(folder, monkeypatch):
    first = _load(folder)
    monkeypatch.setattr("oneshot_fl.data.images._decoded", None)  # a second decoding would fail
    assert _load(folder).fingerprint == first.fingerprint


def test_other_code_that_decodes_finds_nothing_kept(folder, monkeypatch):
    _load(folder)
    monkeypatch.setattr("oneshot_fl.data.images._decoded", None)
    monkeypatch.setattr("oneshot_fl.data.images.digest", lambda modules: f"changed {list(modules)}")
    with pytest.raises(TypeError):
        _load(folder)


def test_a_changed_file_is_decoded_again(folder):
    first = _load(folder)
    write_image(folder / "train" / "ant" / "0.png", 200)
    assert _load(folder).fingerprint != first.fingerprint


def test_a_missing_folder(tmp_path):
    with pytest.raises(OneshotError, match=r"^data\.root: there is no folder .*/nowhere; .*train/<class>"):
        _load(tmp_path / "nowhere")


def test_who_names_the_folder_of_the_training_images_is_told_the_one_above_it(folder):
    with pytest.raises(OneshotError, match=rf"train/train holds 0 class folders.* \({folder}, for instance\)$"):
        _load(folder / "train")


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


def test_a_class_folder_without_images_is_refused_by_name(folder):
    (folder / "train" / "aardvark").mkdir()
    with pytest.raises(OneshotError, match=r"^data\.root: .*train has no image file of aardvark .*\.png"):
        _load(folder)


@pytest.mark.parametrize("leave_folder", [True, False])
def test_a_class_without_test_images_is_refused_by_name(folder, leave_folder):
    shutil.rmtree(folder / "test" / "bee")
    if leave_folder:
        (folder / "test" / "bee").mkdir()
    with pytest.raises(OneshotError, match=r"^data\.root: .*test has no image file of bee "):
        _load(folder)


@pytest.mark.parametrize(("complete", "remedy"), [(True, "class everywhere"), (False, "folder")])
def test_an_empty_folder_is_told_with_what_may_be_removed(folder, complete, remedy):
    shutil.rmtree(folder / "test" / "bee")
    (folder / "test" / "bee").mkdir()
    found = tree_by_class(folder / "test")
    with pytest.raises(OneshotError, match=rf"no image file of bee \(.*\): add some, or remove the {remedy}$"):
        labelled(folder / "test", found, ["ant", "bee"], complete=complete)


def test_hidden_folders_and_files_are_neither_classes_nor_images(folder):
    expected = _load(folder).fingerprint
    write_image(folder / "train" / ".ipynb_checkpoints" / "0.png", 9)
    write_image(folder / "train" / "ant" / ".ipynb_checkpoints" / "0.png", 9)
    (folder / "train" / "ant" / "._0.png").write_bytes(b"what another system keeps beside a file")
    assert _load(folder).fingerprint == expected


def test_images_deeper_in_a_class_folder_are_found_as_by_torchvision(folder):
    write_image(folder / "train" / "ant" / "garden" / "red" / "7.png", 7)
    names = [Path(path).name for path, label in ImageFolder(str(folder / "train")).samples if label == 0]
    assert [path.name for path in images_in(folder / "train" / "ant")] == names
    assert _load(folder).train_images[:4, 0, 0, 0].tolist() == [0, 1, 2, 7]


def test_whoever_can_do_without_some_images_is_told_of_them_in_their_place(folder):
    ants = folder / "train" / "ant"
    (ants / "1.png").unlink()
    (ants / "1.png").symlink_to("nothing.png")
    found = images_and_unusable_in(ants)
    irregular = Unusable(ants / "1.png", "is named like an image and is no regular file", "remove or replace it")
    assert found == [ants / "0.png", irregular, ants / "2.png"]


def test_equal_names_sizes_and_dates_are_not_equal_images(folder):
    """The second folder, copied with its dates, differs in one byte of one uncompressed image."""
    for path in folder.rglob("*.png"):
        Image.open(path).save(path.with_suffix(".bmp"))
        path.unlink()
    other = folder.parent / "others" / folder.name
    shutil.copytree(folder, other)
    changed = other / "train" / "ant" / "0.bmp"
    dates = changed.stat()
    changed.write_bytes(changed.read_bytes()[:-4] + b"\xff\xff\xff\xff")
    os.utime(changed, ns=(dates.st_atime_ns, dates.st_mtime_ns))
    assert changed.stat().st_size == (folder / "train" / "ant" / "0.bmp").stat().st_size
    cache = str(folder.parent / "store")
    first, second = (_load(root, cache=cache) for root in (folder, other))
    assert first.train_images.max() < 255
    assert second.train_images.max() == 255


def test_a_copy_elsewhere_is_not_decoded_again(folder, monkeypatch):
    first = _load(folder)
    shutil.copytree(folder, folder.parent / "copy")
    monkeypatch.setattr("oneshot_fl.data.images._decoded", None)
    assert _load(folder.parent / "copy", cache=str(folder.parent / "store")).fingerprint == first.fingerprint


def test_a_pipe_among_the_images_is_refused_and_not_waited_for(folder):
    os.mkfifo(folder / "train" / "ant" / "9.png")
    with pytest.raises(OneshotError, match=r"9\.png is named like an image and is no regular file"):
        _load(folder)


@pytest.mark.parametrize("target", ["nothing.png", "9.png"])
def test_a_link_to_nothing_or_itself_is_refused(folder, target):
    (folder / "train" / "ant" / "9.png").symlink_to(target)
    with pytest.raises(OneshotError, match=r"9\.png .*no regular file"):
        _load(folder)


@pytest.mark.parametrize("target", [".", "..", "../.."])
def test_a_link_that_leads_back_up_is_refused(folder, target):
    (folder / "train" / "ant" / "again").symlink_to(target)
    with pytest.raises(OneshotError, match=r"^data\.root: .*ant/again.* is a link to .*remove the link"):
        _load(folder)


def test_linked_images_and_class_folders_are_fine(folder):
    expected = _load(folder).fingerprint
    shutil.move(folder / "train" / "ant", folder.parent / "elsewhere")
    (folder / "train" / "ant").symlink_to(folder.parent / "elsewhere")
    assert _load(folder).fingerprint == expected


def test_a_class_folder_that_cannot_be_read_is_not_left_out(folder, monkeypatch):
    forbid(monkeypatch, "train/bee")
    with pytest.raises(OneshotError, match=r"^data\.root: .*train/bee cannot be read \(Permission denied\)"):
        _load(folder)


def test_images_are_kept_where_the_kernel_keeps_no_locks(folder, monkeypatch):
    monkeypatch.setattr("fcntl.flock", _no_flock)
    first = _load(folder)
    monkeypatch.setattr("oneshot_fl.data.images._decoded", None)
    assert _load(folder).fingerprint == first.fingerprint


def _no_flock(*_):
    raise OSError(errno.ENOSYS, "Function not implemented")


OTHERWISE = {
    "size": Decoding(4, 3),
    "channels": Decoding(8, 1),
    "max_value": Decoding(8, 3, Tones(max_value=4095.0)),
    "background": Decoding(8, 3, Tones(background=0)),
}
"""How images may be decoded, each unlike `Decoding(8, 3)` in one setting."""


def test_every_setting_is_decoded_otherwise_somewhere():
    assert OTHERWISE.keys() == {each.name for of in (Decoding, Tones) for each in fields(of)} - {"tones"}


@pytest.mark.parametrize("setting", sorted(OTHERWISE))
def test_images_that_are_decoded_otherwise_are_kept_apart(setting, tmp_path):
    write_image(tmp_path / "0.png", 1)
    store = tmp_path / "store"
    for how in (Decoding(8, 3), OTHERWISE[setting], Decoding(8, 3)):
        read_images({"train": [(tmp_path / "0.png", 0)]}, cache=str(store), how=how)
    assert len(list(store.glob("images/*/manifest.json"))) == 2


def test_a_picture_that_is_saved_while_the_folder_is_read_is_not_kept_as_what_it_was(tmp_path, monkeypatch):
    paths = [tmp_path / f"{number}.png" for number in range(3)]
    for number, path in enumerate(paths):
        write_image(path, number)
    files, how, store = {"train": [(path, 0) for path in paths]}, Decoding(8, 1), tmp_path / "store"
    asked = []

    def saved_meanwhile(path, *given, **named):
        asked.append(path)
        if len(asked) == 3:  # the first is asked twice
            write_image(paths[2], 200)
        return decode(path, *given, **named)

    with monkeypatch.context() as patch:
        patch.setattr("oneshot_fl.data.decode_all.decode", saved_meanwhile)
        with pytest.raises(OneshotError, match=r"^data\.root: \S+2\.png was written while .* nothing writes there$"):
            read_images(files, cache=str(store), how=how)
    assert not list(store.glob("images/*/manifest.json"))
    write_image(paths[2], 2)
    images, _ = read_images(files, cache=str(store), how=how)["train"]
    assert images[:, 0, 0, 0].tolist() == [0, 1, 2]


def test_the_code_that_decodes_one_image_and_all_of_them_is_in_the_key(tmp_path):
    write_image(tmp_path / "0.png", 1)
    read_images({"train": [(tmp_path / "0.png", 0)]}, cache=str(tmp_path / "store"), how=Decoding(8, 3))
    (manifest,) = (tmp_path / "store").glob("images/*/manifest.json")
    code = json.loads(manifest.read_text())["inputs"]["code"]
    assert code == digest([decode_all.__module__]) != digest([decode.__module__])
