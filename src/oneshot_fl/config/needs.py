"""What a method needs of clients and server, and who cannot give it."""

from collections.abc import Mapping
from typing import Any

from omegaconf import DictConfig

from oneshot_fl.config.clients import kinds, nodes_of, server_models
from oneshot_fl.config.compose import build, plain, published_method
from oneshot_fl.config.method import making_sources, sources_of
from oneshot_fl.config.parts import terms_at, tested
from oneshot_fl.config.rules import target_of
from oneshot_fl.config.trial import has_features, shape_of
from oneshot_fl.errors import OneshotError
from oneshot_fl.recipe import needs_of, needs_of_start

OF_DECODERS = "method=fedcvae_ens"
"""What to choose where clients upload decoders and nothing else."""


def check_teacher(cfg: DictConfig, settings: Mapping[str, Any]) -> None:
    """Whoever asks a teacher needs one: loss terms, sources, and what changes images that it is then asked about.

    Raises:
        OneshotError: there is none.
    """
    method = settings["method"]
    if method["source"] is None or method.get("ensemble") is not None:
        return
    if asked := [*asking(settings, "teacher"), *_parts_that_ask(method)]:
        raise OneshotError(
            f"method.ensemble=null: {asked[0]} asks a teacher; choose one, for instance {_teacher(cfg)}, or leave "
            f"out who asks (~{asked[0]})"
        )


def _teacher(cfg: DictConfig) -> str:
    """The word that chooses one: Hydra replaces what the method's file names, and adds what it does not."""
    return "+" * (published_method(cfg).get("ensemble") is None) + "method/ensemble=uniform"


def _parts_that_ask(method: Mapping[str, Any]) -> list[str]:
    """Keys of the method's sources and of its perturbation, if they ask a teacher themselves or make the loop do so."""
    perturb = {"method.perturb": node} if (node := method.get("perturb")) is not None else {}
    anew = [key for key, node in perturb.items() if not getattr(target_of(key, node), "keeps_answers", False)]
    return anew + [key for key, node in sources_of(method).items() if "teacher" in needs_of(target_of(key, node))]


def check_kinds(cfg: DictConfig) -> None:
    """A method needs clients that upload what it works on.

    Raises:
        OneshotError: no client uploads it, their decoders do not fit each other, or they began nowhere in common.
    """
    wanted, needs = set(kinds(cfg)), method_needs(cfg)
    if "decoders" in needs and "cvae" not in wanted:
        raise OneshotError(
            f"method={cfg.method.name}: draws its images from clients' decoders, and no client uploads one; choose "
            f"clients=half_cvae or clients=all_cvae{' and communication_rounds=1' * (cfg.communication_rounds > 1)}"
        )
    if "own_decoder" in needs and len(_latents(cfg)) > 1:
        raise OneshotError(
            f"method={cfg.method.name}: the server's decoder and the clients' must draw from noise of one length, not "
            f"{' and '.join(map(str, _latents(cfg)))}; choose one VAE for all clients, for instance cvae=fedcvae"
        )
    if "classifiers" in needs and "classifier" not in wanted:
        raise OneshotError(
            f"method={cfg.method.name}: needs clients that upload classifiers, and none does; choose clients=half_cvae "
            f"or clients=default, or a method that works on decoders, for instance {OF_DECODERS}"
        )
    if cfg.hearing and "classifier" not in wanted and "classifiers" in _needs("hearing", cfg.hearing):
        raise OneshotError(
            "hearing: needs clients that upload classifiers, and none does; choose hearing=none, or clients=half_cvae "
            "or clients=default"
        )
    if "classifier" not in wanted and (nameless := _unlabelled(cfg)):
        raise OneshotError(
            f"{nameless[0]}: makes images without labels, and no client uploads a classifier that could name them; "
            "choose clients=half_cvae, or only sources that know what they make, for instance method/source=decoders"
        )
    if "clients_start" in needs and cfg.clients.initial_weights == "own":
        raise OneshotError(
            "clients.initial_weights=own: there are no weights that all clients began at, which method/init="
            "as_clients_began takes; choose method/init=fresh, or clients.initial_weights=shared"
        )
    if cfg.communication_rounds > 1 and "cvae" in wanted:
        raise OneshotError(
            f"communication_rounds={cfg.communication_rounds}: clients with a VAE cannot begin at the server's model; "
            "use communication_rounds=1"
        )


def method_needs(cfg: DictConfig) -> frozenset[str]:
    """What the method's slots need; where it has an ensemble, classifiers to ask."""
    init, asks = cfg.method.get("init"), cfg.method.get("ensemble") is not None
    of_init = frozenset() if init is None else _needs("method.init", init) | _start_needs(cfg)
    return of_init | source_needs(cfg) | frozenset({"classifiers"} if asks else ())


