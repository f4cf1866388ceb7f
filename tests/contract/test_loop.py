"""Sources, pools and warm-ups in conf/ keep what the loop relies on."""

import pytest
import torch
from omegaconf import OmegaConf

from oneshot_fl.config.bind import make_method
from oneshot_fl.config.compose import build, config_dir
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.proxy import Proxy
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.cvae import mlp
from oneshot_fl.parts.pools import Entry
from oneshot_fl.parts.slots import Method
from oneshot_fl.parts.uploads import Decoder, Uploads
from tests.conftest import compose_config
from tests.contract.test_slots import choices

SPEC = DataSpec(1, 8, 10, (0.5,), (0.5,))


def _built(*overrides: str) -> tuple[Method, Uploads]:
    """A method on two classifiers and two decoders of the digits' size."""
    cfg = compose_config("clients=half_cvae", "partition.clients=4", *overrides)
    clients = [cnn2(SPEC, norm=True).eval() for _ in range(2)]
    decoders = [Decoder(mlp(SPEC, latent=2, hidden=8).decoder, 2, torch.arange(10)) for _ in range(2)]
    uploads = Uploads(clients, [1, 2], torch.rand(10, 2), decoders)
    proxy = Proxy(lambda: torch.zeros(20, 1, 8, 8, dtype=torch.uint8))
    return make_method(cfg, SPEC, uploads, proxy), uploads


@pytest.mark.parametrize("name", choices("method/source", 5))
def test_a_source_makes_labelled_images_from_its_seed_and_leaves_the_uploads_alone(name):
    small = ["generator.width=2", "distill.batch_size=4", "distill.generator_steps=2"]
    method, uploads = _built("method=fedhydra", f"method/source={name}", *small)
    before = [tensor.clone() for decoder in uploads.decoders for tensor in decoder.module.state_dict().values()]
    source = method.loop.source
    made = []
    for seed in (0, 0, 1):
        rng = torch.Generator().manual_seed(seed)
        source.begin(rng)
        made.append(source.make(lambda x, y: x.square().mean(), lambda loss: None, rng))
    x, y = made[0]
    assert x.shape[1:] == (1, 8, 8)
    assert not x.requires_grad
    assert x.min() >= -1.001 or name == "pixels"
    assert torch.equal(x, made[1][0])
    if name == "proxy":
        assert y is None
    else:
        assert len(y) == len(x)
        assert 0 <= y.min() <= y.max() <= 9
        assert not torch.equal(x, made[2][0])
    after = [tensor for decoder in uploads.decoders for tensor in decoder.module.state_dict().values()]
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


@pytest.mark.parametrize("name", choices("method/pool", 3))
def test_a_pool_hands_out_what_entered_it_shuffled_by_its_seed(name):
    pool = build(OmegaConf.load(config_dir() / "method/pool" / f"{name}.yaml"), spec=SPEC)
    x, y = torch.rand(30, 1, 8, 8), torch.arange(30) % 3
    for _ in range(2):
        if not pool.closed:
            pool.add(Entry(pool.pack(x), y, x.flatten(1)))
    passes = [list(pool.batches(7, torch.Generator().manual_seed(seed))) for seed in (0, 0, 1)]
    assert all(torch.equal(entry.x.flatten(1), entry.kept) for entry in passes[0])
    assert all(torch.equal(one.y, other.y) for one, other in zip(*passes[:2], strict=True))
    assert not torch.equal(passes[0][0].x, passes[2][0].x)
    assert sum(len(entry.y) for entry in passes[0]) == sum(len(entry.y) for entry in pool.entries)


@pytest.mark.parametrize("name", choices("method/warm_up", 1))
def test_a_warm_up_is_made_where_architectures_differ_only(name):
    overrides = ("method=fedmho", f"method/warm_up={name}", "distill.rounds=7")
    assert _built(*overrides)[0].loop.warm_up is None
    cfg = compose_config("clients=half_cvae", *overrides)
    uploads = Uploads([cnn2(SPEC, norm=norm) for norm in (True, False)], [1, 1])
    loop = make_method(cfg, SPEC, uploads, Proxy(lambda: torch.empty(0))).loop
    assert loop.warm_up.passes == 7
    assert "warm_up" in loop.optimizers
