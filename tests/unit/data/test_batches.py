import pytest
import torch

from oneshot_fl.data.batches import ImageBatches, index_batches, last_joined
from oneshot_fl.seeds import torch_generator


@pytest.mark.parametrize("count", [1, 2, 5, 64, 65, 128, 129])
@pytest.mark.parametrize("batch_size", [1, 2, 64])
def test_every_sample_is_used_and_no_training_batch_has_one(count, batch_size):
    batches = index_batches(count, batch_size, torch_generator(0))
    assert set(torch.cat(batches).tolist()) == set(range(count))
    assert min(map(len, batches)) >= 2


def test_without_a_generator_the_order_is_kept():
    assert torch.cat(index_batches(5, 2)).tolist() == [0, 1, 2, 3, 4]


def test_a_last_batch_of_one_joins_the_one_before():
    assert [len(batch) for batch in index_batches(9, 4, torch_generator(0))] == [4, 5]


def test_only_where_it_is_asked_for_a_last_image_alone_joins_the_batch_before(spec):
    batches = ImageBatches(torch.zeros(5, 1, 8, 8), torch.arange(5), spec=spec, batch_size=2)
    assert [y.tolist() for _, y in batches.without_single()] == [[0, 1], [2, 3, 4]]
    assert [y.tolist() for _, y in batches] == [[0, 1], [2, 3], [4]]
    assert [len(batch) for batch in last_joined(list(torch.arange(4).split(2)))] == [2, 2]
    assert [len(batch) for batch in last_joined(list(torch.arange(1).split(2)))] == [1]


def test_image_batches_are_normalised_and_shuffled_anew(spec):
    images = torch.arange(6, dtype=torch.uint8).view(6, 1, 1, 1).expand(6, 1, 8, 8) * 51
    batches = ImageBatches(images, torch.arange(6), spec=spec, batch_size=6, rng=torch_generator(0))
    (x1, y1), (x2, y2) = next(iter(batches)), next(iter(batches))
    assert not torch.equal(y1, y2)
    for x, y in ((x1, y1), (x2, y2)):
        torch.testing.assert_close(x[:, 0, 0, 0], (y * 0.2 - 0.5) / 0.5)


def test_images_are_augmented_as_pixels_before_they_are_normalised(spec):
    images = torch.full((4, 1, 8, 8), 255, dtype=torch.uint8)
    batches = ImageBatches(images, torch.arange(4), spec=spec, batch_size=4, augment=lambda pixels: pixels - 255)
    x, y = next(iter(batches))
    assert x.unique().tolist() == [-1.0]  # black: (0 - 0.5) / 0.5
    assert y.tolist() == [0, 1, 2, 3]
