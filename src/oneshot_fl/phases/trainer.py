"""One place that makes Lightning Trainers, and the callback that acts when an epoch is over."""

import logging
import signal
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from lightning.pytorch.utilities.exceptions import MisconfigurationException, SIGTERMException
from torch import Tensor

from oneshot_fl.devices import cpu_has_bf16
from oneshot_fl.errors import OneshotError, one_line
from oneshot_fl.models.layout import to_channels_last
from oneshot_fl.phases.replay import Replays
from oneshot_fl.process import Interrupted
from oneshot_fl.values import Count

Precision = Literal["auto", "32-true", "bf16-mixed", "16-mixed"]


@dataclass(frozen=True)
class TrainerSettings:
    """Lightning's Trainer as far as a user may set it: whatever else could change a number, or make it stop early."""

    accelerator: Literal["auto", "cpu", "gpu", "cuda", "mps"]
    precision: Precision
    """Lightning's words, or `auto`: the fastest arithmetic that was measured to learn the same on this device."""
    channels_last: bool
    matmul_precision: Literal["highest", "high", "medium"] = "highest"
    jobs_per_gpu: Count = 1
    """How many jobs share a device (`devices`); changes no number."""
    cuda_graphs: bool = True
    """Whether steps that do the same again and again become CUDA graphs (`phases.replay`).

    Changes what a model's own layers draw, as dropout does, and the last digits where the optimiser counts its steps on
    the device or the learning rate moves with every step.
    """

    def resolved(self) -> "TrainerSettings":
        """The same with `auto` as what it is here.

        Raises:
            OneshotError: Lightning cannot make a Trainer of the other settings here, or would quietly make one of
                another precision, as on a CPU of 16-mixed.
        """
        if self.precision == "16-mixed" and device_of(replace(self, precision="32-true")).type == "cpu":
            raise OneshotError(
                f"trainer.precision=16-mixed: does not run on a CPU (trainer.accelerator={self.accelerator}); use "
                "trainer.precision=bf16-mixed or 32-true"
            )
        return replace(self, precision=precision_here(self))


class EpochEnd(Callback):
    """Call `action(module)` when an epoch's training and validation are done."""

    def __init__(self, action: Callable[[Any], None]) -> None:
        self.action = action

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Lightning's hook."""
        self.action(pl_module)


class ChannelsLast(Callback):
    """Put convolutions' weights in the memory layout `[b, H, W, C]` before anything runs; their outputs follow.

    On a CPU a generator step of five clients is 1.1 to 1.3 times faster so, a step of local training 1.4 to 1.5 times
    (docs/results/speed.md); on an H200 it changes little.
    """

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        """Lightning's hook, before optimisers are made."""
        to_channels_last(pl_module)


def multiply_as(settings: TrainerSettings) -> None:
    """Set the precision of matrix products and convolutions, which holds for the whole process, to these settings'.

    Convolutions have a switch of their own, which torch leaves on: on a GPU they would be in TF32 whatever was asked.
    """
    torch.set_float32_matmul_precision(settings.matmul_precision)
    torch.backends.cudnn.allow_tf32 = settings.matmul_precision != "highest"


def make_trainer(settings: TrainerSettings, *, epochs: int = 1, callbacks: list[Callback] | None = None) -> Trainer:
    """A Trainer without files of its own: the store keeps results, the run log keeps metrics.

    From here on this process multiplies as the settings say, so that the next run of a sweep gets its own precision.
    """
    logging.getLogger("lightning.pytorch").setLevel(logging.WARNING)
    warnings.filterwarnings("ignore", module="lightning")
    multiply_as(settings)
    layout = [ChannelsLast()] if settings.channels_last else []
    graphs = [Replays()] if settings.cuda_graphs else []
    return Trainer(
        accelerator=settings.accelerator,
        precision=precision_here(settings),  # type: ignore[arg-type]  # a word of Lightning's, or its own error
        devices=1,
        max_epochs=epochs,
        callbacks=[*layout, *graphs, *(callbacks or [])],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
        enable_model_summary=False,
        num_sanity_val_steps=0,
    )


@contextmanager
def trainer_of(
    module: LightningModule,
    settings: TrainerSettings,
    *,
    epochs: int = 1,
    callbacks: list[Callback] | None = None,
) -> Iterator[Trainer]:
    """A Trainer for one call on `module`, of which nothing is left after the block.

    A Trainer's parts refer to each other in circles that Python frees when it happens to look: until then the module
    and its optimiser stay in memory, 30 MB per class of a stratification at 28x28.

    Where nobody has a handler of his own Lightning makes a `SystemExit` of both ways to stop. A Ctrl-C comes out as the
    `KeyboardInterrupt` that it was, and SIGTERM, which would end the program with 0, as a `SystemExit` with 143.
    """
    trainer = make_trainer(settings, epochs=epochs, callbacks=callbacks)
    try:
        yield trainer
    except SIGTERMException:
        raise SystemExit(Interrupted(signal.SIGTERM).exit_code) from None
    except SystemExit as end:
        if isinstance(end.__context__, KeyboardInterrupt):
            raise end.__context__ from None
        raise
    finally:
        module.trainer = None
        vars(trainer).clear()


def precision_here(settings: TrainerSettings) -> Precision:
    """`precision` of a Trainer, with `auto` as what was measured to be fastest on its device at the same accuracy.

    That is `bf16-mixed` on a CPU that multiplies bf16 numbers, else `32-true`: on a GPU bf16 is faster, but nobody has
    compared what is learned over seeds there.

    Raises:
        OneshotError: Lightning cannot make a Trainer of the other settings here.
    """
    if settings.precision != "auto":
        return settings.precision
    device = device_of(replace(settings, precision="32-true"))
    return "bf16-mixed" if device.type == "cpu" and cpu_has_bf16() else "32-true"


OF_A_TERM = (
    "method.objective, method.student or recite.objective: the loss has no gradient, so that nothing would be trained; "
    "leave .detach() and torch.no_grad() out of a loss term of your own"
)


def minimise(
    module: LightningModule,
    loss: Tensor,
    optimizer: Any,
    *,
    closure: Callable[[], None] | None = None,
    untrained: str = OF_A_TERM,
) -> None:
    """One step of an optimiser on a loss, for a module that optimises by hand.

    Args:
        closure: what the optimiser's `step` calls.
        untrained: the line that says why nothing that is trained has a part in the loss.

    Raises:
        OneshotError: that is so.
    """
    if not loss.requires_grad:
        raise OneshotError(untrained)
    optimizer.zero_grad()
    module.manual_backward(loss)
    optimizer.step(closure=closure)


def fraction(accuracy: Any) -> float:
    """A torchmetrics accuracy as a fraction with six digits, which is exact to one sample in a million."""
    return round(float(accuracy.compute()), 6)


def device_of(settings: TrainerSettings) -> torch.device:
    """The torch device that a Trainer of these settings uses.

    Raises:
        OneshotError: Lightning cannot make a Trainer of them here.
    """
    try:
        return make_trainer(settings).strategy.root_device
    except (MisconfigurationException, ValueError, TypeError) as error:
        given = ", ".join(f"trainer.{key}={value}" for key, value in asdict(settings).items())
        raise OneshotError(
            f"{given}: no such Trainer here ({one_line(error)}); use trainer=auto or trainer=cpu"
        ) from error
