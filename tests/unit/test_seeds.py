import pytest
import torch

from oneshot_fl.phases.checkpoint import _global_rng
from oneshot_fl.seeds import apples_rng, derive_seed, seeded, set_apples_rng, torch_generator


def test_every_element_of_the_path_matters_and_nothing_else():
    seeds = [derive_seed(0, "a"), derive_seed(1, "a"), derive_seed(0, "b"), derive_seed(0, "a", 0)]
    assert len(set(seeds)) == 4
    assert derive_seed(0, "a") == seeds[0]
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_generators_of_one_path_draw_the_same():
    assert torch.equal(
        torch.rand(3, generator=torch_generator(1, "x")), torch.rand(3, generator=torch_generator(1, "x"))
    )


def test_seeded_restores_the_global_state():
    torch.manual_seed(7)
    expected = torch.rand(2)
    torch.manual_seed(7)
    with seeded(3, "inner"):
        inner = torch.rand(2)
    assert torch.equal(torch.rand(2), expected)
    with seeded(3, "inner"):
        assert torch.equal(torch.rand(2), inner)


def _with_gpus(monkeypatch, *, started):
    """Two GPUs of which a test may count how often their generators are asked."""
    asked = []

    def state(device):
        asked.append(device)
        return torch.zeros(1, dtype=torch.uint8)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: 2)
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: started)
    monkeypatch.setattr(torch.cuda, "get_rng_state", state)
    monkeypatch.setattr(torch.cuda, "get_rng_state_all", lambda: [state(0), state(1)])
    monkeypatch.setattr(torch.cuda, "manual_seed_all", lambda seed: None)
    monkeypatch.setattr(torch.cuda, "set_rng_state", lambda state, device: None)
    return asked


@pytest.mark.parametrize(("started", "expected"), [(False, []), (True, [0, 1, 0, 1])])
def test_gpus_are_asked_for_their_generators_only_once_cuda_has_started(monkeypatch, started, expected):
    asked = _with_gpus(monkeypatch, started=started)
    with seeded(0, "block"):
        states = _global_rng()
    assert asked == expected
    assert len(states) == 1 + len(expected) // 2


@pytest.fixture
def apple(monkeypatch):
    """The generator of an Apple GPU, as far as torch is asked for it."""
    generator = torch.Generator().manual_seed(7)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    monkeypatch.setattr(torch.mps, "get_rng_state", generator.get_state)
    monkeypatch.setattr(torch.mps, "set_rng_state", generator.set_state)
    monkeypatch.setattr(torch.mps, "manual_seed", generator.manual_seed)
    return generator


def test_an_apple_gpu_draws_by_the_seed_inside_the_block_and_goes_on_after_it(apple):
    expected = torch.rand(2, generator=torch.Generator().manual_seed(7))
    drawn = []
    for _ in range(2):
        with seeded(3, "inner"):
            drawn.append(torch.rand(2, generator=apple))
    assert torch.equal(*drawn)
    assert torch.equal(torch.rand(2, generator=apple), expected)


def test_a_state_of_an_apple_gpu_is_none_where_there_is_no_such_device(apple, monkeypatch):
    state = apples_rng()
    torch.rand(1, generator=apple)
    set_apples_rng(state)
    assert torch.equal(apple.get_state(), state)
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert apples_rng() is None
    torch.rand(1, generator=apple)
    set_apples_rng(state)
    assert not torch.equal(apple.get_state(), state)
