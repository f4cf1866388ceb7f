from functools import partial

import pytest
import torch

from oneshot_fl.models.generators import ConvGenerator
from oneshot_fl.parts.slots import Turn
from oneshot_fl.parts.sources import GeneratorSource, ProxySource
from oneshot_fl.seeds import torch_generator
from tests.parts import server_of


def _source(**options) -> GeneratorSource:
    settings = {"batch_size": 8, "steps": 3, "reset": False, "keep": "last"} | options
    generator, optimizer = partial(ConvGenerator, noise=4, width=2), partial(torch.optim.SGD, lr=1.0)
    return GeneratorSource(server_of(), generator=generator, optimizer=optimizer, **settings)


def _run(source: GeneratorSource, losses: list[float]):
    seen, values = [], iter(losses)

    def score(x, y):
        seen.append(x.detach().clone())
        return x.sum() * 0 + next(values)

    with_noise = source.optimizer(source.parameters())

    def minimise(loss):  # moves the weights, so that every step makes other images
        for parameter in source.parameters():
            parameter.data += 0.01
        with_noise.zero_grad()

    x, y, _ = source.make(Turn(score, minimise, None, torch_generator(1)))
    return x, y, seen


@pytest.mark.parametrize(("keep", "position"), [("last", 3), ("best", 1)])
def test_the_batch_that_leaves(keep, position):
    x, y, seen = _run(_source(keep=keep, steps=4), [3.0, 1.0, 4.0, 2.0])
    assert torch.equal(x, seen[position])
    assert not x.requires_grad
    assert y.shape == (8,)
    assert set(y.tolist()) <= {0, 1, 2}


def test_labels_are_of_all_classes():
    _, y, _ = _run(_source(batch_size=200, steps=1), [1.0])
    assert y.bincount(minlength=3).min() > 50


def test_reset_draws_new_weights_and_keeping_does_not():
    for reset in (True, False):
        source = _source(reset=reset, steps=1)
        before = source.generator.project.weight.clone()
        source.make(Turn(lambda x, y: x.sum(), lambda loss: None, None, torch_generator(2)))
        assert torch.equal(before, source.generator.project.weight) is not reset


def test_proxy_images_come_normalised_without_labels_and_in_every_round_alike():
    images = torch.tensor([0, 255], dtype=torch.uint8).view(2, 1, 1, 1).repeat(1, 1, 8, 8)
    source = ProxySource(server_of(proxy=images))
    source.begin(torch_generator(0))
    x, y, _ = source.make(Turn(lambda x, y: x.sum(), lambda loss: None, None, torch_generator(1)))
    assert y is None
    assert x[:, 0, 0, 0].tolist() == [-1.0, 1.0]  # (pixel - 0.5) / 0.5
    assert not list(source.parameters())


def test_without_proxy_images_there_is_no_proxy_source():
    with pytest.raises(ValueError, match="proxy images"):
        ProxySource(server_of())
