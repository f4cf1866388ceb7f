"""A client with other classes behind the federation's: its own answers stay, the others get a small, constant share."""

import math

import torch

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.aligned import UNKNOWN, AlignedClassifier
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.classifiers import cnn2

SPEC = DataSpec(1, 8, 4, (0.5,), (0.5,))
OWN = DataSpec(1, 8, 2, (0.25,), (0.5,))


def _aligned(positions: list[int | None]) -> AlignedClassifier:
    torch.manual_seed(1)
    return AlignedClassifier(cnn2(OWN, norm=True).eval(), OWN, SPEC, positions)


def test_an_unknown_class_has_a_small_constant_log_probability_and_takes_no_gradient():
    model, x = _aligned([1, None, 0, None]), torch.randn(3, 1, 8, 8, requires_grad=True)
    logits = model(x)
    known = logits[:, [2, 0]].logsumexp(dim=1, keepdim=True)
    torch.testing.assert_close(logits[:, [1, 3]] - known, torch.full((3, 2), math.log(UNKNOWN)))
    loss = torch.nn.functional.cross_entropy(logits, torch.tensor([1, 1, 1]))
    (gradient,) = torch.autograd.grad(loss, x)
    assert float(gradient.abs().max()) < 1e-5  # a generator learns nothing from a client that has no such class


def test_very_many_unknown_classes_take_a_hundredth_of_the_belief_together():
    spec = DataSpec(1, 8, 8002, (0.5,), (0.5,))
    model = AlignedClassifier(cnn2(OWN, norm=True).eval(), OWN, spec, [0, 1, *[None] * 8000])
    own = model(torch.randn(3, 1, 8, 8)).softmax(dim=1)[:, :2].sum(dim=1)
    torch.testing.assert_close(own, torch.full((3,), 1 / 1.01), atol=1e-4, rtol=0)


def test_clients_with_other_classes_run_alike_in_a_loop_and_stacked():
    models, x = [_aligned([1, None, 0, None]), _aligned([0, 1, None, None])], torch.randn(3, 1, 8, 8)
    loop, stacked = (ClientBank(models, mode=mode)(x).logits for mode in ("loop", "stacked"))
    torch.testing.assert_close(loop, stacked)
    assert loop.shape == (2, 3, 4)


def test_what_parts_look_at_inside_a_model_is_found_behind_the_alignment():
    outputs = ClientBank([_aligned([0, 1, None, None])])(torch.randn(3, 1, 8, 8), frozenset({"statistics", "features"}))
    assert len(outputs.statistics[0]) == 2
    assert outputs.features[0].shape == (3, 128)
