"""Phase 3 as a whole: the global model from the uploads, made once, resumable after every round, stored."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from oneshot_fl.artifacts import Artifact, Spent, fingerprint, load_model
from oneshot_fl.data.batches import ImageBatches, Unlabelled
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError, first_of
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.bank import ClientBank
from oneshot_fl.models.per_architecture import members_of, together
from oneshot_fl.models.soundness import first_not_finite
from oneshot_fl.models.structure import all_alike
from oneshot_fl.parts.ensembles import Heard
from oneshot_fl.parts.method import Method
from oneshot_fl.parts.slots import Init
from oneshot_fl.parts.uploads import Server
from oneshot_fl.parts.view import in_words
from oneshot_fl.phases.checkpoint import RoundCheckpoint
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.distill import Distillation, DistillModule
from oneshot_fl.phases.diverged import RATE_KEYS
from oneshot_fl.phases.keyed import keyed
from oneshot_fl.phases.trainer import EpochEnd, trainer_of
from oneshot_fl.recipe import described, made_of_ours
from oneshot_fl.seeds import seeded
from oneshot_fl.store import Wanted
from oneshot_fl.values import Seed


@dataclass(frozen=True)
class Distilled:
    """The global model and how it came about."""

    model: nn.Module
    history: list[dict[str, Any]]
    """A row a round; its `accuracy` is None where there was no test set."""
    pool_bytes: int
    """What the pool held after the last round."""
    ensemble: dict[str, Tensor]
    """What the method's ensemble learned, as a state dict; empty without a loop."""
    images: Tensor | None
    """Some of the newest images, uint8 `[n, C, H, W]`, evenly over the classes, sorted by label; None: no loop."""
    labels: Tensor | None
    """What they were made for, or what the clients took them for, `[n]`."""
    trust: Tensor | None
    """How far each shows its label, `[n]`; 0 where it is only guessed."""
    held: Tensor | None
    """Images that the student was not trained on, uint8 `[n, C, H, W]`; None: there are none."""
    key: str
    spent: Spent


@dataclass(frozen=True)
class StudentPlan:
    """What the global model is built as: one architecture, or several that vote."""

    architectures: tuple[Architecture, ...]
    clients_seed: Seed
    """Of the weights that the clients began at."""

    @property
    def name(self) -> str:
        """What reports call it, `cnn2` or, where several vote, `cnn2+lenet5`."""
        return "+".join(architecture.name for architecture in self.architectures)

    def build(self, spec: DataSpec, *, seed: int, as_clients_began: bool) -> nn.Module:
        """A model with weights of the server's own, or with those that the clients began at."""
        if as_clients_began:
            return together([one.as_clients_begin(spec, self.clients_seed) for one in self.architectures])
        return together([one.student(spec, seed) for one in self.architectures])


def distill(
    test: ImageBatches | None,
    server: Server,
    method: Method,
    *,
    data_key: str,
    student: StudentPlan,
    settings: Distillation,
    rate_keys: Mapping[str, str] = RATE_KEYS,
    context: Context,
) -> Distilled:
    """Turn the uploads into the global model; one artifact, resumable after every round.

    Args:
        test: the test set, for the accuracy after every round; None: there is none.
        data_key: fingerprint of the data set, because the history's test accuracies are part of the result.
        rate_keys: of the configuration, by what they train: for the line that says that a model diverged.

    Raises:
        OneshotError: the student diverged, or the method's init returned no such model; nothing of it is stored.
    """
    build = partial(student.build, server.spec, seed=settings.seed, as_clients_began="clients_start" in method.needs)

    def make(work: Path) -> Artifact:
        return _make(work, build, server, method, test, settings, rate_keys, report, context)

    inputs = {
        "data": data_key,
        "uploads": server.uploads.key,
        "guidance": guidance_key(server),
        "recitals": [each.key for each in server.recitals or ()],
        "proxy": server.proxy.sha256 if server.proxy and "proxy" in method.needs else None,
        "start": server.start.key if server.start and "clients_start" in method.needs else None,
        "method": described(method),
        "student": described(student),
        "settings": described(settings),
        "tested_at_once": None if test is None else test.batch_size,  # some models answer by the batch
    }
    report = _RoundReport(context, settings.rounds if method.sources else 0, server.spec)
    wanted = keyed(Wanted("distill", inputs, make), __name__)
    [artifact] = context.store.get_or_make_all([wanted], waiting=context.progress.note)
    parts = ("student", "ensemble", "synthetic", "held")
    state, ensemble, synthetic, held = (_only(name, artifact.tensors) for name in parts)
    model = load_model(build(), state, f"server ({context.store.root}/distill/{artifact.key})")
    report(artifact.facts["history"])
    report.finish(from_store=artifact.from_store, images=synthetic.get("images"))
    return Distilled(
        model,
        artifact.facts["history"],
        artifact.facts["pool_bytes"],
        ensemble,
        synthetic.get("images"),
        synthetic.get("labels"),
        synthetic.get("trust"),
        held.get("images"),
        artifact.key,
        Spent.on([artifact]),
    )


