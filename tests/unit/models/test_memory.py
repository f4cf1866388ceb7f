"""What a forward pass holds, by hand: whatever a layer below answers are 2x4 numbers, 32 bytes."""

import pytest
import torch
from torch import nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.models.memory import bytes_held, memory_here
from oneshot_fl.models.zoo import from_torchvision, resnet


def _layers() -> nn.Module:
    return nn.Sequential(*(layer for _ in range(3) for layer in (nn.Linear(4, 4), nn.Tanh())))


def test_without_gradients_a_layer_holds_what_it_is_given_and_what_it_answers():
    with torch.no_grad():
        assert bytes_held(_layers(), torch.zeros(2, 4)) == 2 * 32


def test_with_gradients_all_that_a_backward_pass_needs_is_held():
    # of each hyperbolic tangent the answer; while the third one computes, also what it is given
    assert bytes_held(_layers(), torch.zeros(2, 4, requires_grad=True)) == 3 * 32 + 32


@torch.no_grad()
def test_what_is_computed_in_place_or_seen_otherwise_counts_once():
    model = nn.Sequential(nn.Linear(4, 4), nn.ReLU(inplace=True), nn.Unflatten(1, (2, 2)), nn.Flatten())
    assert bytes_held(model, torch.zeros(2, 4)) == 32


@torch.no_grad()
def test_a_pass_that_raises_counts_as_far_as_it_gets():
    assert bytes_held(nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(5, 4)), torch.zeros(2, 4)) == 2 * 32


class Keeps(nn.Module):
    """Computes something when it is first asked, and keeps it."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.kept: torch.Tensor | None = None

    def forward(self, x):
        self.kept = self.weight + 1 if self.kept is None else self.kept
        return x * self.kept


def test_the_model_itself_stays_as_it_was():
    model = Keeps()
    assert bytes_held(model, torch.zeros(2, 4)) > 0
    assert model.kept is None
    assert model.weight.device.type == "cpu"


@torch.no_grad()
def test_nothing_is_known_of_what_cannot_be_copied():
    class Uncopied(nn.Linear):
        def __deepcopy__(self, memo):
            raise TypeError("one of its kind")

    assert bytes_held(Uncopied(4, 4), torch.zeros(2, 4)) == 0


@pytest.mark.parametrize("build", [lambda spec: resnet(spec, depth=18), None], ids=["resnet18", "regnet"])
def test_networks_of_torchvision_are_seen_through_to_the_end(build):
    """Four times the pixels hold four times the bytes, also of one whose builder needs numbers."""
    build = build or (lambda spec: from_torchvision(spec, architecture="regnet_x_400mf"))
    model = build(DataSpec(3, 64, 10, (0.5,) * 3, (0.5,) * 3)).eval()
    small, large = (bytes_held(model, torch.zeros(2, 3, side, side, requires_grad=True)) for side in (64, 128))
    assert large == pytest.approx(4 * small, rel=0.01)


def test_this_machine_has_memory():
    assert memory_here() > 10**8


@pytest.mark.parametrize(
    ("groups", "limits", "expected"),
    [
        ("0::/job/step\n", {"job/memory.max": "5000\n", "job/step/memory.max": "max\n"}, 5000),
        ("0::/host/path\n", {"memory.max": "6000\n"}, 6000),  # in a container that does not see the host's folders
        ("1:cpu:/\n4:name,memory:/job\n0::/\n", {"memory/job/memory.limit_in_bytes": "7000\n"}, 7000),
        ("4:memory:/\n", {"memory/memory.limit_in_bytes": "9223372036854771712\n"}, memory_here()),
        ("0::/\n", {}, memory_here()),
    ],
)
def test_a_container_or_a_job_may_be_allowed_less_than_the_machine_has(groups, limits, expected, tmp_path):
    files = {"proc/self/cgroup": groups, **{f"sys/fs/cgroup/{name}": text for name, text in limits.items()}}
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert memory_here(tmp_path) == expected
