"""Whether what makes images, and what learns from them, fit each other: settings that are fine one by one."""

import math
from collections.abc import Collection, Mapping
from typing import Any

from oneshot_fl.config.groups import inside
from oneshot_fl.config.method import making_sources, sources_of
from oneshot_fl.config.needs import terms_asking
from oneshot_fl.config.rules import target_of
from oneshot_fl.config.trial import shape_of
from oneshot_fl.errors import OneshotError
from oneshot_fl.recipe import needs_of
from oneshot_fl.values import whole_part


def check_images(settings: Mapping[str, Any]) -> None:
    """Before clients train for it.

    Raises:
        OneshotError: an objective has nothing to lower, or looks at what there is not; pixels of another number than
            the batch that they are; a generator is to begin as images that it cannot show; a source draws from images
            of others, and none makes any before it; an ensemble learns from earlier rounds, and none is kept, or
            answers for images as the pool keeps them, and the student sees others; batches that are to be a source's
            are others; or a share of every source's images is to be held out that is not even one.
    """
    method, recitation = settings["method"], settings["recite"]
    sources = sources_of(method)
    _check_terms_left(settings, sources)
    _check_no_start(settings)
    for key, node in {**sources, "recite": recitation}.items():
        _check_pixels(key, node)
    making = making_sources(method, channels=shape_of(settings["data"])[0])
    _check_start(recitation)
    _check_drawn_of_others(making)
    _check_earlier_rounds(method)
    _check_kept_answers(method)
    _check_order(settings, sources)
    _check_some_held_out(settings["distill"]["held_out"], making)


def _check_terms_left(settings: Mapping[str, Any], sources: Mapping[str, Mapping[str, Any]]) -> None:
    """Whatever is trained is trained by a term with a weight."""
    scored = any(getattr(target_of(key, node), "scored", False) for key, node in sources.items())
    warm_up = settings["method"].get("warm_up") or {}
    trained = {
        "method.objective": scored or bool(inside(settings, "method.objective")),
        "method.student": bool(sources),
        "method.warm_up.student": bool(sources) and warm_up.get("passes", 0) > 0,
        "recite.objective": True,
    }
    for key, asked in trained.items():
        terms = inside(settings, key) or {}
        if asked and not any(term["weight"] for term in terms.values()):
            why = "every term weighs 0" if terms else "no term is there"
            remedy = "give one of them a weight" if terms else "leave one in"
            raise OneshotError(f"{key}: {why}, and nothing is left to train by; {remedy}")


def _check_no_start(settings: Mapping[str, Any]) -> None:
    """How the student began is kept for its own objective; where that looks at it the warm-up can too."""
    kept = terms_asking(settings, "start", "method.student")
    never = ("method.objective", "recite.objective", *(() if kept else ("method.warm_up.student",)))
    if keys := terms_asking(settings, "start", *never):
        raise OneshotError(
            f"{keys[0]}: compares with how the student began, which only its own objective can; move the term to "
            "method.student"
        )


def _check_pixels(key: str, node: Mapping[str, Any]) -> None:
    """Pixels are as many as they are; other generators make any number."""
    size, count = node.get("batch_size"), (node.get("generator") or {}).get("count")
    if None not in (size, count) and size != count:
        raise OneshotError(
            f"{key}.batch_size={size}: its generator holds the pixels of {count} images; set {key}.generator.count="
            f"{size} too"
        )


def _check_start(recitation: Mapping[str, Any]) -> None:
    """Only pixels can begin as given images."""
    generator = target_of("recite.generator", recitation["generator"])
    if recitation["start"] == "noise" or hasattr(generator, "show"):
        return
    raise OneshotError(
        f"recite.start={recitation['start']}: {generator.__name__} cannot begin as given images, as it has no method "
        "show; set recite.start=noise"
    )


def _check_drawn_of_others(sources: Mapping[str, Mapping[str, Any]]) -> None:
    first = next(iter(sources), None)
    if first not in (None, "method.source") and sources[first].get("draw", "") in _of_others():
        raise OneshotError(
            f"{first}: is drawn of images that other sources make before it, and none does; leave it out too (~{first})"
        )


