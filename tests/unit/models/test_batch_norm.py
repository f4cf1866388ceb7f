import pytest
import torch
from torch import nn
from torch.testing import assert_close

from oneshot_fl.models.batch_norm import adapted, by_the_batch, logits_by_the_batch
from oneshot_fl.models.classifiers import cnn2
from tests.parts import SMALL


def _one_layer() -> nn.Module:
    """BN alone on one channel, frozen, with running mean 10 and variance 100."""
    layer = nn.BatchNorm1d(1, eps=1e-12).eval().requires_grad_(False)
    layer.running_mean.fill_(10.0)
    layer.running_var.fill_(100.0)
    return layer


X = torch.tensor([[0.0], [2.0]])  # mean 1, biased variance 1, unbiased variance 2


def test_by_the_batch_the_batchs_own_moments_count():
    assert_close(_one_layer()(X), torch.tensor([[-1.0], [-0.8]]))
    assert_close(logits_by_the_batch([_one_layer(), _one_layer()], X), torch.tensor([[[-1.0], [1.0]]] * 2))


def test_no_trace_is_left_in_the_models_whatever_happens():
    models = [cnn2(SMALL, norm=True).eval() for _ in range(2)]
    before = [{name: tensor.clone() for name, tensor in model.state_dict().items()} for model in models]
    x = torch.randn(4, 1, 8, 8)
    answers = [model(x) for model in models]
    assert not torch.allclose(logits_by_the_batch(models, x)[0], answers[0])
    with pytest.raises(KeyError), by_the_batch(models):
        _ = {}["stopped"]
    adapted(models, [x], momentum=0.5)
    for model, state, answer in zip(models, before, answers, strict=True):
        assert not any(module.training for module in model.modules())
        assert torch.equal(model(x), answer)
        assert all(torch.equal(tensor, state[name]) for name, tensor in model.state_dict().items())


def test_gradients_reach_the_images_through_the_batchs_moments():
    x = X.clone().requires_grad_()
    logits_by_the_batch([_one_layer()], x)[0, 1, 0].backward()
    assert_close(x.grad, torch.zeros(2, 1))  # of two numbers the larger one is always at 1


def test_adapted_copies_follow_the_batches_in_their_order():
    (copy,) = adapted([_one_layer()], [X, X + 4], momentum=0.1)
    # means 10 -> 0.9 * 10 + 0.1 * 1 = 9.1 -> 0.9 * 9.1 + 0.1 * 5 = 8.69; variances 100 -> 90.2 -> 81.38
    assert_close(copy.running_mean, torch.tensor([8.69]))
    assert_close(copy.running_var, torch.tensor([81.38]))
    assert_close(copy(X), (X - 8.69) / 81.38**0.5)
    assert not copy.training


def test_a_model_without_batch_norm_is_left_as_it_is():
    model = cnn2(SMALL, norm=False).eval()
    x = torch.randn(3, 1, 8, 8)
    assert torch.equal(logits_by_the_batch([model], x)[0], model(x))
    assert torch.equal(adapted([model], [x], momentum=0.1)[0](x), model(x))
