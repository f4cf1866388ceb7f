"""What is wrong with a client's folder or number is one line; its training is in tests/pipeline/test_client.py."""

import re
import shutil
from pathlib import Path

import pytest
import torch

from oneshot_fl.aggregation.client import train_client
from oneshot_fl.data.decode import Origin
from oneshot_fl.data.images import check_layout, tree_by_class
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.model_file import read_model
from tests.unit.data.image_files import write_image

OWN = ("partition.clients=2", "trainer=cpu")


@pytest.fixture
def images(tmp_path: Path) -> Path:
    for name in "abc":
        write_image(tmp_path / "images" / name / "0.png", 0)
    return tmp_path / "images"


@pytest.mark.parametrize(
    ("overrides", "classes", "number", "line"),
    [
        (OWN, ["a", "c"], 0, "holds images of b, which is none of the classes a, c"),
        (OWN, [" a", "c "], 0, "holds images of b, which is none of the classes a, c"),
        (OWN, "a,b,c", 0, "classes='a,b,c': must be a list of names: ['a', 'b', 'c']"),
        (OWN, "abc", 0, "classes='abc': must be a list of names: ['abc']"),
        (OWN, ["a", "b", "c"], 2, "number=2: the federation has 2 clients, counted from 0"),
        *(
            ((override,), ["a", "b", "c"], 0, f"{override}: has no place here: {why}")
            for override, why in (
                ("data=mnist", "a client's data are the images"),
                ("+data.root=x", "a client's data are the images"),
                ("partition.alpha=1", "a client's data are the images"),
                ("attack=label_flip", "only whole runs have it"),
                ("attack.clients=5", "only whole runs have it"),
                ("communication_rounds=3", "only whole runs have it"),
                ("development=true", "only whole runs have it"),
                ("proxy=holdout", "only whole runs have it"),
                ("experiment=digits_weak", "only whole runs have it"),
                ("gate=checks", "that is the server's"),
                ("distill.rounds=3", "that is the server's"),
                ("method/ensemble=uniform", "that is the server's"),
            )
        ),
    ],
)
def test_mistakes_are_one_line(overrides, classes, number, line, images, tmp_path):
    out = tmp_path / "client.safetensors"
    with pytest.raises(OneshotError, match=re.escape(line)):
        train_client(
            images,
            (*overrides, f"store={tmp_path}/store") if overrides is OWN else overrides,
            out=out,
            number=number,
            class_names=classes,
            counts=False,
        )
    assert not out.exists()


def test_files_that_are_not_read_as_images_are_noted_by_the_setting(images, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")  # no path is broken between two lines
    (images / "a" / "1.dcm").touch()
    quick = (*OWN, f"store={tmp_path}/store", "clients.epochs=1", "model=cnn2")
    train_client(images, quick, out=tmp_path / "client.safetensors", number=0, class_names=[], counts=False)
    told = " ".join(capsys.readouterr().out.split())
    line = f"note: folder={images}: files that are not read as images: 1, for instance {images}/a/1.dcm; they"
    assert line in told, told


def test_a_folder_without_images_is_no_class_and_noted(images, tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "1000")
    (images / "b" / "0.png").unlink()
    quick = (*OWN, f"store={tmp_path}/store", "clients.epochs=0", "model=cnn2")
    out, line = tmp_path / "client.safetensors", f"note: folder={images}: no images are in the folders of b, which are"
    train_client(images, quick, out=out, number=0, class_names=[], counts=False)
    assert line in " ".join(capsys.readouterr().out.split())
    assert read_model(out).description.class_names == ("a", "c")
    (images / "b").rename(images / "z")
    train_client(images, quick, out=out, number=0, class_names=["a", "b", "c"], counts=False)
    assert "no images are in" not in capsys.readouterr().out
    assert read_model(out).description.class_names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("name", "content", "says"),
    [
        ("a/0.png", b"nothing", "0.png is not a readable image"),
        ("z\n/0.png", None, "must have another name"),
    ],
)
def test_what_is_wrong_with_the_images_is_said_of_the_folder(name, content, says, images, tmp_path):
    write_image(images / name, 0)
    if content is not None:
        (images / name).write_bytes(content)
    with pytest.raises(OneshotError, match=re.escape(says)) as error:
        train_client(
            images,
            (*OWN, f"store={tmp_path}/store"),
            out=tmp_path / "client.safetensors",
            number=0,
            class_names=[],
            counts=False,
        )
    assert str(error.value).startswith(f"folder={images}: ")


