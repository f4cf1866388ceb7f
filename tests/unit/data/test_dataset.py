import hashlib
from dataclasses import replace

import pytest
import torch

from oneshot_fl.data.dataset import DataSpec, make_dataset
from oneshot_fl.data.datasets import digits, mnist
from oneshot_fl.errors import OneshotError


def test_digits_are_real_stratified_and_fixed():
    data = digits(mean=[0.5], std=[0.5])
    assert data.train_images.shape == (1437, 1, 8, 8)
    assert data.test_images.shape == (360, 1, 8, 8)
    assert data.train_images.dtype == torch.uint8
    assert data.train_images.max() == 255
    counts = data.test_labels.bincount()
    assert counts.min() >= 34
    assert counts.max() <= 37
    assert data.fingerprint == digits(mean=[0.5], std=[0.5]).fingerprint
    assert data.fingerprint == digits(mean=0.5, std=0.5).fingerprint


def test_bytes_come_back_from_where_models_see_them():
    spec = DataSpec(1, 16, 2, (0.1307,), (0.3081,))
    images = torch.arange(256, dtype=torch.uint8).view(1, 1, 16, 16)
    assert torch.equal(spec.to_bytes(spec.to_input(images)), images)


def test_the_fingerprint_follows_every_part():
    data = digits(mean=[0.5], std=[0.5])
    others = [
        digits(mean=[0.4], std=[0.5]),
        replace(data, train_labels=data.train_labels.flip(0)),
        replace(data, test_images=data.test_images.flip(0)),
    ]
    assert len({data.fingerprint, *(other.fingerprint for other in others)}) == 4


def test_domains_enter_the_fingerprint_only_where_there_are_some():
    data = digits(mean=[0.5], std=[0.5])
    digest = hashlib.sha256(repr(data.spec).encode())
    for tensor in (data.train_images, data.train_labels, data.test_images, data.test_labels):
        digest.update(repr(tuple(tensor.shape)).encode() + tensor.numpy().tobytes())
    split = torch.arange(1437) % 2
    others = [replace(data, train_domains=split), replace(data, train_domains=1 - split)]
    assert data.fingerprint == digest.hexdigest()
    assert len({data.fingerprint, *(other.fingerprint for other in others)}) == 3


def test_domains_move_with_the_data():
    data = replace(digits(mean=[0.5], std=[0.5]), train_domains=torch.zeros(1437, dtype=torch.int64))
    assert data.to(torch.device("meta")).train_domains.is_meta


def test_normalisation_is_undone_by_to_pixels():
    spec = DataSpec(channels=2, size=4, classes=2, mean=(0.2, 0.5), std=(0.1, 0.5))
    images = torch.randint(256, (3, 2, 4, 4), dtype=torch.uint8)
    torch.testing.assert_close(spec.to_pixels(spec.to_input(images)) * 255, images.float())
    assert spec.to_input(torch.full((1, 2, 4, 4), 255, dtype=torch.uint8))[0, :, 0, 0].tolist() == pytest.approx([8, 1])


def test_a_missing_data_set_says_which_files_where_and_how(tmp_path):
    with pytest.raises(OneshotError) as raised:
        mnist(root=str(tmp_path), download=False, mean=[0.5], std=[0.5])
    line = str(raised.value)
    assert "\n" not in line
    for part in (str(tmp_path), "MNIST/raw", "data.root", "data.download=true"):
        assert part in line


def test_a_data_set_that_moves_is_not_hashed_again(monkeypatch):
    data = digits(mean=[0.5], std=[0.5])
    expected = data.fingerprint
    monkeypatch.setattr("oneshot_fl.data.dataset.hashlib.sha256", None)
    assert data.to(torch.device("cpu")).fingerprint == expected


def test_normalisation_made_while_testing_serves_training_too():
    spec = DataSpec(1, 8, 3, (0.123,), (0.456,))
    with torch.inference_mode():
        spec.normalise(torch.zeros(1, 1, 8, 8))
    pixels = torch.zeros(1, 1, 8, 8, requires_grad=True)
    spec.normalise(pixels).sum().backward()
    assert pixels.grad.flatten()[0].item() == pytest.approx(1 / 0.456)


def test_the_only_image_of_a_class_is_not_taken_for_development():
    labels = torch.tensor([0] * 6 + [1])
    images = torch.arange(7, dtype=torch.uint8).view(7, 1, 1, 1)
    data = make_dataset(
        name="x", train=(images, labels), test=(images, labels), class_names=("a", "b"), mean=[0.5], std=[0.5]
    )
    held = data.for_development()
    assert held.test_images.flatten().tolist() == [5]
    assert held.train_labels.tolist() == [0] * 5 + [1]


def test_development_tests_on_the_last_sixth_of_each_class_of_the_training_images():
    labels = torch.tensor([0] * 6 + [1, 2] * 6 + [2])  # 6, 6 and 7: a sixth is 1, 1 and 7 - 7 * 5 // 6 = 2
    images = torch.arange(19, dtype=torch.uint8).view(19, 1, 1, 1)
    test = (torch.full((2, 1, 1, 1), 99, dtype=torch.uint8), torch.zeros(2, dtype=torch.int64))
    data = make_dataset(name="x", train=(images, labels), test=test, class_names=("a", "b", "c"), mean=[0.5], std=[0.5])
    held = replace(data, train_domains=torch.arange(19)).for_development()
    assert held.test_images.flatten().tolist() == [5, 16, 17, 18]
    assert held.test_labels.tolist() == [0, 1, 2, 2]
    assert held.train_images.flatten().tolist() == held.train_domains.tolist() == [*range(5), *range(6, 16)]
    assert held.train_labels.tolist() == [labels[k] for k in held.train_domains]
    assert held.fingerprint != data.fingerprint