def _check_earlier_rounds(method: Mapping[str, Any]) -> None:
    """An ensemble that learns from all rounds but the newest would stay as it began in a pool of one round."""
    pool, ensemble = method.get("pool") or {}, method.get("ensemble") or {}
    if "earlier_rounds" not in _needs_of_ensemble(method):
        return
    one = {"method.pool.rounds=1": pool.get("rounds") == 1, "method.pool.refill=false": pool.get("refill") is False}
    if ensemble.get("include_newest") is not True and (why := [key for key, holds in one.items() if holds]):
        newest = " or set method.ensemble.include_newest=true" if "include_newest" in ensemble else ""
        raise OneshotError(
            f"{' '.join(why)}: method.ensemble={ensemble.get('name')} learns from the images of all rounds but the "
            f"newest, and none of them stays; choose method/pool=growing with two rounds or more{newest}"
        )


def _check_kept_answers(method: Mapping[str, Any]) -> None:
    """An ensemble that answers for images of the pool alone would be asked about what a perturbation makes of them."""
    perturb = method.get("perturb")
    if not perturb or "kept_answers" not in _needs_of_ensemble(method):
        return
    changes = target_of("method.perturb", perturb)
    if not getattr(changes, "keeps_answers", False):
        raise OneshotError(
            f"method.perturb: the ensemble is asked anew about images that {changes.__name__} changes, and "
            f"method.ensemble={method['ensemble'].get('name')} answers for images as the pool keeps them; set "
            "method.perturb=null, or one that says keeps_answers = True"
        )


def _needs_of_ensemble(method: Mapping[str, Any]) -> frozenset[str]:
    ensemble = method.get("ensemble")
    return needs_of(target_of("method.ensemble", ensemble)) if ensemble else frozenset()


def _check_order(settings: Mapping[str, Any], sources: Mapping[str, Mapping[str, Any]]) -> None:
    """Where images are handed out as they were made, the student's batches are those of the source."""
    if (settings["method"].get("pool") or {}).get("shuffle", True):
        return
    size, held_out = settings["distill"]["batch_size"], settings["distill"]["held_out"]
    why = "method.pool.shuffle=false hands out images batch by batch as they were made"
    if held_out:
        raise OneshotError(f"distill.held_out={held_out}: {why}, and some would be missing; set distill.held_out=0")
    if (nearest := settings["method"]["pool"].get("nearest", 1)) != 1:
        raise OneshotError(
            f"method.pool.nearest={nearest}: {why}, and some would be missing; set method.pool.nearest=1"
        )
    if len(sources) > 1:
        raise OneshotError(
            f"{[*sources][1]}: {why}, and batches of several sources are nobody's; leave one source, or set "
            "method.pool.shuffle=true"
        )
    for key, node in sources.items():
        if node.get("batch_size", size) != size:
            raise OneshotError(
                f"{key}.batch_size={node['batch_size']}: {why}, and distill.batch_size={size} would cut them "
                "elsewhere; let both be the same"
            )


def _check_some_held_out(share: float, sources: Mapping[str, Mapping[str, Any]]) -> None:
    """A share of a source's images is cut to whole ones, of few to none; of some only the run tells how many."""
    counted = [_counted(key, node) for key, node in sources.items()]
    known = {key: count for key, count in counted if count is not None}
    if not share or not known or len(known) < len(counted) or any(whole_part(share, count) for count in known.values()):
        return
    key, most = max(known.items(), key=lambda each: each[1])
    right = f"set it to {least_share(most)} or more, make more images, or set it to 0" if most > 1 else "set it to 0"
    raise OneshotError(f"distill.held_out={share}: of a round's images ({key}={most}) that is not even one; {right}")


def _counted(key: str, node: Mapping[str, Any]) -> tuple[str, int | None]:
    """The setting that says how many images a source makes a round at most, and how many; None: that is not known."""
    setting = getattr(target_of(key, node), "counted_by", "")
    return f"{key}.{setting}", node.get(setting)


def least_share(images: int) -> float:
    """The least share of which so many images give a whole one, rounded up to six digits."""
    return math.ceil(10**6 / images) / 10**6


def _of_others() -> Collection[str]:
    from oneshot_fl.parts.procedural import OF_OTHERS  # torch: not before it is needed

    return OF_OTHERS
