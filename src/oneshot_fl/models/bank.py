"""The client bank: m frozen clients behind one call, computing no more than was asked for."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from copy import deepcopy
from itertools import chain
from typing import Literal, NamedTuple

import torch
from torch import Tensor, nn
from torch.func import functional_call, stack_module_state
from torch.nn.modules.batchnorm import _BatchNorm
from torch.utils.checkpoint import checkpoint

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError, named_line, says_out_of_memory
from oneshot_fl.models.moments import Moments, batch_moments
from oneshot_fl.models.place import place_of
from oneshot_fl.models.precision import at_least_float32, autocast_dtype, cast_products, like_autocast

Mode = Literal["auto", "loop", "stacked"]
Hook = Callable[[nn.Module, tuple[Tensor, ...]], None]


class LayerStatistics(NamedTuple):
    """One batch normalisation layer of one client: what the batch has there, what training had; each `[channels]`."""

    batch_mean: Tensor
    batch_var: Tensor
    running_mean: Tensor
    running_var: Tensor


class ClientOutputs(NamedTuple):
    """The clients' answers to one batch."""

    logits: Tensor
    """`[m, b, c]`, in single precision at least."""
    statistics: list[list[LayerStatistics]]
    """One list per client, one entry per batch normalisation layer; empty lists unless `statistics` is asked for."""
    features: list[Tensor]
    """One `[b, d]` per client: what enters the linear layer that runs last; empty unless `features` is asked for."""


class ClientBank(nn.Module):
    """m clients, frozen and in evaluation mode; gradients flow to the images only.

    Args:
        models: the uploaded classifiers.
        mode: `loop` calls one client after the other; `stacked` runs clients of one architecture as one
            `torch.func`-stacked model; `auto` is what was measured to be faster, and that is the loop: on a CPU a
            generator step is 1.2 (5 cnn2, 28x28) to 1.9 times (5 cnn3, 3x32x32) faster so, on an H200 as a CUDA graph
            1.0 to 1.3 times (docs/results/speed.md).
        at_once: clients whose activations for the backward pass are in memory together; None: all.
        heard: what a sum of the clients' logits `[m, b, c]` hears of them (`parts.ensembles.Heard`).
    """

    def __init__(
        self,
        models: list[nn.Module],
        *,
        mode: Mode = "auto",
        at_once: int | None = None,
        heard: Callable[[Tensor], Tensor] = lambda logits: logits,
    ) -> None:
        super().__init__()
        self.heard = heard
        self.at_once = at_once or max(1, len(models))
        self.models = nn.ModuleList(models).requires_grad_(False).eval()
        self.mode = mode
        self._stacks: dict[torch.dtype | None, tuple[nn.Module, dict[str, Tensor], dict[str, Tensor]]] = {}
        """By what products compute in, where that is not what the weights are."""

    def train(self, mode: bool = True) -> "ClientBank":
        """Clients stay in evaluation mode whatever the module that holds the bank does."""
        return super().train(False)

    def forward(self, x: Tensor, needs: frozenset[str] = frozenset()) -> ClientOutputs:
        """Logits of every client on `x` `[b, C, H, W]`, and what else is in `needs`: `statistics`, `features`.

        Beyond `at_once` clients, activations for the backward pass are not kept but computed again group by group, so
        that memory does not grow with m; that costs half as much again.
        """
        answer = self._stacked_in_words if self.mode == "stacked" else self._looped_outputs
        starts = range(0, len(self.models), self.at_once)
        groups = [slice(start, start + self.at_once) for start in starts]
        if len(groups) == 1:
            return answer(x, needs, groups[0])
        parts = [checkpoint(answer, x, needs, group, use_reentrant=False, preserve_rng_state=False) for group in groups]
        logits, statistics, features = zip(*parts, strict=True)
        return ClientOutputs(torch.cat(logits), list(chain(*statistics)), list(chain(*features)))

    def plain_mean(self, logits: Tensor) -> Tensor:
        """The plain mean `[b, c]` of what is heard of all clients' logits `[m, b, c]`."""
        return self.heard(logits).mean(dim=0)

    def _looped_outputs(self, x: Tensor, needs: frozenset[str], group: slice) -> ClientOutputs:
        logits, statistics, features = [], [], []
        for model in self.models[group]:
            with _probed(model, needs) as probe:
                logits.append(model(x))
            statistics.append(_statistics(model, probe.moments))
            features += probe.features
        if "features" in needs and len(features) < len(self.models[group]):
            raise OneshotError(
                "a client's model runs no linear layer, and what enters the last one are its features; leave out what "
                "looks at them, for instance with method/ensemble=entropy"
            )
        return ClientOutputs(at_least_float32(torch.stack(logits)), statistics, features)

    def _stacked_in_words(self, x: Tensor, needs: frozenset[str], group: slice) -> ClientOutputs:
        """What `torch.func` raises over a model of a user's own in one line, with the way around."""
        try:
            return self._stacked_outputs(x, needs, group)
        except (RuntimeError, TypeError, ValueError) as error:
            if says_out_of_memory(error):
                raise
            raise OneshotError(
                f"distill.bank=stacked: torch.func cannot run these clients' models as one ({named_line(error)}); "
                "choose distill.bank=loop"
            ) from error

    def _stacked_outputs(self, x: Tensor, needs: frozenset[str], group: slice) -> ClientOutputs:
        dtype = autocast_dtype(x.device)
        base, parameters, buffers = self._stacked(dtype)
        # inside vmap normalisation fails on maps that lie channels last (torch 2.11), as those of grey images may that
        # `contiguous` leaves alone: with one channel they fit both layouts
        images = x.clone(memory_format=torch.contiguous_format)

        def one(params: dict[str, Tensor], bufs: dict[str, Tensor]) -> tuple[Tensor, dict[int, Moments], list[Tensor]]:
            with _probed(base, needs) as probe:
                return functional_call(base, (params, bufs), (images,)), probe.moments, probe.features

        own = ({name: tensor[group] for name, tensor in state.items()} for state in (parameters, buffers))
        with like_autocast(base, dtype):
            logits, moments, features = torch.func.vmap(one)(*own)
        statistics = [
            _statistics(model, {i: (mean[k], var[k]) for i, (mean, var) in moments.items()})
            for k, model in enumerate(self.models[group])
        ]
        return ClientOutputs(
            at_least_float32(logits), statistics, [feature for stacked in features for feature in stacked]
        )

    def _stacked(self, dtype: torch.dtype | None) -> tuple[nn.Module, dict[str, Tensor], dict[str, Tensor]]:
        if dtype not in self._stacks:
            parameters, buffers = stack_module_state(list(self.models))
            frozen = {name: value.detach().contiguous() for name, value in parameters.items()}
            base = deepcopy(self.models[0]).to("meta")
            self._stacks[dtype] = base, frozen if dtype is None else cast_products(base, frozen, dtype), buffers
        return self._stacks[dtype]


