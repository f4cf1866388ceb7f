import math

import torch
from torch.testing import assert_close

from oneshot_fl.methods.f_dafl import Activation, InformationEntropy, PseudoLabel

LOG3 = math.log(3.0)


class _View:
    """Two images: the ensemble gives [3/4, 1/4] and [1/4, 3/4]."""

    teacher = torch.tensor([[LOG3, 0.0], [0.0, LOG3]])
    features = [torch.tensor([[1.0, -3.0]]), torch.tensor([[0.0, 0.5, -1.0]])]


def test_pseudo_labels_are_the_ensembles_own():
    assert_close(PseudoLabel(1.0)(_View()), torch.tensor(math.log(4 / 3)))


def test_activation_is_the_negative_mean_size_of_features_over_clients():
    assert_close(Activation(1.0)(_View()), torch.tensor(-(2.0 + 0.5) / 2))


def test_entropy_is_lowest_for_balanced_classes_and_counts_in_log10():
    assert_close(InformationEntropy(1.0)(_View()), torch.tensor(-math.log10(2)))

    class Leaning(_View):
        teacher = torch.tensor([[LOG3, 0.0], [0.0, 0.0]])  # [3/4, 1/4] and [1/2, 1/2]: [5/8, 3/8] in the mean

    expected = 5 / 8 * math.log10(5 / 8) + 3 / 8 * math.log10(3 / 8)
    assert_close(InformationEntropy(1.0)(Leaning()), torch.tensor(expected))

    class OneClass(_View):
        teacher = torch.tensor([[60.0, 0.0], [60.0, 0.0]])

    assert_close(InformationEntropy(1.0)(OneClass()), torch.tensor(0.0))


def test_a_class_that_nobody_says_leaves_the_gradient_of_the_entropy_finite():
    class Unsaid(_View):
        teacher = torch.tensor([[150.0, 149.0, 0.0]], requires_grad=True)  # exp(-150) is 0 in single precision

    InformationEntropy(1.0)(Unsaid()).backward()
    # d/dz_0 of sum_c p_c ln p_c is p_0 (ln p_0 - sum_c p_c ln p_c) = p_0 p_1 (ln p_0 - ln p_1) = p_0 p_1 (1 - 0)
    slope = torch.tensor([1.0, 0.0]).softmax(0).prod().item() / math.log(10)
    assert_close(Unsaid.teacher.grad, torch.tensor([[slope, -slope, 0.0]]))
