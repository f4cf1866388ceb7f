import math

import torch
from torch.testing import assert_close

from oneshot_fl.methods.f_adi import Competition, ImageNorm

LOG3 = math.log(3.0)


class _View:
    x = torch.tensor([[[[0.0, 3.0], [4.0, 7.0]]]])
    teacher = torch.tensor([[LOG3, 0.0]])  # [3/4, 1/4] at temperature 1
    student = torch.tensor([[0.0, LOG3]])  # [1/4, 3/4]


def test_image_norm():
    class Two(_View):
        x = torch.tensor([[[[0.0, 3.0]]], [[[4.0, 0.0]]]])

    assert_close(ImageNorm(1.0)(_View()), torch.tensor(math.sqrt(9 + 16 + 49)))
    assert_close(ImageNorm(1.0)(Two()), torch.tensor(3.5))  # the mean of the norms, not that of the batch, 5


def test_competition_is_one_minus_the_divergence_from_the_mixture():
    # mixture [1/2, 1/2]: KL(M || [3/4, 1/4]) = 1/2 log(2/3) + 1/2 log 2, the same for the other
    divergence = 0.5 * math.log(2 / 3) + 0.5 * math.log(2)
    assert_close(Competition(1.0, temperature=1.0)(_View()), torch.tensor(1 - divergence))

    class Sharper(_View):
        teacher, student = 3 * _View.teacher, 3 * _View.student

    assert_close(Competition(1.0, temperature=3.0)(Sharper()), torch.tensor(1 - divergence))


def test_competition_is_one_where_teacher_and_student_agree():
    class Agree(_View):
        student = _View.teacher

    assert_close(Competition(1.0, temperature=3.0)(Agree()), torch.tensor(1.0))


def test_probabilities_are_clipped_to_a_hundredth_and_the_divergence_to_one():
    class Apart(_View):
        teacher, student = torch.tensor([[100.0, 0.0]]), torch.tensor([[0.0, 100.0]])

    # [0.99, 0.01] and [0.01, 0.99], mixture [1/2, 1/2]: 1/2 log(0.5 / 0.99) + 1/2 log(0.5 / 0.01) = 1.61 is cut to 1
    assert_close(Competition(1.0, temperature=1.0)(Apart()), torch.tensor(0.0))

    class Sure(_View):
        teacher = student = torch.tensor([[100.0, 0.0]])

    assert_close(Competition(1.0, temperature=1.0)(Sure()), torch.tensor(1.0))  # all three are [0.99, 0.01]

    class OneSure(_View):
        teacher, student = torch.tensor([[100.0, 0.0]]), torch.tensor([[0.0, 0.0]])

    # mixture [3/4, 1/4] of [1, 0] and [1/2, 1/2]; the first of these counts as [0.99, 0.01]
    of_student = 0.75 * math.log(0.75 / 0.5) + 0.25 * math.log(0.25 / 0.5)
    of_teacher = 0.75 * math.log(0.75 / 0.99) + 0.25 * math.log(0.25 / 0.01)
    assert_close(Competition(1.0, temperature=1.0)(OneSure()), torch.tensor(1 - (of_student + of_teacher) / 2))
