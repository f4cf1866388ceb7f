"""What the value of each key must be."""

import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any

from omegaconf import OmegaConf

from oneshot_fl.config.compose import choices


@dataclass(frozen=True)
class Rule:
    """What a value must be; `says` completes "must be ..."."""

    says: str
    holds: Callable[[Any], bool]


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool) and not math.isnan(value)


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


COUNT = Rule("a whole number of at least 1", lambda v: _is_integer(v) and v >= 1)
COUNT_OR_ZERO = Rule("a whole number of at least 0", lambda v: _is_integer(v) and v >= 0)
COUNT_OR_NULL = Rule("a whole number of at least 1, or null", lambda v: v is None or (_is_integer(v) and v >= 1))
POSITIVE = Rule("a number above 0", lambda v: _is_number(v) and 0 < v < float("inf"))
NOT_NEGATIVE = Rule("a number of at least 0", lambda v: _is_number(v) and 0 <= v < float("inf"))
SWITCH = Rule("true or false", lambda v: isinstance(v, bool))
POSITIVE_OR_NULL = Rule("a number above 0, or null", lambda v: v is None or POSITIVE.holds(v))


def one_of(*names: str) -> Rule:
    """One of a few words."""
    return Rule(f"one of {', '.join(names)}", lambda v: v in names)


def _are_names(names: Iterable[Any]) -> bool:
    """Of architectures that there are, whether or not a client of this run has them."""
    return set(names) <= {*choices("model"), *choices("cvae")}


SCHEDULE = one_of("constant", "cosine")
RULES: dict[str, Rule] = {
    "seed": COUNT_OR_ZERO,
    "data.domains": Rule(
        "a list of at least 2 names, or null",
        lambda v: v is None or (OmegaConf.is_list(v) and len(set(v)) == len(v) >= 2),
    ),
    "data.size": COUNT_OR_NULL,
    "data.channels": Rule("1 (grey) or 3 (colour)", lambda v: _is_integer(v) and v in (1, 3)),
    "partition.seed": COUNT_OR_ZERO,
    "partition.clients": COUNT,
    "partition.classes": COUNT,
    "partition.min_samples": COUNT_OR_ZERO,
    "partition.retries": COUNT,
    "partition.sigma": NOT_NEGATIVE,
    "proxy.fraction": Rule("a number between 0 and 1", lambda v: _is_number(v) and 0 < v < 1),
    "proxy.samples": COUNT,
    "proxy.seed": COUNT_OR_ZERO,
    "generator.noise": COUNT,
    "generator.width": COUNT,
    "cvae.latent": COUNT,
    "cvae.hidden": COUNT,
    "cvae.channels": Rule(
        "a list of whole numbers of at least 1",
        lambda v: OmegaConf.is_list(v) and len(v) > 0 and all(map(COUNT.holds, v)),
    ),
    "cvae.label_in_encoder": SWITCH,
    "clients.epochs": COUNT_OR_ZERO,
    "clients.batch_size": COUNT,
    "clients.optimizer.lr": POSITIVE,
    "clients.sam": POSITIVE_OR_NULL,
    "clients.augmentation": one_of("none", "flip", "crop", "crop_flip"),
    "clients.lr_of": Rule(
        "learning rates above 0 by names of conf/model or conf/cvae, for instance '{cvae_large: 0.001}', or null",
        lambda v: v is None or (OmegaConf.is_dict(v) and all(map(POSITIVE.holds, v.values())) and _are_names(v)),
    ),
    "clients.seed": COUNT_OR_ZERO,
    "clients.cvae.epochs": COUNT_OR_ZERO,
    "clients.cvae.batch_size": COUNT,
    "clients.cvae.optimizer.lr": POSITIVE,
    "stratify.steps": COUNT,
    "stratify.batch_size": COUNT,
    "stratify.classes_at_once": Rule("a whole number of at least 1, or auto", lambda v: v == "auto" or COUNT.holds(v)),
    "stratify.min_loss": POSITIVE,
    "stratify.optimizer.lr": POSITIVE,
    "stratify.seed": COUNT_OR_ZERO,
    "distill.rounds": COUNT_OR_ZERO,
    "distill.generator_steps": COUNT,
    "distill.batch_size": COUNT,
    "distill.clients_at_once": COUNT_OR_NULL,
    "distill.bank": one_of("auto", "loop", "stacked"),
    "distill.generator_optimizer.lr": POSITIVE,
    "distill.student_optimizer.lr": POSITIVE,
    "distill.student_schedule": SCHEDULE,
    "distill.images": COUNT,
    "distill.seed": COUNT_OR_ZERO,
    "evaluate.batch_size": COUNT,
    "evaluate.fidelity": Rule("null, or its settings (evaluate=fidelity)", lambda v: v is None or OmegaConf.is_dict(v)),
    "evaluate.fidelity.epochs": COUNT_OR_ZERO,
    "evaluate.fidelity.batch_size": COUNT,
    "evaluate.fidelity.optimizer.lr": POSITIVE,
    "evaluate.fidelity.samples": Rule("a whole number of at least 4", lambda v: _is_integer(v) and v >= 4),
    "evaluate.fidelity.seed": COUNT_OR_ZERO,
    "method.source.keep": one_of("last", "best"),
    "method.source.steps": COUNT,
    "method.student_optimizer.lr": POSITIVE,
    "method.student_schedule": SCHEDULE,
    "method.per_architecture": SWITCH,
    "method.student.kl.per_class": SWITCH,
    "method.warm_up.passes": COUNT_OR_ZERO,
    "method.warm_up.optimizer.lr": POSITIVE,
    "method.source.samples": COUNT,
    "method.source.taught": COUNT,
    "method.source.epochs": COUNT,
    "method.source.batch_size": COUNT,
    "method.source.split": one_of("label_distribution", "squared_counts", "categorical"),
    "method.source.bound": POSITIVE_OR_NULL,
    "method.pool.nearest": Rule("a number above 0 and at most 1", lambda v: _is_number(v) and 0 < v <= 1),
    "method.pool.rounds": COUNT_OR_NULL,
    "method.pool.uint8": SWITCH,
    "method.ensemble.scale": POSITIVE,
    "method.ensemble.space": one_of("logits", "probabilities"),
    "method.ensemble.step": NOT_NEGATIVE,
    "method.ensemble.decay": POSITIVE,
    "method.ensemble.per": one_of("batch", "round"),
    "method.perturb.epsilon": NOT_NEGATIVE,
    "method.perturb.direction": one_of("sign", "gradient"),
    "trainer.channels_last": SWITCH,
    "trainer.matmul_precision": one_of("highest", "high", "medium"),
    "communication_rounds": COUNT,
}