def guidance_key(server: Server) -> str | None:
    """Fingerprint of the guidance matrix's numbers, which say all that a method takes of the stratification."""
    return None if server.guidance is None else fingerprint(server.guidance.tolist())


def _make(
    work: Path,
    build: Callable[[], nn.Module],
    server: Server,
    method: Method,
    test: ImageBatches | None,
    settings: Distillation,
    rate_keys: Mapping[str, str],
    report: "_RoundReport",
    context: Context,
) -> Artifact:
    bank = ClientBank(
        server.uploads.models,
        mode=settings.bank,
        at_once=settings.clients_at_once,
        heard=Heard(server),
    )
    uploaded = server.uploads.contents()
    with seeded(settings.seed, "parts"):  # IntactOFL's gate, and whatever those of users draw
        model = _begun(build, method.init(server))
        loop = method.loop(replace(server, student=model, bank=bank), warm_up=_differ(server.uploads.models, model))
    server.uploads.require_unwritten(uploaded, "method: its init, or another of its parts while it is made,")
    if loop is None or settings.rounds == 0:
        return Artifact(_prefixed("student", model.state_dict()), {"history": [], "pool_bytes": 0})
    module = DistillModule(model, bank, loop, spec=server.spec, settings=settings, rate_keys=rate_keys)
    checkpoint = RoundCheckpoint(work)
    with checkpoint.passes.watched([*_asked(module), *(one.model for one in server.uploads.decoders)]):
        _fit(module, test or Unlabelled(server.spec), checkpoint, report, context)
    server.uploads.require_unwritten(uploaded, "method: one of its parts")
    tensors = {
        **_prefixed("student", module.student.state_dict()),
        **_prefixed("ensemble", module.ensemble.state_dict()),
        **_prefixed("synthetic", _newest_images(module, server.spec)),
        **_prefixed("held", _held_images(module, server.spec)),
    }
    return Artifact(tensors, {"history": module.history, "pool_bytes": module.pool.bytes}, cost=checkpoint.counted)


def _begun(build: Callable[[], nn.Module], init: Init) -> nn.Module:
    """A student that begins at the weights that `init` gives to it, or to each of those that vote in it.

    It is one of its own: what `init` returns may be a client's model, which the student's training must not touch.
    """
    student = build()
    for member, given in zip(members_of(student), members_of(build()), strict=True):
        member.load_state_dict(_fitting(init(given), member))
        _require_finite(init, member)
    return student


def _fitting(begun: Any, student: nn.Module) -> dict[str, Any]:
    """The state of what an init returned.

    Raises:
        OneshotError: it is no model, or its tensors are not those of the student.
    """
    must = "and must return the student that it was given, or a model with the same tensors"
    if not isinstance(begun, nn.Module):
        raise OneshotError(f"method.init: returns {in_words(begun)}, {must}; end it with `return student`")
    state: dict[str, Any] = begun.state_dict()
    told, wanted = _in_words(state), _in_words(student.state_dict())
    if other := [name for name in {**wanted, **told} if told.get(name) != wanted.get(name)]:
        found, right = (state.get(other[0], "missing") for state in (told, wanted))
        raise OneshotError(
            f"method.init: returns {in_words(begun)}, {must}: of what it returns, {first_of(other)} is {found}, and "
            f"of the student {right}"
        )
    return state


def _require_finite(init: Init, begun: nn.Module) -> None:
    """Ours average what uploads hold, which may be anything; a user's init is named before a learning rate is blamed.

    Raises:
        OneshotError: it returned numbers that are not finite.
    """
    if not made_of_ours(init) and (tensor := first_not_finite(begun)):
        raise OneshotError(f"method.init: returns a model whose {tensor} is not finite; let it return finite weights")


