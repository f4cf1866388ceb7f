"""FEDCVAE-KD's source: it learns from the clients' decoders and draws uniformly."""

from functools import partial

import pytest
import torch
from torch import nn

from oneshot_fl.config.checks import check
from oneshot_fl.errors import OneshotError
from oneshot_fl.methods import fedcvae as module
from oneshot_fl.methods.fedcvae import OwnDecoderSource
from oneshot_fl.models.cvae import fedcvae, mlp
from oneshot_fl.parts.slots import Turn
from oneshot_fl.parts.uploads import DecoderUpload
from oneshot_fl.seeds import torch_generator
from tests.composing import compose_config
from tests.parts import SMALL, server_of

COUNTS = torch.tensor([[9, 1, 0], [0, 1, 1]])


class _Stripes(nn.Module):
    """Label y: rows from 2 y on are white, the others black."""

    def __init__(self) -> None:
        super().__init__()
        self.unused = nn.Parameter(torch.zeros(()))

    def forward(self, z: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        rows = torch.arange(8) >= 2 * y.view(-1, 1)
        return rows.float().view(-1, 1, 8, 1).expand(-1, 1, 8, 8)


def _source(make, **options) -> OwnDecoderSource:
    settings = {"samples": 300, "taught": 240, "epochs": 3, "batch_size": 16, "split": "categorical", "bound": 1.0}
    decoders = [DecoderUpload(_Stripes(), 2, counts, f"client {k}", make) for k, counts in enumerate(COUNTS)]
    optimizer = partial(torch.optim.Adam, lr=0.01)
    return OwnDecoderSource(server_of(decoders=decoders), optimizer=optimizer, **(settings | options))


def _made(source: OwnDecoderSource, seed: int = 0) -> tuple[torch.Tensor, torch.Tensor]:
    rng = torch_generator(seed)
    source.begin(rng)
    optimizer = source.optimizer(source.parameters())

    def minimise(loss: torch.Tensor) -> None:
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return source.make(Turn(None, minimise, None, rng))


@pytest.mark.parametrize(
    ("make", "epochs"), [(partial(mlp, SMALL, latent=2, hidden=32), 20), (partial(fedcvae, SMALL, latent=2), 10)]
)
def test_the_servers_decoder_draws_what_the_clients_decoders_drew(make, epochs):
    x, y, _ = _made(_source(make, epochs=epochs))
    pixels, wanted = SMALL.to_pixels(x), _Stripes()(torch.zeros(len(y), 2), y)
    seen = y != 2  # one image in twelve is of class 2
    assert (pixels - wanted)[seen].abs().mean() < 0.1
    assert not x.requires_grad


def test_what_the_clients_decoders_drew_goes_to_the_device_of_the_servers():
    """Lightning moves the source alone; uploads stay where they are."""
    source, steps = _source(partial(mlp, SMALL, latent=2, hidden=8), epochs=1), []
    source.begin(torch_generator(0))
    made = source.to("meta").make(Turn(None, steps.append, None, torch_generator(0)))
    assert {loss.device.type for loss in steps} == {made.x.device.type} == {made.y.device.type} == {"meta"}
    assert len(steps) == 240 // 16
    assert made.x.shape == (300, 1, 8, 8)


def test_too_few_images_to_learn_from_name_the_key():
    with pytest.raises(OneshotError, match=r"^method\.source\.taught=1: .*set at least 2,"):
        _made(_source(partial(mlp, SMALL, latent=2, hidden=8), split="label_distribution", taught=1))


def test_the_servers_decoder_learns_in_training_mode_in_every_round():
    """Drawing leaves it in evaluation mode."""
    source, modes = _source(partial(mlp, SMALL, latent=2, hidden=8), epochs=1), []
    for _ in range(2):
        source.make(Turn(None, lambda _: modes.append(source.decoder.training), None, torch_generator(0)))
        assert not source.decoder.training
    assert modes == [True] * (2 * 240 // 16)


def test_labels_are_uniform_whatever_the_clients_have():
    _, y, _ = _made(_source(partial(mlp, SMALL, latent=2, hidden=8)))
    assert y.bincount(minlength=3).min() > 70  # of 300; the clients have 9 : 2 : 1


def test_the_same_seed_gives_the_same_images_and_the_global_state_is_left_alone():
    before = torch.get_rng_state()
    source = _source(partial(mlp, SMALL, latent=2, hidden=8))
    torch.set_rng_state(before)
    first, again, other = (_made(source, seed)[0] for seed in (0, 0, 1))
    assert torch.equal(first, again)
    assert not torch.equal(first, other)
    assert torch.equal(torch.get_rng_state(), before)


def test_vaes_with_noise_of_several_lengths_are_refused_before_training():
    cfg = compose_config("method=fedcvae_kd", "clients=all_cvae", "++cvae.names=[cvae_mlp,cvae_conv3]")
    with pytest.raises(OneshotError, match="noise of one length, not 2 and 20; choose one VAE"):
        check(cfg)


@pytest.mark.parametrize(
    ("data", "taught", "epochs", "bound", "samples"),
    [("mnist", 5000, 7, 1.0, 5000), ("svhn", 5000, 80, 3.0, 5000), ("cifar10", 10000, 30, 3.0, 2500)],
)
def test_numbers_follow_the_data_set(data, taught, epochs, bound, samples):
    source = compose_config("method=fedcvae_kd", f"data={data}").method.source
    assert (source.taught, source.epochs, source.bound, source.samples) == (taught, epochs, bound, samples)


@pytest.mark.parametrize("bound", [None, 1.0])
def test_the_servers_decoder_draws_from_noise_within_the_bound(bound, monkeypatch):
    seen, real = [], module.draw
    monkeypatch.setattr(module, "draw", lambda *given, size: seen.append(given[2]) or real(*given, size=size))
    _made(_source(partial(mlp, SMALL, latent=2, hidden=4), bound=bound, epochs=1))
    assert [len(noise) for noise in seen] == [300]
    assert bool(seen[0].abs().max() <= 1) is (bound is not None)
