"""OT fusion: a permuted copy of a network fuses to the same function."""

from copy import deepcopy

import pytest
import torch
from torch import nn
from torch.nn.modules.batchnorm import _BatchNorm

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.methods.ot import OptimalTransport, aligned_state, require_chain, unit_assignment
from oneshot_fl.models.classifiers import cnn2, cnn3, lenet5
from oneshot_fl.models.zoo import resnet
from tests.parts import server_of

SPEC = DataSpec(1, 28, 5, (0.5,), (0.5,))


def _normalised_when_flat() -> nn.Module:
    """Batch normalisation of 16 features a channel."""
    convolved = (nn.Conv2d(1, 8, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d(4), nn.Flatten())
    return nn.Sequential(*convolved, nn.BatchNorm1d(128), nn.Linear(128, SPEC.classes))


BUILDERS = [lambda: cnn2(SPEC, norm=True), lambda: cnn3(SPEC, norm=False), lambda: lenet5(SPEC), _normalised_when_flat]


def _trained_looking(build) -> nn.Module:
    """A network whose batch normalisation layers have statistics and affine parameters of their own."""
    model = build()
    for module in model.modules():
        if isinstance(module, _BatchNorm):
            nn.init.uniform_(module.weight, 0.5, 1.5)
            nn.init.uniform_(module.bias, -0.5, 0.5)
    model(torch.randn(16, 1, 28, 28))
    return model.eval()


def _permuted(model: nn.Module, build) -> nn.Module:
    """The same function with every hidden layer's units shuffled, written out layer by layer."""
    copy = build().eval()
    copy.load_state_dict(model.state_dict())
    weighted = [layer for layer in copy if isinstance(layer, nn.Conv2d | nn.Linear)]
    order = None
    for layer in copy:
        if isinstance(layer, _BatchNorm):
            for tensor in (layer.weight.data, layer.bias.data, layer.running_mean, layer.running_var):
                tensor.copy_(tensor.reshape(len(order), -1)[order].flatten())
        elif layer in weighted:
            if order is not None:
                units, per_channel = len(order), layer.weight[0].numel() // len(order)
                flat = layer.weight.data.reshape(len(layer.weight), units, per_channel)[:, order]
                layer.weight.data.copy_(flat.reshape(layer.weight.shape).clone())
            if layer is not weighted[-1]:
                order = torch.randperm(len(layer.weight))
                layer.weight.data.copy_(layer.weight.data[order].clone())
                layer.bias.data.copy_(layer.bias.data[order].clone())
    return copy


@pytest.mark.parametrize("build", BUILDERS)
def test_a_permuted_copy_is_the_same_function_and_fuses_to_it(build):
    model = _trained_looking(build)
    copy = _permuted(model, build)
    x = torch.randn(8, 1, 28, 28)
    torch.testing.assert_close(copy(x), model(x), rtol=1e-4, atol=1e-5)
    first = next(name for name, tensor in model.state_dict().items() if tensor.ndim == 4)
    assert not torch.equal(copy.state_dict()[first], model.state_dict()[first])
    fused = OptimalTransport(server_of([copy, model], [10, 20]))(build().eval())
    torch.testing.assert_close(fused(x), model(x), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("value", [float("nan"), float("inf")])
def test_an_upload_that_is_not_finite_is_named(value):
    models = [lenet5(SPEC) for _ in range(2)]
    with torch.no_grad():
        models[1][-1].bias[0] = value
    with pytest.raises(OneshotError, match=r"^method=ot: tensor \d+\.bias of client 1 is not finite, .*gate=checks"):
        OptimalTransport(server_of(models, [1, 1]))(lenet5(SPEC))


def test_the_anchor_has_most_samples_and_ties_go_to_the_lowest_id():
    models = [nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)) for _ in range(3)]
    for sizes, expected in (([1, 5, 5], 1), ([7, 5, 5], 0)):
        student = nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2))
        fused = OptimalTransport(server_of(models, sizes))(student)
        states = [aligned_state(model, models[expected]) for model in models]
        mean = sum(size * state["0.weight"].double() for size, state in zip(sizes, states, strict=True)) / sum(sizes)
        torch.testing.assert_close(fused.state_dict()["0.weight"], mean.float())


def test_the_assignment_is_the_cheapest_one():
    # distances to target 0: 1, 9; to target 1: 11, 1 -> unit 0 to target 0, unit 1 to target 1 (cost 2, not 20)
    targets, units = torch.tensor([[0.0], [10.0]]), torch.tensor([[-1.0], [9.0]])
    assert unit_assignment(units, targets).tolist() == [0, 1]
    assert unit_assignment(units.flip(0), targets).tolist() == [1, 0]


