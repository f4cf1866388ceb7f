"""Resume after a kill: the state of a distillation after its last finished round."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from oneshot_fl.artifacts import read_work, write_work
from oneshot_fl.ledger import NOTHING, Cost, Meter, cost_of, total
from oneshot_fl.models.cost import Passes
from oneshot_fl.parts.method import of_source
from oneshot_fl.parts.pools import Entry
from oneshot_fl.phases.unsaved import changed, in_classes, traces
from oneshot_fl.process import say
from oneshot_fl.seeds import rng_states, set_rng_states


class RoundCheckpoint(Callback):
    """Save a `DistillModule` after every round and restore it when training starts again.

    Every round's batch is written once, as a file of its own, so that a checkpoint costs the same in every round;
    student, other parts that keep something, optimisers, the scale of losses (of 16-mixed), random states and history
    go into one file that is replaced atomically. Where one of these files is damaged or missing, training starts anew;
    so it does where a part or an optimiser of a user's own kept something that is not saved, in a plain attribute.
    """

    def __init__(self, folder: Path) -> None:
        self.file, self.folder = folder / "rounds.pt", folder
        self.meter = Meter()
        self.written = 0
        self.began: dict[str, Any] = {}
        """Traces of what users' parts and optimisers kept when this process began with them."""
        self.changed: list[str] = []
        """What of that is another by the end of the last round."""
        self.entries: list[dict[str, torch.Tensor]] = []
        self.saved = self._read()
        self.passes = Passes(self.cost_before.macs or 0)

    def _read(self) -> dict[str, Any] | None:
        saved: dict[str, Any] | None = read_work(self.file)
        if saved is None:
            return None
        if saved["unsaved"]:
            say(
                f"distillation: begins anew, as what {', '.join(saved['unsaved'])} kept was not saved; keep it in a "
                "buffer, an optimiser in its state (docs/howto/method.md), and a run goes on where it was stopped"
            )
            return None
        found = [read_work(self._batch_file(number)) for number in saved["pool"]]
        self.entries = [entry for entry in found if entry is not None]
        return saved if len(self.entries) == len(found) else None

    @property
    def rounds_done(self) -> int:
        """Rounds that need not be run again."""
        return len(self.saved["history"]) if self.saved else 0

    @property
    def cost_before(self) -> Cost:
        """What the finished rounds cost in earlier processes."""
        return cost_of(self.saved["cost"]) if self.saved else NOTHING

    @property
    def counted(self) -> Cost:
        """That with the passes through models that were counted in this process; the store measures the rest."""
        return replace(self.cost_before, macs=self.passes.macs)

    def on_train_start(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Put everything back where it was; Lightning has made the optimisers by now."""
        self.began = _traces(pl_module, trainer.optimizers)
        self.restore(pl_module, trainer.optimizers)
        if self.saved is not None:
            trainer.precision_plugin.load_state_dict(self.saved["precision"])

    def restore(self, module: Any, optimizers: list[torch.optim.Optimizer]) -> None:
        """The saved state, if there is one, into a `DistillModule` and its optimisers (none: it is not trained on)."""
        if self.saved is None:
            return
        for name, part in _lasting(module).items():
            part.load_state_dict(self.saved["lasting"][name])
        for optimizer, state in zip(optimizers, self.saved["optimizers"], strict=bool(optimizers)):
            optimizer.load_state_dict(state)
        module.rng.set_state(self.saved["rng"])
        module.history.extend(self.saved["history"])
        entries = ({name: tensor.to(module.device) for name, tensor in entry.items()} for entry in self.entries)
        module.held = None if self.saved["held"] is None else self.saved["held"].to(module.device)
        self.written = self.saved["pool"][-1]
        module.pool.restore((Entry(**entry) for entry in entries), added=self.written)
        set_rng_states(self.saved["shared_rngs"])

    def on_train_epoch_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Save the round that has just ended, then drop batches that the pool no longer holds."""
        module: Any = pl_module
        newest, self.changed = module.pool.added, changed(self.began, _traces(module, trainer.optimizers))
        pool = list(range(newest - len(module.pool.entries) + 1, newest + 1))
        if newest > self.written:  # a pool that is closed was written in its first round
            self._write_batch(newest, module.pool.entries[-1])
        write_work(
            self.file,
            {
                "lasting": {name: part.state_dict() for name, part in _lasting(module).items()},
                "optimizers": [optimizer.state_dict() for optimizer in trainer.optimizers],
                "precision": trainer.precision_plugin.state_dict(),
                "rng": module.rng.get_state(),
                "shared_rngs": rng_states(),
                "history": module.history,
                "held": module.held,
                "pool": pool,
                "cost": asdict(total([self.counted, self.meter.spent()])),
                "unsaved": self.changed,
            },
        )
        self._batch_file(pool[0] - 1).unlink(missing_ok=True)

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        """Say what a later run of this process would begin with, and one of its own would not."""
        if shared := in_classes(self.changed):
            say(
                f"distillation: {', '.join(shared)}, has changed, and the next run of this process begins with that; "
                "set it in __init__"
            )

    def _batch_file(self, number: int) -> Path:
        return self.folder / f"batch-{number:06d}.pt"

    def _write_batch(self, number: int, entry: Entry) -> None:
        write_work(self._batch_file(number), {name: tensor.cpu().clone() for name, tensor in entry._asdict().items()})
        self.written = number


def _lasting(module: Any) -> dict[str, nn.Module]:
    """Every part of a `DistillModule` that may keep something from one round to the next."""
    parts = {"student": module.student, "starts": module.starts, **_chosen(module)}
    return {name: part for name, part in parts.items() if isinstance(part, nn.Module)}


def _chosen(module: Any) -> dict[str, Any]:
    """The parts that a user may have written, by what they are."""
    sources = {of_source(name): each for name, each in zip(module.names, module.sources, strict=True)}
    terms = {f"{who}.{name}": term for who, each in module.objectives.items() for name, term in each.terms.items()}
    return {"ensemble": module.ensemble, "perturb": module.perturb, **sources, **terms}


def _traces(module: Any, optimizers: list[torch.optim.Optimizer]) -> dict[str, Any]:
    """What tells whether plain attributes of users' parts and optimisers are others by now."""
    lasting = [*_lasting(module).values(), module.bank]  # uploads are looked after by themselves
    return traces(_chosen(module), lasting, dict(zip(module.factories, optimizers, strict=True)))
