"""Wrong and senseless command lines, made from the configuration itself; the same ones every time."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from tests.composing import compose_config

BASES: tuple[tuple[str, ...], ...] = (
    ("method=fedhydra",),
    ("method=dense",),
    ("method=co_boosting",),
    ("method=f_adi",),
    ("method=feddf", "proxy=holdout"),
    ("method=feddf", "proxy=dataset", "proxy.data=digits", "data=mnist"),
    ("method=fedmho_md", "clients=half_cvae", "cvae=cvae_conv2"),
    ("method=fedcvae_kd", "clients=all_cvae", "cvae=fedcvae"),
    ("method=fedavg", "partition=lognormal"),
    ("method=dense_co_boosting", "evaluate=fidelity"),
    ("method=dense", "data=image_folder", "data.root=somewhere", "partition=iid"),
    ("method=dense", "data=pacs", "data.root=somewhere", "data.held_out=photo", "partition=leave_one_domain_out"),
    ("method=dense", "data=mnist", "partition=classes_per_client", "model=resnet18"),
    ("method=dense", "model=torchvision", "model.architecture=densenet121", "logger=wandb", "clients=sam"),
    ("method=fedmho", "clients=fedmho", "cvae=fedmho", "model=fedmho", "data=mnist", "budget=fedmho"),
)
"""What is mutated: together they hold a node of every kind."""
ANY_TEXT = {"study", "logger.wandb.project", "logger.wandb.entity", "logger.wandb.study", "logger.wandb.run_name"}
PATHS = {"store", "data_root", "data.root", "data.cache", "proxy.root"}
LABELS = {"budget.name", "data.name", "partition.name", "proxy.name", "model.name", "cvae.name", "generator.name"}
LABELS |= {"method.name", "method.ensemble.name", "data.held_out", "partition.held_out"}
OPTIONAL = {  # where null, or leaving the key out, means something
    "server_model", "clients.sam", "clients.lr_of", "clients.kinds", "clients.augmentation",
    "distill.clients_at_once", "evaluate.fidelity", "evaluate.fidelity.model", "evaluate.privacy",
    "evaluate.validation", "method.pool.rounds", "method.pool.refill", "method.pool.nearest", "method.pool.uint8",
    "method.source.bound", "method.ensemble", "method.perturb", "method.warm_up", "method.source",
    "method.per_architecture", "method.student_schedule", "method.student_optimizer", "data.size", "data.domains",
    "data.held_out", "partition.held_out", "partition.alpha", "model.shares", "cvae.shares", "logger.wandb.entity",
    "logger.wandb.mode", "generator.compiled", "trainer.matmul_precision", "model.aux_logits", "model.init_weights",
    "data.max_value",
}  # fmt: skip
DEFAULTS = {"lr", "betas", "momentum", "weight_decay", "_partial_", "name", "of", "temperature", "per_class"}
"""Last names of keys that may be left out: their target has a value of its own, or nothing reads them."""

TABLES = ("clients.lr_of.", "clients.kinds.")
"""Tables whose entries are the user's own to leave out."""
IN_TABLES = {"null", "bool", "inf", "nan", "negative", "empty", "huge"}
"""What is wrong in a table too, where an entry's key is not known until some choice reads it."""


@dataclass(frozen=True)
class Case:
    """A line that should end in one plain sentence."""

    base: tuple[str, ...]
    line: tuple[str, ...]
    kind: str
    """What is wrong with it."""

    def __str__(self) -> str:
        return " ".join((*self.base, *self.line))


