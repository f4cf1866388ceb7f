import torch

from oneshot_fl.seeds import derive_seed, seeded, torch_generator


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
