"""The server's half of the configuration alone: uploads are there already, and nobody trains."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

from omegaconf import DictConfig

from oneshot_fl.config.bind import bind_serving, optional
from oneshot_fl.config.checks import check, check_settings
from oneshot_fl.config.compose import choices, having_chosen, method_of, plain, without_hydras
from oneshot_fl.config.explain import whole_of
from oneshot_fl.config.needs import asking, method_needs, no_features, source_needs
from oneshot_fl.config.rules import target_of
from oneshot_fl.config.words import check_words, group_of, value_for
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError, named_line, one_line
from oneshot_fl.experiment import Serving
from oneshot_fl.methods.ot import require_chain
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.bank import has_features
from oneshot_fl.models.described import Kind
from oneshot_fl.models.structure import all_alike, structure
from oneshot_fl.parts.method import kinds_used
from oneshot_fl.parts.slots import UploadStep
from oneshot_fl.parts.uploads import DecoderUpload, Uploads
from oneshot_fl.phases.global_model import StudentPlan
from oneshot_fl.recipe import Recipe, described
from oneshot_fl.seeds import seeded

OF_CLIENTS = ("data", "partition", "clients", "model", "cvae", "proxy", "attack", "communication_rounds", "development")
"""Groups and keys of what has happened before uploads arrive."""
OF_RUNS = ("experiment", "protocol", "hydra", "study", "plots")
OF_RUNS_ALONE = ("validation", "fidelity", "privacy")
"""What can be measured only where the clients' images are, or the server's own."""
NEVER_MET = {
    "proxy": "works on the server's own images, and there are none here",
    "clients_start": "needs the weights that the clients began at, which no upload tells",
}
"""Needs of a method that uploads do not meet."""
USING: Mapping[Kind, str] = {"classifier": "fedchorus", "decoder": "fedcvae_ens"}
"""A method that asks for no other uploads than those of a kind."""


@dataclass(frozen=True)
class Entrance:
    """What is asked of an upload before anything is chosen for all of them: nothing here depends on them."""

    gate: Recipe[UploadStep] | None
    """Judges those that the method uses."""
    unused: Mapping[Kind, str]
    """Why an upload of a kind that the method does not use stays out: it would bring classes that nobody teaches."""


OPEN = Entrance(None, {})
"""To everybody."""


def entrance_of(overrides: Sequence[str]) -> Entrance:
    """What the server's settings say of single uploads.

    Raises:
        OneshotError: an override is wrong or has no place here; it is told before uploads are read, which may take
            minutes.
    """
    _check_overrides(overrides)
    with _configuration([*_defaults(overrides), *overrides]) as cfg:
        check_settings(cfg)
    _check_measured(cfg)
    needs = method_needs(cfg)
    _check_never_met(cfg.method.name, needs)
    used = kinds_used(needs, _init_of(cfg.method), warmed=cfg.method.get("warm_up") is not None)
    kinds: tuple[Kind, ...] = ("classifier", "decoder")
    unused = {
        kind: f"is a {kind}, which method={cfg.method.name} does not use; method={USING[kind]} does" for kind in kinds
    }
    return Entrance(optional(cfg.gate), {kind: why for kind, why in unused.items() if f"{kind}s" not in used})


def _init_of(method: Mapping[str, Any]) -> Any:
    """What the server's model begins with; None where a method has no such part."""
    init = method.get("init")
    return target_of("method.init", plain(init)) if init else None


def serving_of(
    uploads: Uploads, spec: DataSpec, architectures: Sequence[Architecture], overrides: Sequence[str]
) -> tuple[Serving, list[str]]:
    """What the server will do with uploads that a gate has left, and notes on what was chosen for want of something.

    Without overrides: `method=fedchorus budget=reduced gate=checks hearing=witnesses`; a method without recitals has
    them made for a hearing only where both are asked for. The server's model is built as the (first)
    classifier unless `server_model` names one; a method with a model for each architecture has all of theirs.

    Raises:
        NothingLeftError: all uploads of a kind that the method needs were turned away.
        OneshotError: an override is wrong or has no place here, or the method needs what was not uploaded.
    """
    _check_overrides(overrides)
    notes: list[str] = []
    chosen = [*_defaults(overrides), *_images(spec), *overrides]
    serving = _composed(chosen, uploads)
    if "label_counts" in serving.recitation.needs & serving.needs and uploads.label_counts is None:
        if value_for("recite.labels", overrides) is not None:
            raise OneshotError("recite.labels=counts: not every upload tells its label counts; leave it out")
        notes.append("not every upload tells its label counts: they are estimated from the models (recite.labels)")
        serving = _composed([*chosen, "recite.labels=estimated"], uploads)
    if serving.config["server_model"] is None:
        serving = replace(serving, student=_as_uploaded(serving, architectures, spec))
    _check_met(serving, uploads, spec)
    return serving, [*notes, *_note_of_beginning(serving, uploads, spec)]