def _in_words(state: Mapping[str, Any]) -> dict[str, str]:
    """Type, shape and numbers of everything in a state."""
    return {name: in_words(each) for name, each in state.items()}


def _differ(clients: Sequence[nn.Module], student: nn.Module) -> bool:
    """Whether there are classifiers whose mean the student, or one that votes in it, cannot wholly begin at."""
    return bool(clients) and not all_alike([*clients, *members_of(student)])


def _prefixed(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{name}.{key}": tensor for key, tensor in tensors.items()}


def _only(name: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """The tensors of one prefix, without it."""
    prefix = f"{name}."
    return {key.removeprefix(prefix): tensor for key, tensor in tensors.items() if key.startswith(prefix)}


def _fit(
    module: DistillModule,
    test: ImageBatches | Unlabelled,
    checkpoint: RoundCheckpoint,
    report: "_RoundReport",
    context: Context,
) -> None:
    """Run the rounds that are left."""
    left = module.settings.rounds - checkpoint.rounds_done
    report.task.from_store(checkpoint.rounds_done)
    with seeded(module.settings.seed, "distillation"):
        if left == 0:  # killed between the last round and the storing of the result
            checkpoint.restore(module, [])
            return
        callbacks = [checkpoint, EpochEnd(report.of_round)]
        with trainer_of(module, context.trainer, epochs=left, callbacks=callbacks) as trainer:
            trainer.fit(module, train_dataloaders=range(1), val_dataloaders=test)


def _asked(module: DistillModule) -> Iterator[nn.Module]:
    """The models that images, noise or labels pass through: clients, students, and what sources make images with."""
    yield from members_of(module.student)
    yield from (module.bank, *module.starts)
    for source in module.sources:
        yield from _makers(source)


def _makers(source: nn.Module) -> Iterator[nn.Module]:
    """The models inside a source, or inside the sources that it is made of."""
    for child in source.children():
        if hasattr(child, "make") or isinstance(child, nn.ModuleList | nn.ModuleDict):
            yield from _makers(child)
        else:
            yield child


PICTURED, SHOWN = 20, 40
"""Rounds of which loggers see images, and how many."""


class _RoundReport:
    """Log every round of a history once, whether it was run now, resumed or loaded."""

    def __init__(self, context: Context, rounds: int, spec: DataSpec) -> None:
        self.log, self.seen, self.rounds, self.spec = context.log, 0, rounds, spec
        self.task = context.progress.task("distillation", rounds, "rounds")

    def finish(self, *, from_store: bool, images: Tensor | None) -> None:
        """The phase is over; of rounds from the store the last one's images are all that is left."""
        if from_store:
            self.task.from_store(self.rounds)
            if images is not None and len(images) and self.log.shows_images:
                self.log.images("distill/images", images[:SHOWN], self.seen)
        self.task.finish()

    def of_round(self, module: DistillModule) -> None:
        """The round that has just ended, with some of its images where somebody looks at them."""
        self(module.history)
        every = max(1, self.rounds // PICTURED)
        if self.log.shows_images and (self.seen % every == 0 or self.seen == self.rounds):
            x, *_ = module.pool.newest(SHOWN)
            self.log.images("distill/images", self.spec.to_bytes(x).cpu(), self.seen)

    def __call__(self, history: list[dict[str, Any]]) -> None:
        for row in history[self.seen :]:
            tested = row["accuracy"]
            metrics = {} if tested is None else {"distill/accuracy": tested}
            terms = {who: values for who, values in row.items() if isinstance(values, dict)}
            for who, values in terms.items():
                metrics |= {f"distill/{who}_{name}": value for name, value in values.items()}
            self.log.log(metrics, row["round"])
            self.task.reach(row["round"], "" if tested is None else f"accuracy {tested:.3f}")
        self.seen = len(history)


def _held_images(module: DistillModule, spec: DataSpec) -> dict[str, Tensor]:
    """What the student was not trained on, as bytes."""
    return {} if module.held is None else {"images": spec.to_bytes(module.held)}


def _newest_images(module: DistillModule, spec: DataSpec) -> dict[str, Tensor]:
    """As many of the pool's newest images as the settings want kept, as bytes, with labels and trust."""
    x, y, trust = module.pool.newest(module.settings.images)
    return {"images": spec.to_bytes(x), "labels": y, "trust": trust}