def leaves(node: Any, prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Dotted keys and values of everything that is no dictionary."""
    for name, value in node.items():
        key = f"{prefix}{name}"
        if isinstance(value, dict) and value:
            yield from leaves(value, f"{key}.")
        else:
            yield key, value


def dictionaries(node: Any, prefix: str = "") -> Iterator[str]:
    """Dotted keys of everything that is one."""
    for name, value in node.items():
        if isinstance(value, dict):
            yield f"{prefix}{name}"
            yield from dictionaries(value, f"{prefix}{name}.")


SOUND = {("stratify.classes_at_once", "5")}
"""Changes that look wrong and are not."""


def of_values(key: str, value: Any) -> Iterator[tuple[str, str]]:
    """What is wrong for a key of this value, and its name."""
    last = key.rpartition(".")[2]
    if last in ("_target_",):
        yield from (("null", "null"), ("5", "number"), ("no.such.thing", "no target"), ("oneshot_fl.config", "module"))
        yield from (("torch.nn.Linear", "other class"), ("os.getcwd", "other function"), ("''", "empty"))
        return
    if last == "_partial_":
        yield from (("5", "number"), ("'\"true\"'", "quoted"))
        return
    yield "{a: 1}", "dictionary"
    if key not in OPTIONAL and last not in ("name",):
        yield "null", "null"
    if isinstance(value, bool):
        yield from (("'\"true\"'", "quoted"), ("1", "number"), ("[true]", "list"), ("yess", "text"))
    elif isinstance(value, int | float):
        yield from (("ten", "text"), ("true", "bool"), ("'\"1\"'", "quoted"), ("''", "empty"), ("[1]", "list"))
        yield from (("nan", "nan"), ("inf", "inf"), ("-1", "negative"), ("1e30", "huge"))
        yield "99999999999999999999999", "beyond 64 bits"
        if isinstance(value, int) and "lr" not in last:
            yield "1.5", "fraction"
            if "seed" not in last:
                yield "1000000000000", "a trillion"
    elif isinstance(value, list):
        yield from (("5", "number"), ("x", "text"), ("[null]", "list of null"), ("[{a: 1}]", "list of dictionaries"))
        yield from (("[]", "empty"), ("[-7]", "list of negative"), ("[[1]]", "nested"))
    elif isinstance(value, str):
        if key not in ANY_TEXT | PATHS | LABELS and last != "name":
            yield from ((f"{value}x", "misspelled"), ("5", "number"))
        yield from (("''", "empty"), ("[a]", "list"), ("true", "bool"), ("1.5", "fraction"))
        yield "'\t'", "control characters"


def mutations(base: tuple[str, ...]) -> Iterator[Case]:
    """Every key of a configuration with everything that is wrong for it."""
    cfg: DictConfig = compose_config(*base)
    plain = OmegaConf.to_container(cfg, resolve=True)
    for key, value in leaves(plain):
        for text, kind in of_values(key, value):
            if (key, text) in SOUND:
                continue
            if (kind in IN_TABLES and text != "[]") or not (".of." in key or key.startswith("clients.kinds.")):
                yield Case(base, (f"++{key}={text}",), kind)
        last = key.rpartition(".")[2]
        yield Case(base, (f"{key}s=1",), "misspelled key")
        if key not in OPTIONAL and last not in DEFAULTS and not key.startswith(TABLES) and ".of." not in key:
            yield Case(base, (f"~{key}",), "deleted")
    for key in dictionaries(plain):
        if key.rpartition(".")[2] != "of" and ".of." not in key:
            yield Case(base, (f"+{key}.nonsense=1",), "unknown key")
        if ".of." in key:
            continue
        for text, kind in (("5", "number"), ("[]", "list"), ("true", "bool"), ("''", "empty")):
            yield Case(base, (f"{key}={text}",), f"{kind} for a group")
        if key not in OPTIONAL and key not in ("attack", "gate", "budget.of"):
            yield Case(base, (f"{key}=null",), "null for a group")
            yield Case(base, (f"++{key}=null",), "null for a group")


NASTY = (
    *Path(__file__).with_name("nasty.txt").read_text(encoding="utf-8").splitlines(),
    f"store={'x' * 5000}",
    "study='\0'",
)
"""Written by hand; a space separates arguments."""


def cases(count: int | None = None, seed: int = 0) -> list[Case]:
    """All of them, or a sample that is the same for the same seed; what several bases share is there once."""
    by_hand = [Case((), tuple(_words(line)), "by hand") for line in NASTY]
    made: dict[tuple[str, str], Case] = {}
    for base in BASES:
        node = base[0]
        for case in mutations(base):
            made.setdefault((case.line[0], node if "method." in case.line[0] else ""), case)
    everything = [*by_hand, *made.values()]
    return everything if count is None else random.Random(seed).sample(everything, count)


def _words(line: str) -> list[str]:
    """Split at spaces outside of brackets and quotes; Hydra's own quotes stay."""
    words, depth, quote, word = [], 0, "", ""
    for letter in line:
        if letter in "\"'":
            quote = "" if quote == letter else quote or letter
        depth += (letter in "[{") - (letter in "]}")
        if letter == " " and depth <= 0 and not quote:
            words.append(word)
            word = ""
        else:
            word += letter
    return [*words, word]
