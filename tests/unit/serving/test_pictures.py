import io
import os

import numpy as np
import pytest
import torch
from PIL import Image

from oneshot_fl.data.decode import Decoding, Tones, decode
from oneshot_fl.errors import OneshotError
from oneshot_fl.serving.pictures import pictures
from tests.damage import forbid

HOW = Decoding(size=4, channels=1)
GREY = np.arange(36, dtype=np.uint8).reshape(6, 6) * 7
READ_ONLY = GREY[None].copy()
READ_ONLY.flags.writeable = False
ARRAYS = {
    "array": GREY[None],
    "batch in an array": GREY[None, None],
    "float array": GREY[None] / 255,
    "array of the other order of bytes": (GREY[None] / 255).astype(">f4"),
    "array that goes backwards": GREY[None, ::-1].copy()[:, ::-1],
    "array that may not be changed": READ_ONLY,
}


def _file(path, picture=GREY):
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(picture).save(path)
    return path


@pytest.mark.parametrize(
    "kind", ["path", "text", "folder", "picture", "uint8", "batch", "float", "list", *ARRAYS, "paths in an array"]
)
def test_every_kind_of_image_is_decoded_as_a_file_of_the_data_set_is(tmp_path, kind):
    path = _file(tmp_path / "a" / "0.png")
    given = {
        "path": path,
        "text": str(path),
        "folder": tmp_path,
        "picture": Image.fromarray(GREY),
        "uint8": torch.from_numpy(GREY)[None],
        "batch": torch.from_numpy(GREY)[None, None],
        "float": torch.from_numpy(GREY)[None] / 255,
        "list": [path],
        **ARRAYS,
        "paths in an array": np.array([str(path)]),
    }
    (found,) = pictures(given[kind], HOW)
    assert np.array_equal(found.pixels, decode(path, HOW))


def test_colour_becomes_what_the_model_takes_and_back(tmp_path):
    red = np.zeros((5, 5, 3), dtype=np.uint8) + np.array([200, 0, 0], dtype=np.uint8)
    (grey,) = pictures(torch.from_numpy(red).permute(2, 0, 1), HOW)
    assert grey.pixels.shape == (1, 4, 4)
    (colour,) = pictures(_file(tmp_path / "0.png"), Decoding(size=4, channels=3))
    assert colour.pixels.shape == (3, 4, 4)


def test_what_has_no_path_is_numbered_and_the_order_is_kept(tmp_path):
    path = _file(tmp_path / "0.png")
    found = [one.name for one in pictures([Image.fromarray(GREY), path, torch.zeros(2, 1, 3, 3)], HOW)]
    assert found == ["0", str(path), "1", "2"]


def test_a_file_that_is_no_image_is_told_and_the_others_go_on(tmp_path):
    good, bad = _file(tmp_path / "1.png"), tmp_path / "0.png"
    bad.write_text("no image")
    first, second = pictures(tmp_path, HOW)
    assert (first.pixels, first.problem) == (None, f"{bad} is not a readable image: remove or replace it")
    assert (second.name, second.problem) == (str(good), "")


def test_deep_images_need_to_be_told_what_white_is(tmp_path):
    path = _file(tmp_path / "0.png", np.full((4, 4), 3000, dtype=np.uint16))
    (refused,) = pictures(path, HOW)
    assert refused.problem.endswith("here up to 3000; say with --max-value (max_value=) which value is white")
    (read,) = pictures(path, Decoding(size=4, channels=1, tones=Tones(max_value=4095)))
    assert set(read.pixels.flatten().tolist()) == {187}


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ("/nowhere", r"^/nowhere: there is no such file or folder"),
        (3, r"^images: int is no image"),
        (torch.zeros(2, 8, 8), r"^images: pixels of shape \[2, 8, 8\] are no image; give \[C, H, W\]"),
        (torch.full((1, 4, 4), 1.5), r"^images: float32 has values outside"),
        (torch.zeros(1, 4, 4, dtype=torch.int64), r"^images: int64 has values"),
        (torch.full((1, 4, 4), float("nan")), r"^images: float32 has values"),
        (
            np.zeros((8, 8, 3), np.uint8),
            r"^images: pixels of shape \[8, 8, 3\] .*Image\.fromarray.* channels come last$",
        ),
        (np.uint8([[1, 2], [3, 4]]), r"^images: pixels of shape \[2, 2\] are no image"),
        (np.array(3), r"^images: pixels of shape \[\] are no image"),
        (np.zeros((1, 4, 4), np.uint16), r"^images: uint16 has values"),
        (np.full((1, 4, 4), 2.0), r"^images: float64 has values"),
        (np.zeros((1, 4, 4), np.clongdouble), rf"^images: {np.dtype(np.clongdouble)} has values"),
        (b"\x89PNG", r"^images: bytes is no image; give its path, .*PIL\.Image\.open\(io\.BytesIO\(data\)\)$"),
        ([bytearray(b"\x89PNG")], r"^images: bytearray is no image; give its path, or open it first"),
        (
            io.BytesIO(b"\x89PNG"),
            r"^images: BytesIO is no image; give its path, or open it first: PIL\.Image\.open\(file\)",
        ),
    ],
)
def test_what_is_no_image_is_one_line(given, says):
    with pytest.raises(OneshotError, match=says):
        list(pictures(given, HOW))