def _start_needs(cfg: DictConfig) -> frozenset[str]:
    """What the student's start needs, where one of its loss terms holds it to that."""
    terms = _that_count(terms_at({"method": plain(cfg.method)}, ("method.student",)))
    of_terms = frozenset().union(*(_needs(key, term) for key, term in terms.items()))
    return needs_of_start(target_of("method.init", plain(cfg.method.init)), of_terms)


def source_needs(cfg: DictConfig) -> frozenset[str]:
    """What the method's sources of images need; nothing where there is none."""
    return frozenset().union(*(_needs(key, each) for key, each in sources_of(cfg.method).items()))


def _unlabelled(cfg: DictConfig) -> list[str]:
    """Keys of sources that make images without labels."""
    making = making_sources(plain(cfg.method), channels=shape_of(plain(cfg.data))[0])
    return [key for key, node in making.items() if getattr(target_of(key, node), "unlabelled", False)]


def _needs(key: str, node: Any) -> frozenset[str]:
    """What a part declares that it needs, without making it."""
    return needs_of(target_of(key, plain(node)))


def asking(settings: Mapping[str, Any], need: str) -> list[str]:
    """Keys of ensembles, and of loss terms with a weight, that declare a need."""
    own = {"method.ensemble": settings["method"].get("ensemble")}
    return _asking(own | terms_at(settings, ("method.objective", "method.student")) | tested(settings), need)


def terms_asking(settings: Mapping[str, Any], need: str, *groups: str) -> list[str]:
    """Keys of the loss terms of some groups, of those with a weight, that declare a need."""
    return _asking(terms_at(settings, groups), need)


def _asking(parts: Mapping[str, Any], need: str) -> list[str]:
    return [key for key, part in _that_count(parts).items() if need in needs_of(target_of(key, part))]


def _that_count(parts: Mapping[str, Any]) -> dict[str, Any]:
    """Those that are there, but for loss terms that weigh nothing."""
    return {key: part for key, part in parts.items() if part is not None and part.get("weight") != 0}


def no_features(key: str, who: str) -> str:
    """What to say where a part looks into classifiers of which one has nothing to look at."""
    remedy = "choose method/ensemble=entropy" if key == "method.ensemble" else f"leave it out (~{key})"
    return f"{key}: looks at what enters the last linear layer of every classifier, and {who} has none; {remedy}"


def check_features(cfg: DictConfig, settings: Mapping[str, Any]) -> None:
    """A part that looks at features needs a last linear layer in every classifier.

    Raises:
        OneshotError: one has none.
    """
    for key in asking(settings, "features"):
        for node in nodes_of(cfg, "classifier"):
            if not has_features(node, settings["data"]):
                raise OneshotError(no_features(key, node.name))


def _latents(cfg: DictConfig) -> list[int]:
    """The different lengths of the noise of clients' VAEs."""
    return sorted({node.latent for node in nodes_of(cfg, "cvae")})


def check_architectures(cfg: DictConfig) -> None:
    """An average needs one architecture, as do stacked clients and clients that go on from the server's model.

    Raises:
        OneshotError: there are several, or the one is no chain of layers where these are aligned.
    """
    needs = _needs("method.init", cfg.method.init)
    servers, classifiers = server_models(cfg), nodes_of(cfg, "classifier")
    clients_differ = any(plain(own) != plain(classifiers[0]) for own in classifiers)
    some_differ = clients_differ or any(plain(own) != plain(servers[0]) for own in classifiers)
    if "same_architecture" in needs and some_differ and (len(servers) == 1 or "chain" in needs):
        names = ", ".join(dict.fromkeys(model.name for model in (*classifiers, *servers)))
        per_architecture = bool(cfg.method.get("per_architecture")) and "chain" not in needs and clients_differ
        raise OneshotError(
            f"method={cfg.method.name}: averaging needs one architecture for clients and server, not {names}; "
            f"choose one (model=cnn2 server_model=null{', which averages each architecture' * per_architecture}) or a "
            "method that distils (method=dense, method=fedhydra)"
        )
    if cfg.distill.bank == "stacked" and clients_differ:
        raise OneshotError("distill.bank=stacked: clients have different architectures; use distill.bank=loop or auto")
    if cfg.communication_rounds > 1 and some_differ:
        raise OneshotError(
            f"communication_rounds={cfg.communication_rounds}: clients begin the next round at the server's model, so "
            "clients and server need one architecture (model=cnn2 server_model=null)"
        )
    if "chain" in needs:
        from oneshot_fl.data.dataset import DataSpec  # torch: not before it is needed
        from oneshot_fl.methods.ot import require_chain

        require_chain(build(servers[0], spec=DataSpec(channels=3, size=32, classes=10, mean=(0,) * 3, std=(1,) * 3)))
