import pytest
import torch
from torch import nn
from torch.testing import assert_close

from oneshot_fl.errors import NothingLeftError
from oneshot_fl.parts.inits import Average, AverageWhereAlike, Fresh
from tests.parts import server_of


def _net(weight: float, mean: float, batches: int) -> nn.Module:
    net = nn.Sequential(nn.Linear(1, 1, bias=False), nn.BatchNorm1d(1))
    nn.init.constant_(net[0].weight, weight)
    net[1].running_mean.fill_(mean)
    net[1].num_batches_tracked.fill_(batches)
    return net


def test_average_weighs_parameters_and_running_statistics_by_samples():
    server = server_of([_net(1.0, 0.0, 7), _net(5.0, 8.0, 9)], [30, 10])
    student = Average(server)(_net(0.0, 0.0, 0))
    assert_close(student[0].weight, torch.tensor([[2.0]]))  # (30*1 + 10*5) / 40
    assert_close(student[1].running_mean, torch.tensor([2.0]))
    assert student[1].num_batches_tracked.item() == 7


def test_average_takes_the_clients_of_the_students_architecture():
    server = server_of([_net(1.0, 0.0, 7), nn.Linear(3, 2), _net(5.0, 8.0, 9)], [30, 99, 10])
    student = Average(server)(_net(0.0, 0.0, 0))
    assert_close(student[0].weight, torch.tensor([[2.0]]))  # (30*1 + 10*5) / 40


class _Activated(nn.Linear):
    def __init__(self, activation, weight: float) -> None:
        super().__init__(1, 1, bias=False)
        self.activation = activation
        nn.init.constant_(self.weight, weight)


@pytest.mark.parametrize("init", [Average, AverageWhereAlike])
def test_clients_that_differ_in_a_function_alone_are_averaged_apart(init):
    server = server_of([_Activated(torch.relu, 1.0), _Activated(torch.tanh, 9.0), _Activated(torch.relu, 3.0)])
    assert init(server)(_Activated(torch.relu, 0.0)).weight.item() == 2.0
    assert init(server)(_Activated(torch.tanh, 0.0)).weight.item() == 9.0


def test_average_of_equal_clients_is_that_client_bit_for_bit():
    client = nn.Linear(7, 3)
    student = Average(server_of([client, client, client], [1, 2, 4]))(nn.Linear(7, 3))
    assert torch.equal(student.weight, client.weight)


def test_an_average_of_nobody_is_refused():
    with pytest.raises(NothingLeftError, match=r"^method/init=average: no classifier of .* is left"):
        Average(server_of([nn.Linear(3, 2)]))(_net(0.0, 0.0, 0))


def test_fresh_leaves_the_student_alone():
    student = nn.Linear(2, 2)
    assert Fresh(server_of([nn.Linear(2, 2)]))(student) is student


def test_where_architectures_differ_the_mean_is_over_those_like_the_student():
    other = nn.Sequential(nn.Linear(1, 3, bias=False), nn.BatchNorm1d(3))
    server = server_of([_net(1.0, 0.0, 7), other, _net(5.0, 8.0, 9)], [30, 10, 10])
    student = AverageWhereAlike(server)(_net(0.0, 0.0, 0))
    assert_close(student[0].weight, torch.tensor([[3.0]]))  # (1 + 5) / 2: sizes do not count
    assert_close(student[1].running_mean, torch.tensor([4.0]))


def test_a_student_like_no_client_stays_fresh():
    student = _net(2.5, 0.0, 0)
    AverageWhereAlike(server_of([nn.Linear(2, 2)]))(student)
    assert student[0].weight.item() == 2.5
