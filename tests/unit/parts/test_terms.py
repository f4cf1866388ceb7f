"""Eqs. 13-17 and 19 of FedHydra (and terms of others) against numbers worked out by hand."""

import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from oneshot_fl.models.bank import ClientBank, LayerStatistics
from oneshot_fl.parts.ensembles import LogitAverage
from oneshot_fl.parts.terms import (
    Adversarial,
    BatchNormStatistics,
    CrossEntropy,
    Distillation,
    HardCrossEntropy,
    LabelCrossEntropy,
    Roughness,
    TotalVariation,
    kl_divergence,
)
from oneshot_fl.parts.view import View
from tests.parts import server_of

LOG3 = math.log(3.0)


class _View:
    """Teacher and student see one image of class 0: softmax(teacher) = [3/4, 1/4], softmax(student) = [1/2, 1/2]."""

    x = torch.zeros(1)
    y = torch.tensor([0])
    trust = torch.ones(1)
    teacher = torch.tensor([[LOG3, 0.0]])
    student = torch.tensor([[0.0, 0.0]])
    statistics: list = []


KL_AT_1 = 0.75 * math.log(1.5) + 0.25 * math.log(0.5)


def test_eq_13_cross_entropy_of_the_ensemble():
    assert_close(CrossEntropy(1.0)(_View()), torch.tensor(math.log(4 / 3)))


def test_fedmho_eq_5_cross_entropy_of_the_student():
    assert_close(LabelCrossEntropy(1.0)(_View()), torch.tensor(math.log(2.0)))


class _Pair(_View):
    """Two images of class 0: the teacher gives it 3/4 and 1/2, the student 1/2 and 3/4."""

    y = torch.tensor([0, 0])
    trust = torch.ones(2)
    teacher = torch.tensor([[LOG3, 0.0], [0.0, 0.0]])
    student = torch.tensor([[0.0, 0.0], [LOG3, 0.0]])


OF_THE_SECOND = 0.5 * math.log(0.5 / 0.75) + 0.5 * math.log(0.5 / 0.25)
"""KL of [1/2, 1/2] from [3/4, 1/4]."""


@pytest.mark.parametrize(
    ("term", "first", "second"),
    [
        (CrossEntropy(1.0), math.log(4 / 3), math.log(2)),
        (LabelCrossEntropy(1.0), math.log(2), math.log(4 / 3)),
        (HardCrossEntropy(1.0, power=1.0), math.log(4 / 3) / 4, math.log(2) / 2),
        (Distillation(1.0, temperature=1.0), KL_AT_1, OF_THE_SECOND),
        (Adversarial(1.0, temperature=1.0, only_disagreement=False), -KL_AT_1, -OF_THE_SECOND),
    ],
)
def test_every_term_of_single_images_is_their_mean(term, first, second):
    assert_close(term(_Pair()), torch.tensor((first + second) / 2))


def test_dfdgs_distillation_is_not_multiplied_by_the_square_of_the_temperature():
    squared, plain = (Distillation(1.0, temperature=3.0, squared=which)(_Pair()) for which in (True, False))
    assert_close(plain, squared / 9)


def test_co_boosting_eqs_5_and_6_weigh_a_sample_by_its_difficulty():
    assert_close(HardCrossEntropy(1.0, power=1.0)(_View()), torch.tensor(0.25 * math.log(4 / 3)))
    assert_close(HardCrossEntropy(1.0, power=0.0)(_View()), torch.tensor(math.log(4 / 3)))


def test_the_difficulty_is_not_trained():
    view = _View()
    view.teacher = view.teacher.clone().requires_grad_()
    HardCrossEntropy(1.0, power=1.0)(view).backward()
    # (1 - p) times the gradient of the cross-entropy, which is p - onehot
    assert_close(view.teacher.grad, 0.25 * torch.tensor([[-0.25, 0.25]]))


def test_a_label_counts_as_far_as_it_is_trusted():
    view = _View()
    view.trust = torch.tensor([0.25])
    assert_close(LabelCrossEntropy(1.0)(view), torch.tensor(math.log(2.0) / 4))


def test_f_adis_total_variation_adds_four_norms():
    # right: (3, 3) -> sqrt 18; down: (4, 4) -> sqrt 32; diagonals: 7 - 0 and 4 - 3
    view = _View()
    view.x = torch.tensor([[[[0.0, 3.0], [4.0, 7.0]]]])
    assert_close(TotalVariation(1.0)(view), torch.tensor(math.sqrt(18) + math.sqrt(32) + 7 + 1))