def test_an_open_picture_that_cannot_be_decoded_is_told(tmp_path):
    path = _file(tmp_path / "0.png", np.random.default_rng(0).integers(256, size=(32, 32), dtype=np.uint8))
    path.write_bytes(path.read_bytes()[:200])
    with Image.open(path) as cut_short:
        found = list(pictures([cut_short, Image.new("La", (4, 4))], HOW))
    told = "is not a readable image: remove or replace it"
    assert [one.problem for one in found] == [f"image {number} {told}" for number in (0, 1)]


def test_an_empty_folder_is_one_line(tmp_path):
    with pytest.raises(OneshotError, match="holds no image file"):
        list(pictures(tmp_path, HOW))


def test_what_is_no_file_is_told_in_its_place_and_the_others_go_on(tmp_path):
    good = _file(tmp_path / "a" / "1.png")
    (tmp_path / "a" / "0.png").symlink_to("nothing.png")
    (tmp_path / "a" / "again").symlink_to(".")
    os.mkfifo(tmp_path / "a" / "2.png")
    (tmp_path / "empty").mkdir()
    given = ["/nowhere", tmp_path / "a", tmp_path / "a" / "0.png", tmp_path / "a" / "2.png", tmp_path / "empty", good]
    found = list(pictures(given, HOW))
    assert [one.problem for one in found] == [
        "/nowhere: there is no such file or folder; give images or folders of images",
        f"{tmp_path}/a/0.png is named like an image and is no regular file: remove or replace it",
        "",
        f"{tmp_path}/a/2.png is named like an image and is no regular file: remove or replace it",
        f"{tmp_path}/a/again is a link to {tmp_path}/a, whose images are found already: remove the link",
        f"{tmp_path}/a/0.png: is a link to nothing; give images or folders of images",
        f"{tmp_path}/a/2.png: is neither a file nor a folder; give images or folders of images",
        f"{tmp_path}/empty: holds no image file; give images or folders of images",
        "",
    ]
    assert [one.name for one in found if one.pixels is not None] == [str(good), str(good)]


@pytest.mark.parametrize("name", ["x" * 300, "a\0b"])
def test_a_path_that_cannot_be_is_told(tmp_path, name):
    _, told = pictures([_file(tmp_path / "0.png"), name], HOW)
    assert (told.pixels, "cannot be read" in told.problem, "data.root" in told.problem) == (None, True, False)


def test_where_there_is_no_image_at_all_every_path_is_named_in_one_line(tmp_path):
    (tmp_path / "0.png").symlink_to("nothing.png")
    with pytest.raises(OneshotError, match=r"^/nowhere: there is no such .*; .*/0\.png is named like an image"):
        list(pictures(["/nowhere", tmp_path], HOW))
    assert list(pictures([], HOW)) == []


def test_the_line_of_a_path_is_one_whatever_its_name_is(tmp_path):
    (tmp_path / "a\nb.png").symlink_to("nothing.png")
    (tmp_path / "1.png").mkdir()
    with pytest.raises(OneshotError) as error:
        list(pictures([tmp_path, "/no\r\nwhere"], HOW))
    assert str(error.value).splitlines() == [str(error.value)]
    assert "a b.png is named like" in str(error.value)
    assert "/no  where: there is no such file" in str(error.value)


def test_a_folder_that_cannot_be_read_is_told(tmp_path, monkeypatch):
    _file(tmp_path / "0.png")
    _file(tmp_path / "below" / "1.png")
    forbid(monkeypatch, "below")
    first, told = pictures(tmp_path, HOW)
    assert (first.problem, told.problem) == (
        "",
        f"{tmp_path}/below cannot be read (Permission denied): change its permissions",
    )


@pytest.mark.parametrize("empty", [torch.zeros(1, 1, 0, 0), torch.zeros(3, 0, 4), Image.new("L", (0, 3))])
def test_an_image_without_pixels_is_none(empty):
    (found,) = pictures(empty, Decoding(8, 1))
    assert (found.pixels, found.problem) == (None, "image 0 has no pixels: remove or replace it")