def _check_overrides(overrides: Sequence[str]) -> None:
    check_words(overrides)
    for override in overrides:
        if (group := group_of(override)) in OF_CLIENTS + OF_RUNS:
            raise OneshotError(
                f"{override}: {group} has no place here: the uploads are there already, and nobody trains"
            )


def _check_measured(cfg: DictConfig) -> None:
    if measured := [name for name in OF_RUNS_ALONE if cfg.evaluate[name] is not None]:
        raise OneshotError(f"evaluate.{measured[0]}: only runs are measured by it; leave it out")


def _defaults(overrides: Sequence[str]) -> list[str]:
    """What is chosen where nothing else is."""
    usual = ["method=fedchorus", "budget=reduced", "gate=checks"]
    heard = value_for("method", overrides) is None or _recites([*usual, *overrides])
    return [*usual, *(["hearing=witnesses"] if heard else [])]


def _recites(chosen: Sequence[str]) -> bool:
    """Whether the method has clients recite anyway, so that hearing them costs nothing more."""
    with _configuration(chosen) as cfg:
        check_settings(cfg)
        return "recitals" in source_needs(cfg)


def _images(spec: DataSpec) -> list[str]:
    """The uploads' images in the place of a data set, whose folder nobody opens."""
    mean, std = (",".join(map(repr, each)) for each in (spec.mean, spec.std))
    told = [f"channels={spec.channels}", f"size={spec.size}", f"mean=[{mean}]", f"std=[{std}]"]
    return ["data=image_folder", "data.name=uploads", "data.root=.", *(f"data.{each}" for each in told)]


def _composed(chosen: Sequence[str], uploads: Uploads) -> Serving:
    kinds = ["classifier"] * len(uploads.classifiers) + ["cvae"] * len(uploads.decoders)
    clients = [f"partition.clients={len(kinds)}", f"clients.kinds=[{','.join(kinds)}]"]
    with _configuration(chosen, *clients, *_models_of_clients(chosen)) as cfg:
        uploads.require(method_needs(cfg), cfg.method.name)
        check(cfg)
        _check_measured(cfg)
        return bind_serving(cfg)


def _models_of_clients(chosen: Sequence[str]) -> list[str]:
    """As the server's, where that is named: what was uploaded is known elsewhere, and the default is nobody's."""
    named = value_for("server_model", chosen)
    return [f"model={named}"] if str(named) in choices("model") else []


@contextmanager
def _configuration(chosen: Sequence[str], *ours: str) -> Iterator[DictConfig]:
    """Inside the block the method of what is composed is known."""
    whole = whole_of(chosen, *ours)
    with having_chosen(method_of(whole)):
        yield without_hydras(whole)


def _as_uploaded(serving: Serving, architectures: Sequence[Architecture], spec: DataSpec) -> StudentPlan:
    """Built as the first classifier, or as one of each structure, whatever its name, where the method wants several."""
    if not architectures:
        return serving.student
    if not serving.config["method"].get("per_architecture"):
        return replace(serving.student, architectures=tuple(architectures[:1]))
    told = {str(described(one)): one for one in architectures}.values()  # most are told alike, and building takes time
    different: dict[str, Architecture] = {}
    for one in told:
        different.setdefault(structure(one.student(spec, 0)), one)
    return replace(serving.student, architectures=tuple(different.values()))


def _check_never_met(name: str, needs: Collection[str]) -> None:
    for need, why in NEVER_MET.items():
        if need in needs:
            raise OneshotError(f"method={name}: {why}; choose another method, for instance method=fedchorus")