def test_images_without_folders_of_classes_are_answered_with_the_folder_above(images, tmp_path):
    line = f"folder={images}/a: {images}/a holds images and no folder of a class; give the folder above it, {images}, "
    with pytest.raises(OneshotError, match=re.escape(line)):
        train_client(images / "a", OWN, out=tmp_path / "a.safetensors", number=0, class_names=[], counts=False)


@pytest.mark.parametrize("parts", [("test", "train"), ("Train", "val"), ("train",)])
def test_parts_of_a_data_set_are_no_classes(parts, images, tmp_path):
    for part in parts:
        shutil.copytree(images, tmp_path / "digits" / part)
    places = " or ".join(f"{tmp_path}/digits/{part}" for part in parts)
    line = f"digits holds parts of a data set and no folder of a class; give the folder of one part, {places}"
    with pytest.raises(OneshotError, match=re.escape(line)):
        train_client(tmp_path / "digits", OWN, out=tmp_path / "a.safetensors", number=0, class_names=[], counts=False)


def test_classes_may_be_named_like_parts_or_have_folders_of_their_own(images, tmp_path):
    (images / "a").rename(images / "train")
    (images / "b").rename(images / "test")
    check_layout(images, tree_by_class(images), Origin("folder", None))  # c is no part
    (images / "c").rename(images / "train" / "c")
    check_layout(images, tree_by_class(images), Origin("folder", None))  # train has an image of its own


@pytest.mark.parametrize("kinds", ["clients=all_cvae", "clients.kinds=[cvae]"])
def test_decoders_alone_ask_for_the_method_that_nobody_chose(kinds, images, tmp_path):
    with pytest.raises(OneshotError, match=r"^clients\.kinds=\[cvae\]: .* nobody chose, .*add method=fedcvae_ens$"):
        train_client(images, (*OWN, kinds), out=tmp_path / "a.safetensors", number=0, class_names=[], counts=False)
    chosen = (*OWN, kinds, "method=fedcvae_ens", "cvae=cvae_mlp", "clients.cvae.epochs=1", f"store={tmp_path}/store")
    train_client(images, chosen, out=tmp_path / "a.safetensors", number=0, class_names=[], counts=False)
    assert read_model(tmp_path / "a.safetensors").description.kind == "decoder"


def test_what_no_server_would_take_for_an_upload_is_not_trained(images, tmp_path):
    with pytest.raises(OneshotError, match=r"client\.st: must end in \.safetensors"):
        train_client(images, OWN, out=tmp_path / "client.st", number=0, class_names=[], counts=False)


def test_a_model_that_does_not_take_the_images_is_not_trained(images, tmp_path):
    chosen = (*OWN, f"store={tmp_path}/store", "model=torchvision", "model.architecture=vit_b_16")
    with pytest.raises(OneshotError, match="vit_b_16: cannot be built for"):
        train_client(images, chosen, out=tmp_path / "client.safetensors", number=0, class_names=[], counts=False)


@pytest.mark.parametrize("private", ["clients=dp", "clients.epsilon=8"])
def test_noise_of_an_upload_can_be_drawn_again_by_nobody(private, images, tmp_path, capsys, monkeypatch):
    """The same seed twice, as every seed that others may guess: it is the initial weights' alone."""
    monkeypatch.setenv("COLUMNS", "1000")
    more = ("clients.delta=0.001", "clients.clip=1") * (private != "clients=dp")
    chosen = (*OWN, private, *more, "model=cnn2_group", "clients.epochs=1", "seed=7")
    weights = []
    for k in range(2):
        out = tmp_path / f"{k}.safetensors"
        train_client(images, (*chosen, f"store={tmp_path}/{k}"), out=out, number=0, class_names=[], counts=bool(k))
        assert ("which clients.epsilon does not cover" in capsys.readouterr().out) == bool(k)
        weights.append(torch.cat([each.flatten() for each in read_model(out).tensors().values()]))
    assert (weights[0] != weights[1]).double().mean() > 0.99
    with pytest.raises(OneshotError, match=r"^clients\.randomness=seeded: has no place here: .* the system's$"):
        train_client(
            images,
            (*chosen, "clients.randomness=seeded"),
            out=tmp_path / "2.safetensors",
            number=0,
            class_names=[],
            counts=False,
        )
