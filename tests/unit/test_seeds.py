import io
import random

import numpy as np
import pytest
import torch

from oneshot_fl.seeds import derive_seed, rng_states, seeded, set_rng_states, torch_generator


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


def _drawn():
    return torch.rand(1).item(), np.random.rand(), np.random.normal(), random.random(), random.gauss(0, 1)  # noqa: NPY002


def test_libraries_that_draw_from_numpy_or_python_are_seeded_with_torch_and_go_on_after_the_block():
    states = rng_states()
    expected = _drawn()
    set_rng_states(states)
    blocks = []
    for _ in range(2):
        with seeded(3, "inner"):
            blocks.append(_drawn())
    assert blocks[0] == blocks[1] != expected
    assert _drawn() == expected


def test_states_are_read_from_a_file_without_running_anything():
    _drawn()  # numpy and Python keep half of what a normal number took
    file = io.BytesIO()
    torch.save(rng_states(), file)
    expected = _drawn()
    set_rng_states(torch.load(io.BytesIO(file.getvalue()), weights_only=True))
    assert _drawn() == expected


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
        states = rng_states()
    assert asked == expected
    assert len(states["gpus"]) == len(expected) // 2


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
    states = rng_states()
    torch.rand(1, generator=apple)
    set_rng_states(states)
    assert torch.equal(apple.get_state(), states["apple"])
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    assert rng_states()["apple"] is None
    torch.rand(1, generator=apple)
    set_rng_states(states)
    assert not torch.equal(apple.get_state(), states["apple"])