def test_fedchorus_eq_4_roughness_is_the_mean_step_between_neighbours():
    view = _View()
    view.x = torch.tensor([[[[0.0, 1.0, 1.0], [3.0, 3.0, 3.0]]]])
    # down the columns 3, 2, 2; along the rows 1, 0, 0, 0
    assert_close(Roughness(1.0)(view), torch.tensor(7 / 3 + 1 / 4))


def test_eqs_15_and_17_kl_is_from_teacher_to_student():
    assert_close(Distillation(1.0, temperature=1.0)(_View()), torch.tensor(KL_AT_1))
    assert_close(Adversarial(1.0, temperature=1.0, only_disagreement=False)(_View()), torch.tensor(-KL_AT_1))


def test_eq_15_is_softened_and_scaled_as_eq_17_is():
    class Sharper(_View):
        teacher, student = 3 * _View.teacher, 3 * _View.student

    expected = torch.tensor(9 * KL_AT_1)
    assert_close(Distillation(1.0, temperature=3.0)(Sharper()), expected)
    assert_close(Adversarial(1.0, temperature=3.0, only_disagreement=False)(Sharper()), -expected)


def test_temperature_softens_both_and_scales_by_its_square():
    # T = 2: softmax(teacher / 2) = [sqrt 3, 1] / (1 + sqrt 3)
    p = math.sqrt(3) / (1 + math.sqrt(3))
    expected = 4 * (p * math.log(2 * p) + (1 - p) * math.log(2 * (1 - p)))
    assert_close(kl_divergence(_View.teacher, _View.student, 2.0), torch.tensor([expected]))


def test_dense_counts_only_samples_on_which_teacher_and_student_disagree_but_divides_by_all():
    class Two(_View):
        teacher = torch.tensor([[LOG3, 0.0], [LOG3, 0.0]])
        student = torch.tensor([[1.0, 0.0], [0.0, LOG3]])  # agrees, disagrees

    # second sample: KL([3/4, 1/4] || [1/4, 3/4]) = 3/4 log 3 - 1/4 log 3 = log(3) / 2
    term = Adversarial(1.0, temperature=1.0, only_disagreement=True)
    assert_close(term(Two()), torch.tensor(-LOG3 / 4))


def _layer(mean: list[float], var: list[float]) -> LayerStatistics:
    return LayerStatistics(torch.tensor(mean), torch.tensor(var), torch.tensor([0.0, 0.0]), torch.tensor([1.0, 1.0]))


def test_eq_14_sums_euclidean_distances_over_layers_and_averages_over_clients():
    class WithStatistics(_View):
        # client 0: |(3, 4)| + |(1, 1) - (1, 1)| = 5, and |(0, 0)| + |(7, 9) - (1, 1)| = 10; client 1: no BN layer
        statistics = [[_layer([3.0, 4.0], [1.0, 1.0]), _layer([0.0, 0.0], [7.0, 9.0])], []]

    assert_close(BatchNormStatistics(1.0)(WithStatistics()), torch.tensor(7.5))
    assert_close(BatchNormStatistics(1.0, over_clients="sum")(WithStatistics()), torch.tensor(15.0))


def _bn_view(x: torch.Tensor, norm: nn.BatchNorm2d) -> View:
    model = nn.Sequential(norm, nn.AdaptiveAvgPool2d(1), nn.Flatten())
    bank = ClientBank([model])
    return View(
        x,
        torch.zeros(len(x), dtype=torch.long),
        student=model,
        bank=bank,
        ensemble=LogitAverage(server_of([model])),
        needs=BatchNormStatistics.needs,
    )


def test_bn_loss_is_zero_when_the_statistics_agree():
    x = torch.randn(16, 3, 4, 4)
    norm = nn.BatchNorm2d(3)
    norm.running_mean.copy_(x.mean((0, 2, 3)))
    norm.running_var.copy_(x.var((0, 2, 3), correction=0))
    assert BatchNormStatistics(1.0)(_bn_view(x, norm)).item() == pytest.approx(0.0, abs=1e-6)


def test_bn_loss_is_not_zero_when_they_differ_and_its_gradient_reaches_the_images():
    x = torch.randn(16, 3, 4, 4, requires_grad=True)
    loss = BatchNormStatistics(1.0)(_bn_view(x, nn.BatchNorm2d(3)))
    loss.backward()
    assert loss.item() > 0.01
    assert x.grad.abs().sum() > 0
