import hashlib
import os
import shutil
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import nn

from oneshot_fl.artifacts import (
    Artifact,
    fingerprint,
    load_model,
    read_artifact,
    read_work,
    tensor_hash,
    write_artifact,
    write_work,
)
from oneshot_fl.errors import OneshotError
from tests.damage import become, flip


def test_a_fingerprint_does_not_depend_on_the_order_of_names():
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1}) != fingerprint({"a": 2, "b": 1})


def test_a_hash_of_tensors_is_that_of_their_bytes():
    first, second = torch.tensor([1, 2], dtype=torch.uint8), torch.tensor([[3.0]], requires_grad=True)
    expected = hashlib.sha256(b"\x01\x02" + b"\x00\x00\x40\x40").hexdigest()  # 3 as a little-endian float32
    assert tensor_hash([first, second]) == expected
    assert tensor_hash([torch.tensor([[0, 1], [2, 3]]).T]) == tensor_hash([torch.tensor([0, 2, 1, 3])])


@pytest.mark.parametrize("content", [[1.0, 2.5], {"w": torch.ones(2), "n": None}])
def test_a_work_file_is_read_as_it_was_written(tmp_path, content):
    write_work(tmp_path / "rounds.pt", content)
    found = read_work(tmp_path / "rounds.pt")
    assert str(found) == str(content)
    write_work(tmp_path / "rounds.pt", "newer")
    assert read_work(tmp_path / "rounds.pt") == "newer"


@pytest.mark.parametrize(
    "damage",
    [
        Path.unlink,
        lambda path: path.write_bytes(b""),
        lambda path: path.write_bytes(path.read_bytes()[:-1]),
        lambda path: path.write_bytes(path.read_bytes()[32:]),
        lambda path: become(path, Path.mkdir),
        lambda path: become(path, os.mkfifo),
        lambda path: become(path, lambda path: path.symlink_to(path)),
        lambda path: shutil.copy(path.with_name("other.pt"), path),
        *(partial(lambda bit, path: flip(path, bit), bit) for bit in (0, 200, 256, 300, 5000, -1)),
    ],
)
def test_a_work_file_that_is_not_what_was_written_counts_as_absent(tmp_path, damage):
    for name in ("rounds.pt", "other.pt"):
        write_work(tmp_path / name, {"w": torch.zeros(100)})
    damage(tmp_path / "rounds.pt")
    assert read_work(tmp_path / "rounds.pt") is None
    assert read_work(tmp_path / "other.pt") is not None


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s.pop("bias"), "bias is missing"),
        (lambda s: s.update(extra=torch.zeros(1)), "extra is unexpected"),
        (lambda s: s.update(weight=torch.zeros(3, 2)), r"weight is torch.float32 \(3, 2\), expected .* \(2, 3\)"),
        (lambda s: s.update(weight=torch.zeros(2, 3, dtype=torch.float64)), "float64"),
        (lambda s: s["bias"].fill_(float("nan")), "tensor bias holds a value that is not finite"),
    ],
)
def test_an_upload_that_does_not_fit_is_refused_by_name(change, says):
    state = {name: tensor.clone() for name, tensor in nn.Linear(3, 2).state_dict().items()}
    change(state)
    with pytest.raises(OneshotError, match=f"client 4.*{says}"):
        load_model(nn.Linear(3, 2), state, "client 4")


def test_what_an_earlier_version_stored_is_read_and_tells_its_seconds_alone(tmp_path):
    described = {"phase": "clients", "inputs": {"a": 1}, "context": {}}
    folder = tmp_path / fingerprint(described)
    folder.mkdir()
    write_artifact(folder, {**described, "facts": {}, "seconds": 1.5}, Artifact({"w": torch.ones(2)}, {}))
    found = read_artifact(folder)
    assert (found.cost.seconds, found.cost.cpu_seconds, found.cost.macs) == (1.5, None, None)
