"""OT fusion, data-free: align every client's units to one anchor client, then average once.

S. P. Singh, M. Jaggi: Model Fusion via Optimal Transport, NeurIPS 2020; the baseline "OT" of FedHydra. The paper was
not at hand; the card follows what the authors' code does with weights (github.com/sidak/otfusion), without data.

| what | part | config key |
|---|---|---|
| anchor: the client with most samples, ties by lowest id | `OptimalTransport` | `method.init` |
| cost: Euclidean distance of units' incoming weights (and bias), after aligning their inputs | `unit_assignment` | - |
| transport between layers of one width: a permutation, exact | `scipy.optimize.linear_sum_assignment` | - |
| one average of the aligned models, weighted by samples | `parts.inits.mean_state` | - |

Deviations from the code:
- Biases and batch normalisation are aligned with their unit; the code has neither.
- The output layer keeps its class order; the code permutes class outputs too, which label skew forbids.
- More than two clients are aligned to one anchor and averaged once; the code fuses two, ports of it fold one after the
  other, so that the last client weighs half.
- Widths are equal, because architectures are, so every transport map is a permutation and no Sinkhorn or POT is needed.
- Residual connections are refused: all layers that write into one stream would have to share one map.
"""

from collections.abc import Iterator
from typing import ClassVar

import torch
from scipy.optimize import linear_sum_assignment
from torch import Tensor, nn
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.utils.parametrize import is_parametrized

from oneshot_fl.errors import OneshotError
from oneshot_fl.models.classifiers import Resize
from oneshot_fl.models.soundness import TURNED_AWAY, first_not_finite
from oneshot_fl.parts.inits import mean_state
from oneshot_fl.parts.uploads import Server

TRANSPARENT = (
    nn.ReLU,
    nn.LeakyReLU,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
    nn.Dropout,
    nn.Flatten,
    nn.Identity,
    Resize,
)
"""Layers that treat all units alike, so that a permutation passes through them."""


class OptimalTransport:
    """The average of the clients after a permutation of each one's hidden units towards the anchor's."""

    needs: ClassVar[frozenset[str]] = frozenset({"classifiers", "same_architecture", "chain"})

    def __init__(self, server: Server) -> None:
        self.uploads = server.uploads

    def __call__(self, student: nn.Module) -> nn.Module:
        """The student with the fused weights loaded.

        Raises:
            OneshotError: weights of an upload are not finite, so its units are near to none.
        """
        uploads = self.uploads
        for upload in uploads.classifiers:
            if tensor := first_not_finite(upload.model):
                raise OneshotError(
                    f"method=ot: tensor {tensor} of {upload.name} is not finite, so its units cannot be aligned; "
                    f"{TURNED_AWAY}"
                )
        anchor = uploads.models[uploads.sizes.index(max(uploads.sizes))]
        aligned = [aligned_state(model, anchor) for model in uploads.models]
        student.load_state_dict(mean_state(aligned, uploads.sizes))
        return student


def require_chain(model: nn.Module) -> None:
    """Refuse what cannot be aligned layer by layer.

    Raises:
        OneshotError: the model is no plain sequence, or has a layer that mixes units in an unknown way, or stands in it
            twice.
    """
    if not isinstance(model, nn.Sequential) or type(model).forward is not nn.Sequential.forward:
        raise OneshotError(
            f"method=ot: {type(model).__name__} has a forward of its own, which may branch or add up; only layers of "
            "an nn.Sequential are sure to follow each other: choose one (in a run model=cnn2, cnn3, lenet5) or another "
            "method"
        )
    layers = list(model)
    for at, layer in enumerate(layers):
        grouped = isinstance(layer, nn.Conv2d) and layer.groups > 1
        again = not isinstance(layer, TRANSPARENT) and any(layer is before for before in layers[:at])
        known = isinstance(layer, (nn.Conv2d, nn.Linear, _BatchNorm, *TRANSPARENT))
        if grouped or again or not known or _computes_its_weight(layer):
            raise OneshotError(
                f"method=ot: the layer {' '.join(str(layer).split())} cannot be aligned; choose a chain without it (in "
                "a run model=cnn2, cnn3, lenet5) or another method"
            )


def _computes_its_weight(layer: nn.Module) -> bool:
    """Whether a layer's weight is made of other tensors (`weight_norm`), which no permutation would reach."""
    weighs = isinstance(layer, nn.Conv2d | nn.Linear)
    return is_parametrized(layer) or (weighs and "weight" not in dict(layer.named_parameters(recurse=False)))


def aligned_state(model: nn.Module, anchor: nn.Module) -> dict[str, Tensor]:
    """The state dict of `model` with its hidden units in the order of the anchor's that they are nearest to."""
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    order: Tensor | None = None
    for name, layer, target, is_last in _layers(model, anchor):
        if isinstance(layer, _BatchNorm):
            _permute_outputs(state, name, order)
        elif isinstance(layer, nn.Conv2d | nn.Linear):
            state[f"{name}.weight"] = _permute_inputs(state[f"{name}.weight"], order)
            if is_last:  # classes keep their order, and so does a normalisation behind them
                order = None
            else:
                order = unit_assignment(_units(state, name), _units(target.state_dict(prefix=f"{name}."), name))
                _permute_outputs(state, name, order)
    return state


def unit_assignment(units: Tensor, targets: Tensor) -> Tensor:
    """For every target row the row of `units` that the cheapest assignment gives it: `[n, d]`, `[n, d]` -> `[n]`."""
    _, order = linear_sum_assignment(torch.cdist(targets.double(), units.double()).cpu().numpy())
    return torch.from_numpy(order).to(units.device)


def _layers(model: nn.Module, anchor: nn.Module) -> Iterator[tuple[str, nn.Module, nn.Module, bool]]:
    """Name, layer, the anchor's layer, and whether it is the last one with weights."""
    names = [name for name, layer in model.named_children() if isinstance(layer, nn.Conv2d | nn.Linear)]
    for (name, layer), target in zip(model.named_children(), anchor.children(), strict=True):
        yield name, layer, target, name == names[-1]


def _units(state: dict[str, Tensor], name: str) -> Tensor:
    """What describes each output unit of a layer: its incoming weights and its bias, `[units, d]`."""
    weight = state[f"{name}.weight"].flatten(1)
    bias = state.get(f"{name}.bias")
    return weight if bias is None else torch.cat([weight, bias.unsqueeze(1)], dim=1)


def _permute_inputs(weight: Tensor, order: Tensor | None) -> Tensor:
    """Reorder a layer's inputs; after flattening, every channel stands for several inputs in a row."""
    if order is None:
        return weight
    by_channel = weight.view(len(weight), len(order), -1)
    return by_channel[:, order].reshape(weight.shape)


def _permute_outputs(state: dict[str, Tensor], name: str, order: Tensor | None) -> None:
    """Reorder everything that belongs to a layer's units, in place; behind a flattening every channel is several."""
    for key in [key for key in state if key.rpartition(".")[0] == name]:
        if order is not None and state[key].ndim > 0:
            state[key] = state[key].unflatten(0, (len(order), -1))[order].flatten(0, 1)
