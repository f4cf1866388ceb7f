"""Algorithm 2: stacked generators equal the sequential algorithm, written here as the paper writes it."""

from functools import partial

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.generators import ConvGenerator
from oneshot_fl.phases.clients.train import TrainedClient
from oneshot_fl.phases.stratify import stratify
from oneshot_fl.seeds import torch_generator

SPEC = DataSpec(1, 8, 4, (0.5,), (0.5,))
SETTINGS = {"steps": 4, "batch_size": 8, "min_loss": 1e-8, "seed": 3}
ADAM = partial(torch.optim.Adam, lr=0.001, betas=(0.5, 0.999))


def _generator() -> ConvGenerator:
    return ConvGenerator(SPEC, noise=6, width=4)


@pytest.fixture
def clients() -> list[TrainedClient]:
    models = [cnn2(SPEC, norm=True) for _ in range(2)]
    for model in models:
        model(torch.randn(64, 1, 8, 8))
    return [TrainedClient(model.eval(), "cnn2", f"key{k}", 10, 0.0) for k, model in enumerate(models)]


def _run(clients, context, **options):
    return stratify(
        clients,
        classes=4,
        build_generator=_generator,
        generator_settings={},
        settings=SETTINGS | {"classes_at_once": "auto"} | options,
        optimizer=ADAM,
        context=context,
    )


def _algorithm_2(clients: list[TrainedClient]) -> torch.Tensor:
    U = torch.zeros(4, len(clients))
    for k, client in enumerate(clients):
        for j in range(4):
            rng = torch_generator(SETTINGS["seed"], "stratify")
            generator = _generator()
            generator.reset(rng)
            z = torch.randn(SETTINGS["batch_size"], 6, generator=rng)
            y = torch.full((SETTINGS["batch_size"],), j)
            optimizer = ADAM(generator.parameters())
            losses = []
            for _ in range(SETTINGS["steps"]):
                loss = F.cross_entropy(client.model(generator(z)), y)
                losses.append(loss.item())
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            U[j, k] = (max(losses) - min(losses)) / min(losses)
    return U


@pytest.mark.parametrize("at_once", [1, 3, 4, "auto"])
def test_stacked_equals_sequential(clients, context, at_once):
    expected = _algorithm_2(clients)
    assert expected.min() > 0
    assert_close(_run(clients, context, classes_at_once=at_once).U, expected, rtol=1e-3, atol=1e-5)


def test_finished_groups_of_classes_are_not_measured_again(clients, context, monkeypatch):
    import oneshot_fl.phases.stratify as phase

    calls, real = [], phase._measure

    def dies_on_the_third(*args):
        calls.append(args[-1].tolist())
        if len(calls) == 3:
            raise KeyboardInterrupt
        return real(*args)

    monkeypatch.setattr(phase, "_measure", dies_on_the_third)
    with pytest.raises(KeyboardInterrupt):
        _run(clients, context, classes_at_once=1)
    resumed = _run(clients, context, classes_at_once=1).U
    assert calls[:5] == [[0], [1], [2], [2], [3]]
    assert_close(resumed, _algorithm_2(clients), rtol=1e-3, atol=1e-5)


def test_the_client_is_not_changed(clients, context):
    before = {name: tensor.clone() for name, tensor in clients[0].model.state_dict().items()}
    _run(clients, context)
    after = clients[0].model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)
