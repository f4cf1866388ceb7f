from dataclasses import replace
from functools import partial

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.bank import ClientBank, has_features
from oneshot_fl.models.classifiers import cnn2, cnn3, lenet5
from oneshot_fl.models.group_norm import cnn2_group
from oneshot_fl.models.image_conv import ImageConv2d
from oneshot_fl.models.layout import to_channels_last
from oneshot_fl.models.structure import all_alike

SPEC = DataSpec(1, 8, 3, (0.5,), (0.5,))


def _clients(count: int = 3) -> list[nn.Module]:
    models = [cnn2(SPEC, norm=True) for _ in range(count)]
    for model in models:  # running statistics that differ from client to client
        model(torch.randn(32, 1, 8, 8))
    return models


@pytest.mark.parametrize("needs", [frozenset(), frozenset({"statistics", "features"})])
def test_stacked_and_looped_clients_agree_in_logits_statistics_features_and_gradients(needs):
    models = _clients()
    answers = {}
    for mode in ("loop", "stacked"):
        x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()
        outputs = ClientBank(models, mode=mode)(x, needs)
        loss = outputs.logits.square().sum() + sum(feature.square().sum() for feature in outputs.features)
        loss = loss + sum(
            (layer.batch_var - layer.running_var).square().sum() for client in outputs.statistics for layer in client
        )
        loss.backward()
        answers[mode] = (outputs, x.grad)
    assert answers["loop"][0].logits.shape == (3, 6, 3)
    assert_close(answers["loop"], answers["stacked"], rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("images", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize("build", [partial(cnn2, norm=True), partial(cnn3, norm=True), lenet5, cnn2_group])
def test_stacked_clients_send_the_same_back_to_the_images_whatever_the_layout(build, channels, images):
    """Trainers put weights channels last, and a source of pixels may have its images so.

    Normalisation asks how maps lie, which torch 2.11 answers inside vmap for contiguous ones only: that of groups
    everywhere, of batches on a GPU.
    """
    models = [build(replace(SPEC, channels=channels, mean=(0.5,) * channels, std=(0.5,) * channels)) for _ in range(3)]
    for model in models:
        to_channels_last(model)
    x = torch.randn(4, channels, 8, 8).to(memory_format=images).requires_grad_()
    logits = {mode: ClientBank(models, mode=mode)(x).logits for mode in ("loop", "stacked")}
    weights = torch.randn_like(logits["loop"])
    sent = [torch.autograd.grad((each * weights).sum(), x)[0] for each in logits.values()]
    assert_close(*sent, rtol=1e-4, atol=1e-6)


def test_in_mixed_precision_stacked_clients_compute_products_in_bf16_as_looped_ones_do():
    """Autocast does not reach through vmap: its products would be in single precision, or refuse bf16 images."""
    models = _clients()
    x = torch.randn(16, 1, 8, 8).bfloat16()
    with torch.autocast("cpu", torch.bfloat16):
        looped, stacked = (ClientBank(models, mode=mode)(x, frozenset({"features"})) for mode in ("loop", "stacked"))
    assert [each.dtype for each in stacked.features] == [each.dtype for each in looped.features] == [torch.bfloat16] * 3
    whole = ClientBank(models, mode="stacked")(x.float()).logits
    error = [float((each.logits - whole).abs().max()) for each in (looped, stacked)]
    assert 0 < error[1] < 2 * error[0] < 0.1 * float(whole.abs().max())


def test_the_logits_are_each_clients_own_in_order():
    models = _clients()
    x = torch.randn(4, 1, 8, 8)
    outputs = ClientBank(models)(x)
    for k, model in enumerate(models):
        assert_close(outputs.logits[k], model.eval()(x))


def test_statistics_are_those_of_what_enters_the_layer():
    norm = nn.BatchNorm2d(2)
    bank = ClientBank([nn.Sequential(norm, nn.Flatten())])
    x = torch.randn(5, 2, 3, 3)
    ((layer,),) = bank(x, frozenset({"statistics"})).statistics
    assert_close(layer.batch_mean, x.mean((0, 2, 3)))
    assert_close(layer.batch_var, x.var((0, 2, 3), correction=0))
    assert layer.running_mean is norm.running_mean


def test_features_are_what_enters_the_last_linear_layer():
    models = _clients(2)
    x = torch.randn(4, 1, 8, 8)
    features = ClientBank(models)(x, frozenset({"features"})).features
    for model, feature in zip(models, features, strict=True):
        assert_close(feature, model[:-1](x))


class _Activated(nn.Module):
    def __init__(self, activation) -> None:
        super().__init__()
        self.body, self.activation = nn.Linear(64, 3), activation

    def forward(self, x):
        return self.activation(self.body(x.flatten(1)))


def test_clients_that_differ_in_a_function_alone_answer_each_with_its_own():
    """Stacking would run the first one's function for all: what asks for it is refused (`all_alike`)."""
    models, x = [_Activated(torch.relu), _Activated(torch.tanh)], torch.randn(4, 1, 8, 8)
    assert all_alike(models[:1] * 2)
    assert not all_alike(models)
    assert_close(ClientBank(models)(x).logits, torch.stack([model(x) for model in models]))


class _HeadFirst(nn.Module):
    """The head is defined before the body, and behind it a layer that never runs."""

    def __init__(self, *, runs: bool = True) -> None:
        super().__init__()
        self.head, self.body, self.idle = nn.Linear(5, 3), nn.Linear(64, 5), nn.Linear(5, 7)
        self.runs = runs

    def forward(self, x):
        return self.head(self.body(x.flatten(1))) if self.runs else x.flatten(1)[:, :3]


@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_the_last_linear_layer_is_the_one_that_runs_last(mode):
    models, x = [_HeadFirst(), _HeadFirst()], torch.randn(4, 1, 8, 8)
    features = ClientBank(models, mode=mode)(x, frozenset({"features"})).features
    for model, feature in zip(models, features, strict=True):
        assert_close(feature, model.body(x.flatten(1)))


def test_a_model_whose_linear_layers_do_not_run_has_no_features():
    assert has_features(_HeadFirst(), SPEC)
    assert not has_features(_HeadFirst(runs=False), SPEC)
    bank = ClientBank([_HeadFirst(), _HeadFirst(runs=False)])
    with pytest.raises(OneshotError, match=r"^a client's model runs no linear layer"):
        bank(torch.randn(4, 1, 8, 8), frozenset({"features"}))


def test_clients_are_frozen_stay_in_evaluation_mode_and_leave_no_hooks():
    models = _clients(2)
    before = [model[1].running_mean.clone() for model in models]
    bank = ClientBank(models)
    bank.train()
    bank(torch.randn(4, 1, 8, 8), frozenset({"statistics"}))
    assert not any(parameter.requires_grad for parameter in bank.parameters())
    assert not any(module.training for module in bank.modules())
    assert not any(module._forward_pre_hooks for module in bank.modules())
    assert all(torch.equal(a, model[1].running_mean) for a, model in zip(before, models, strict=True))


def test_different_architectures_share_a_bank():
    bank = ClientBank([cnn2(SPEC, norm=True), lenet5(SPEC)])
    outputs = bank(torch.randn(4, 1, 8, 8), frozenset({"statistics"}))
    assert outputs.logits.shape == (2, 4, 3)
    assert [len(client) for client in outputs.statistics] == [2, 0]


def _answer(models: list[nn.Module], mode: str, needs: frozenset[str], at_once: int | None = None):
    x = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(1)).requires_grad_()
    outputs = ClientBank(models, mode=mode, at_once=at_once)(x, needs)
    variances = [layer.batch_var.sum() for client in outputs.statistics for layer in client]
    (outputs.logits.square().sum() + sum(variances) + sum(f.sum() for f in outputs.features)).backward()
    return outputs, x.grad


@pytest.mark.parametrize("mode", ["loop", "stacked"])
def test_many_clients_answer_in_groups_as_they_would_together(mode):
    models, needs = _clients(5), frozenset({"statistics", "features"})
    together, in_groups = _answer(models, mode, needs), _answer(models, mode, needs, at_once=2)
    assert_close(in_groups, together, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("at_once", [None, 1])
def test_answers_and_gradients_are_those_of_plain_convolutions(at_once, monkeypatch):
    models, needs = [*_clients(2), lenet5(SPEC), cnn2(SPEC, norm=False)], frozenset({"statistics", "features"})
    ours = _answer(models, "loop", needs, at_once)
    monkeypatch.setattr(ImageConv2d, "forward", nn.Conv2d.forward)
    assert_close(ours, _answer(models, "loop", needs, at_once))


def test_what_is_kept_for_the_way_back_does_not_grow_with_the_number_of_clients():
    def kept(count: int) -> int:
        sizes: dict[int, int] = {}

        def pack(tensor: torch.Tensor) -> torch.Tensor:
            if tensor.requires_grad:  # neither weights nor the one batch of images
                sizes[tensor.data_ptr()] = tensor.numel()
            return tensor

        model = cnn2(SPEC, norm=True)
        x = torch.randn(64, 1, 8, 8, requires_grad=True)
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            logits = ClientBank([model] * count, at_once=16)(x).logits
        del logits
        return sum(sizes.values())

    assert kept(64) < kept(16)


class _Branching(nn.Linear):
    """Looks at a number of its weights, which `torch.func` does not hand out."""

    def forward(self, x):
        return super().forward(x.flatten(1)) * float(self.weight.sum().item() > -1e9)


def test_models_that_cannot_be_stacked_are_told_the_way_around():
    models, x = [_Branching(64, 3) for _ in range(2)], torch.rand(2, 1, 8, 8)
    assert ClientBank(models, mode="loop")(x).logits.shape == (2, 2, 3)
    with pytest.raises(OneshotError, match=r"^distill\.bank=stacked: torch\.func cannot run .*; choose .*=loop$"):
        ClientBank(models, mode="stacked")(x)