def has_batch_norm(model: nn.Module) -> bool:
    """Whether the model has a batch normalisation layer with running statistics."""
    return bool(norm_layers(model))


def norm_layers(model: nn.Module) -> list[_BatchNorm]:
    """Batch normalisation layers with running statistics, in their order."""
    return [module for module in model.modules() if isinstance(module, _BatchNorm) and module.running_mean is not None]


def linear_layers(model: nn.Module) -> list[nn.Linear]:
    """The linear layers in the order in which they were defined, which need not be the one in which they run."""
    return [module for module in model.modules() if isinstance(module, nn.Linear)]


@torch.no_grad()
def last_linear(model: nn.Module, spec: DataSpec) -> nn.Linear | None:
    """The linear layer that runs last when the model is asked; None where none runs."""
    ran: list[nn.Linear] = []
    hooks = [layer.register_forward_hook(lambda layer, *_: ran.append(layer)) for layer in linear_layers(model)]
    try:
        model(torch.zeros(2, spec.channels, spec.size, spec.size, device=place_of(model)))
    finally:
        for hook in hooks:
            hook.remove()
    return ran[-1] if ran else None


def has_features(model: nn.Module, spec: DataSpec) -> bool:
    """Whether a linear layer runs when the model is asked, so that something enters the last one."""
    return last_linear(model, spec) is not None


class _Probe(NamedTuple):
    """What was seen inside a model during one call."""

    moments: dict[int, Moments]
    """By the position of the batch normalisation layer; layers that were not reached are missing."""
    features: list[Tensor]
    """What entered the linear layer that ran last; empty where none did."""


@contextmanager
def _probed(model: nn.Module, needs: frozenset[str]) -> Iterator[_Probe]:
    """Look at what enters batch normalisation layers (`statistics`) and the linear layer that runs last (`features`).

    Which one that is shows only when it runs: a head may be defined first, and a layer behind it be idle.
    """
    probe = _Probe({}, [])

    def keep_moments(position: int) -> Hook:
        def hook(_module: nn.Module, args: tuple[Tensor, ...]) -> None:
            probe.moments[position] = batch_moments(args[0])

        return hook

    def keep_features(_module: nn.Module, args: tuple[Tensor, ...]) -> None:
        probe.features[:] = args[:1]

    hooks: list[tuple[nn.Module, Hook]] = []
    if "statistics" in needs:
        hooks += [(layer, keep_moments(position)) for position, layer in enumerate(norm_layers(model))]
    if "features" in needs:
        hooks += [(layer, keep_features) for layer in linear_layers(model)]
    handles = [layer.register_forward_pre_hook(hook) for layer, hook in hooks]
    try:
        yield probe
    finally:
        for handle in handles:
            handle.remove()


def _statistics(model: nn.Module, moments: dict[int, Moments]) -> list[LayerStatistics]:
    layers = norm_layers(model)
    return [
        LayerStatistics(*moments[i], layers[i].running_mean, layers[i].running_var)  # type: ignore[arg-type]
        for i in sorted(moments)
    ]
