from dataclasses import replace

import pytest
import torch

from oneshot_fl.data.dataset import make_dataset
from oneshot_fl.data.proxy import Proxy, from_dataset, hold_out, noise
from oneshot_fl.errors import OneshotError


def _data(*, channels: int = 1, size: int = 4, count: int = 20):
    """Image i has the value i in every pixel, and the label i % 2."""
    images = torch.arange(count, dtype=torch.uint8).view(-1, 1, 1, 1).repeat(1, channels, size, size)
    labels = torch.arange(count) % 2
    return make_dataset(
        name="counted", train=(images, labels), test=(images, labels), class_names=("a", "b"), mean=[0.5], std=[0.5]
    )


def _values(images: torch.Tensor) -> list[int]:
    return images[:, 0, 0, 0].tolist()


def test_held_out_images_leave_the_training_set_with_their_labels():
    data = _data()
    left, proxy = hold_out(data, fraction=0.25, seed=0)
    assert len(proxy.images) == 5
    assert sorted(_values(left.train_images) + _values(proxy.images)) == list(range(20))
    assert [value % 2 for value in _values(left.train_images)] == left.train_labels.tolist()
    assert torch.equal(left.test_images, data.test_images)
    assert left.fingerprint != data.fingerprint


def test_held_out_images_leave_with_their_domains():
    data = replace(_data(), train_domains=torch.arange(20) // 4, domain_names=tuple("abcde"))
    left, _ = hold_out(data, fraction=0.25, seed=0)
    assert left.train_domains.tolist() == [value // 4 for value in _values(left.train_images)]


def test_holding_out_depends_on_the_seed_only():
    first, again, other = (hold_out(_data(), fraction=0.25, seed=seed)[1] for seed in (0, 0, 1))
    assert first.sha256 == again.sha256 != other.sha256


@pytest.mark.parametrize("fraction", [0.001, 0.999])
def test_holding_out_nothing_or_everything_is_refused(fraction):
    with pytest.raises(OneshotError, match=rf"proxy.fraction={fraction}: holds out"):
        hold_out(_data(), fraction=fraction, seed=0)


def test_noise_has_the_data_sets_shape_and_takes_nothing():
    data = _data(channels=3)
    left, proxy = noise(data, samples=300, seed=0)
    assert left is data
    assert (proxy.images.shape, proxy.images.dtype) == ((300, 3, 4, 4), torch.uint8)
    assert abs(proxy.images.double().mean() - 127.5) < 5  # 14,400 draws: standard error 0.62


def test_another_data_sets_images_take_this_ones_channels_and_size():
    data, other = _data(channels=3, size=8), _data(channels=1, size=4)
    left, proxy = from_dataset(data, other=other, samples=5, seed=0)
    assert left is data
    assert (proxy.images.shape, proxy.images.dtype) == ((5, 3, 8, 8), torch.uint8)
    assert len(set(_values(proxy.images))) == 5
    grey, colour = _data(), _data(channels=3)
    colour.train_images[:, 1] += 3  # channels v, v + 3, v: their mean is v + 1
    assert _values(from_dataset(grey, other=colour, samples=20, seed=0)[1].images) == list(range(1, 21))


def test_images_are_made_when_they_are_first_asked_for_and_once():
    made = []
    proxy = Proxy(lambda: made.append(1) or torch.zeros(2, 1, 8, 8)).to(torch.device("cpu"))
    assert made == []
    assert len(proxy.images) == len(proxy.images) == 2
    assert made == [1]


def test_which_images_another_data_set_lends_depends_on_the_seed_only():
    first, again, second = (
        from_dataset(_data(), other=_data(count=200), samples=5, seed=seed)[1].images for seed in (0, 0, 1)
    )
    assert torch.equal(first, again)
    assert not torch.equal(first, second)
