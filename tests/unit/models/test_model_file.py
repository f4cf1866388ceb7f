"""Model files: written, read, and refused where the bytes are not what they should be."""

import errno
import json
import os
import pickle
import struct
from pathlib import Path

import pytest
import torch
from torch import nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models import model_file
from oneshot_fl.models.described import KEY, ModelDescription
from oneshot_fl.models.model_file import parse_model, read_model, write_model

DESCRIPTION = ModelDescription(
    "classifier", ({"name": "cnn2"},), DataSpec(1, 8, 2, (0.5,), (0.5,)), ("a", "b"), samples=3
)


@pytest.fixture
def sound(tmp_path: Path) -> Path:
    path = tmp_path / "client.safetensors"
    write_model(path, nn.Linear(3, 2).state_dict(), DESCRIPTION)
    return path


def _bytes(header: object, data: bytes = b"", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text) if length is None else length) + text + data


def _with(tensors: dict[str, object], data: bytes) -> bytes:
    return _bytes({"__metadata__": DESCRIPTION.metadata(), **tensors}, data)


def test_what_is_written_is_read(tmp_path):
    model = nn.BatchNorm2d(3)
    sha256 = write_model(tmp_path / "a.safetensors", model.state_dict(), DESCRIPTION)
    read = read_model(tmp_path / "a.safetensors")
    assert (read.description, read.sha256) == (DESCRIPTION, sha256)
    assert read.layout["num_batches_tracked"] == (torch.int64, ())
    tensors = read.tensors()
    assert all(torch.equal(tensors[name], value) for name, value in model.state_dict().items())


ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
WRONG: dict[str, bytes] = {
    "nothing": b"",
    "cut in the length": b"\x05\x00\x00",
    "a pickle": pickle.dumps({"weight": [1.0]}),
    "a header longer than the file": _bytes({}, length=10**6),
    "a length beyond all memory": _bytes({}, length=2**63),
    "a header that is no JSON": _bytes(b"{x}"),
    "a header nested beyond the stack": _bytes(b"{" + b'"a":{' * 100_000),
    "a header that is no text": _bytes(b"{\xff\xfe}"),
    "metadata that are no texts": _bytes({"__metadata__": {KEY: 3}}),
    "metadata that are a list": _bytes({"__metadata__": ["x"]}),
    "a type that nobody knows": _with({"w": {**ONE, "dtype": "F99"}}, bytes(4)),
    "a type that is a list": _with({"w": {**ONE, "dtype": []}}, bytes(4)),
    "a shape below nothing": _with({"w": {**ONE, "shape": [-1]}}, bytes(4)),
    "a shape of switches": _with({"w": {**ONE, "shape": [True]}}, bytes(4)),
    "a shape beyond all memory": _with({"w": {**ONE, "shape": [2**60]}}, bytes(4)),
    "a place of one border": _with({"w": {**ONE, "data_offsets": [0]}}, bytes(4)),
    "other bytes than its shape": _with({"w": {**ONE, "shape": [2]}}, bytes(4)),
    "a place behind the end": _with({"w": {**ONE, "data_offsets": [4, 8]}}, bytes(4)),
    "two tensors in one place": _with({"w": ONE, "v": ONE}, bytes(4)),
    "bytes of no tensor": _with({"w": ONE}, bytes(8)),
    "a tensor that is a number": _with({"w": 3}, bytes(4)),
    "a field too many": _with({"w": {**ONE, "run": "x"}}, bytes(4)),
}


@pytest.mark.parametrize("content", WRONG.values(), ids=WRONG)
def test_bytes_that_are_no_model_file_are_refused(content):
    with pytest.raises(OneshotError, match=r"^client 3: ") as error:
        parse_model(content, "client 3")
    assert "\n" not in str(error.value)


def test_a_sound_file_of_the_same_making_is_read():
    assert parse_model(_with({"w": ONE}, bytes(4)), "x").tensors()["w"].tolist() == [0.0]


@pytest.mark.parametrize(("limit", "value"), [("LARGEST_HEADER", 20), ("MOST_TENSORS", 1)])
def test_what_is_larger_than_a_header_may_be_is_refused(limit, value, sound, monkeypatch):
    monkeypatch.setattr(model_file, limit, value)
    with pytest.raises(OneshotError, match=f"{value}"):
        read_model(sound)


def test_a_file_larger_than_allowed_is_not_read(sound):
    with pytest.raises(OneshotError, match="larger than 100 bytes"):
        read_model(sound, largest=100)


def test_links_pipes_folders_and_absent_files_are_refused(sound, tmp_path):
    (tmp_path / "link").symlink_to(sound)
    os.mkfifo(tmp_path / "pipe")
    for name in ("link", "pipe", "absent", "."):
        with pytest.raises(OneshotError, match=r"regular|cannot be read"):
            read_model(tmp_path / name)


def test_a_link_is_called_one_and_followed_where_that_was_asked_for(sound, tmp_path):
    (tmp_path / "link").symlink_to(sound.name)
    (tmp_path / "loop").symlink_to("loop")
    with pytest.raises(OneshotError, match=r"^client 3: cannot be read \(it is a link, not a regular file\)$"):
        read_model(tmp_path / "link", source="client 3")
    assert read_model(tmp_path / "link", follow_links=True).content == sound.read_bytes()
    os.mkfifo(tmp_path / "pipe")
    for name in ("loop", "pipe", "absent", "."):
        with pytest.raises(OneshotError, match=r"regular|cannot be read"):
            read_model(tmp_path / name, follow_links=True)


def test_a_full_disk_leaves_the_file_that_was_there(tmp_path, monkeypatch):
    path = tmp_path / "a.safetensors"
    path.write_text("old")

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr("oneshot_fl.artifacts.save_file", full)
    with pytest.raises(OneshotError, match="cannot be written"):
        write_model(path, {}, DESCRIPTION)
    assert {file.name: file.read_text() for file in tmp_path.iterdir()} == {"a.safetensors": "old"}