def test_units_are_told_by_their_bias_too():
    model, anchor = (nn.Sequential(nn.Linear(1, 2), nn.ReLU(), nn.Linear(2, 2)) for _ in range(2))
    for one, biases in ((model, [0.0, 10.0]), (anchor, [10.0, 0.0])):
        one[0].weight.data, one[0].bias.data = torch.ones(2, 1), torch.tensor(biases)
    assert aligned_state(model, anchor)["0.bias"].tolist() == [10.0, 0.0]


def test_the_output_layer_keeps_its_classes():
    model, anchor = (nn.Sequential(nn.Linear(2, 3), nn.ReLU(), nn.Linear(3, 2)) for _ in range(2))
    state = aligned_state(model, anchor)
    assert torch.equal(state["2.bias"], model[2].bias)
    assert torch.equal(state["2.weight"].sort(1).values, model[2].weight.data.sort(1).values)


@pytest.mark.parametrize("hidden", [2, 3])  # as many as classes, and not
def test_a_normalisation_behind_the_output_layer_keeps_its_classes(hidden):
    model = nn.Sequential(nn.Linear(2, hidden), nn.ReLU(), nn.Linear(hidden, 2), nn.BatchNorm1d(2)).eval()
    anchor = deepcopy(model)
    anchor[0].weight.data, anchor[0].bias.data = model[0].weight.flip(0).data, model[0].bias.flip(0).data
    model[3].weight.data, model[3].bias.data = torch.tensor([1.0, 2.0]), torch.tensor([3.0, 4.0])
    images, before = torch.randn(4, 2), deepcopy(model)
    model.load_state_dict(aligned_state(model, anchor))
    assert not torch.equal(model[0].weight, before[0].weight)
    torch.testing.assert_close(model(images), before(images))


def test_a_channel_takes_all_its_features_along_through_batch_normalisation():
    # the anchor's channels are the model's swapped; each is two features of the flattened image: 0 1 | 2 3 -> 2 3 | 0 1
    chain = (nn.Conv2d(1, 2, 1, bias=False), nn.Flatten(), nn.BatchNorm1d(4), nn.Linear(4, 1, bias=False))
    model, anchor = nn.Sequential(*chain), nn.Sequential(nn.Conv2d(1, 2, 1, bias=False), *chain[1:])
    model[0].weight.data = torch.tensor([1.0, 5.0]).view(2, 1, 1, 1)
    anchor[0].weight.data = torch.tensor([5.0, 1.0]).view(2, 1, 1, 1)
    numbers = {"2.weight": 0.0, "2.bias": 10.0, "2.running_mean": 20.0, "2.running_var": 30.0, "3.weight": 40.0}
    for name, first in numbers.items():
        tensor = model.state_dict()[name]
        tensor.copy_((first + torch.arange(4)).view(tensor.shape))
    state = aligned_state(model, anchor)
    assert state["0.weight"].flatten().tolist() == [5, 1]
    for name, first in numbers.items():
        assert state[name].flatten().tolist() == [first + 2, first + 3, first, first + 1]
        assert state[name].shape == model.state_dict()[name].shape


@pytest.mark.parametrize(
    "model",
    [
        resnet(SPEC, depth=18),
        nn.Sequential(nn.Conv2d(2, 2, 1, groups=2)),
        nn.Sequential(nn.LSTM(2, 2)),
        nn.Sequential(shared := nn.Linear(2, 2), nn.ReLU(), shared, nn.Linear(2, 2)),
    ],
)
def test_what_is_no_chain_is_refused(model):
    with pytest.raises(OneshotError, match="method=ot"):
        require_chain(model)


class _AddsUp(nn.Sequential):
    def forward(self, x):
        return x + super().forward(x)


def test_a_chain_that_runs_otherwise_than_one_is_refused():
    require_chain(nn.Sequential(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)))
    with pytest.raises(OneshotError, match=r"^method=ot: _AddsUp has a forward of its own"):
        require_chain(_AddsUp(nn.Linear(3, 3), nn.ReLU(), nn.Linear(3, 3)))


@pytest.mark.filterwarnings("ignore:.*weight_norm.*")
@pytest.mark.parametrize(
    "norm",
    [
        nn.utils.parametrizations.spectral_norm,
        nn.utils.parametrizations.weight_norm,
        nn.utils.spectral_norm,
        nn.utils.weight_norm,
    ],
)
def test_a_weight_that_is_computed_from_others_is_refused(norm):
    chain = nn.Sequential(norm(nn.Conv2d(1, 2, 3)), nn.ReLU(), nn.Flatten(), nn.Linear(8, 3))
    with pytest.raises(OneshotError, match=r"^method=ot: the layer \w*Conv2d\( ?1, 2, .* cannot be aligned; choose a"):
        require_chain(chain)