def _check_met(serving: Serving, uploads: Uploads, spec: DataSpec) -> None:
    """What the method needs is there, before anything begins."""
    method, needs = f"method={serving.method.name}", serving.needs
    _check_never_met(serving.method.name, needs)
    uploads.require(needs, serving.method.name)
    if "own_decoder" in needs:
        _check_lengths(method, uploads)
        _check_own_decoder(method, uploads.decoders[0], spec)
    if "same_architecture" in needs and _members(serving, spec) != set(map(structure, uploads.models)):
        raise OneshotError(
            f"{method}: averaging needs uploads of the server's architecture, with one list of classes and one "
            "normalisation; choose a method that distils, for instance method=fedchorus"
        )
    for model in uploads.models if "chain" in needs else ():
        require_chain(model)
    if (keys := asking(serving.config, "features")) and (blind := _without_features(uploads, spec)):
        raise OneshotError(no_features(keys[0], blind[0]))
    if serving.distillation.bank == "stacked" and not all_alike(uploads.models):
        raise OneshotError("distill.bank=stacked: uploads have different architectures; use distill.bank=loop or auto")
    _check_student(serving, spec)


def _check_lengths(method: str, uploads: Uploads) -> None:
    """All decoders draw from noise of one length."""
    lengths = sorted({one.latent for one in uploads.decoders})
    if len(lengths) > 1:
        raise OneshotError(
            f"{method}: the server's decoder and those that were uploaded must draw from noise of one length, not "
            f"{' and '.join(map(str, lengths))}; choose another method, for instance method=fedcvae_ens"
        )


def _check_own_decoder(method: str, first: DecoderUpload, spec: DataSpec) -> None:
    """A decoder of the server's own, built as the first, can be taught to draw all classes."""
    import torch

    with seeded(0, "trial"):
        vae = first.build()
    noise = torch.zeros(spec.classes, first.latent)
    images = torch.zeros(spec.classes, spec.channels, spec.size, spec.size)
    try:
        vae.distance(vae.decoder.logits(noise, torch.arange(spec.classes)), images)
    except Exception as error:  # whatever a VAE raises over labels is its answer
        raise OneshotError(
            f"{method}: the server would learn a decoder as that of {first.name}, but its {type(vae).__name__} cannot "
            f"be taught {spec.classes} classes ({named_line(error)}); choose method=fedcvae_ens, or name one of "
            "conf/cvae in that file"
        ) from error


def _members(serving: Serving, spec: DataSpec) -> set[str]:
    """The structures of the server's models."""
    return {structure(one.student(spec, 0)) for one in serving.student.architectures}


def _note_of_beginning(serving: Serving, uploads: Uploads, spec: DataSpec) -> list[str]:
    """Where the server's model begins at the mean of classifiers, and some are not built as it is: at how many."""
    if "classifiers" not in getattr(_init_of(serving.config["method"]), "uses", ()) or not uploads.classifiers:
        return []
    built, count = _members(serving, spec), len(uploads.models)
    alike = sum(structure(model) in built for model in uploads.models)
    if alike == count:
        return []
    fits = "the server's architecture and normalisation, and its classes in its order"
    if not alike:
        return [f"no classifier has {fits}: the server's model begins untrained, where method.init would average them"]
    return [f"only {alike} of {count} classifiers have {fits}: the server's model begins at their mean alone"]


def _without_features(uploads: Uploads, spec: DataSpec) -> list[str]:
    return [one.name for one in uploads.classifiers if not has_features(one.model, spec)]


def _check_student(serving: Serving, spec: DataSpec) -> None:
    """The server's model answers for all classes, also where it is built as somebody's whose classes were fewer."""
    import torch

    student = serving.student.build(spec, seed=0, as_clients_began=False).eval()
    try:
        with torch.no_grad():
            answer = tuple(student(torch.zeros(2, spec.channels, spec.size, spec.size)).shape)
    except Exception as error:  # whatever a model raises over its images is its answer
        answer = (one_line(error),)
    if answer != (2, spec.classes):
        raise OneshotError(
            f"server_model{_which(serving)} does not answer with {spec.classes} classes ({answer[-1]}); name one of "
            "conf/model, for instance server_model=cnn2, or one of your own: a function build(spec) and a YAML file "
            "for it in MY_CONF/model (--config-dir MY_CONF, docs/howto/model.md)"
        )


def _which(serving: Serving) -> str:
    """The server's model as somebody chose it."""
    chosen = serving.config["server_model"]
    return f": built as the first upload, {serving.student.name}" if chosen is None else f"={chosen}: it"
