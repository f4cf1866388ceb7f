"""Wrong and senseless command lines, made from the configuration itself; the same ones every time."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

from omegaconf import DictConfig, OmegaConf

from tests.conftest import compose_config

BASES: tuple[tuple[str, ...], ...] = (
    ("method=fedhydra",),
    ("method=dense",),
    ("method=co_boosting",),
    ("method=f_adi",),
    ("method=feddf", "proxy=holdout"),
    ("method=feddf", "proxy=dataset", "proxy.data=digits"),
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
PATHS = {"store", "data.root", "data.cache", "proxy.root"}
LABELS = {"budget.name", "data.name", "partition.name", "proxy.name", "model.name", "cvae.name", "generator.name"}
LABELS |= {"method.name", "method.ensemble.name", "data.held_out", "partition.held_out"}
OPTIONAL = {  # where null, or leaving the key out, means something
    "server_model", "clients.sam", "clients.lr_of", "clients.kinds", "clients.augmentation", "distill.clients_at_once",
    "evaluate.fidelity", "evaluate.fidelity.model", "method.pool.rounds", "method.pool.refill", "method.pool.nearest",
    "method.pool.uint8", "method.source.bound", "method.ensemble", "method.perturb", "method.warm_up", "method.source",
    "method.per_architecture", "method.student_schedule", "method.student_optimizer", "data.size", "data.domains",
    "data.held_out", "partition.held_out", "partition.alpha", "model.shares", "cvae.shares", "logger.wandb.entity",
    "logger.wandb.mode", "generator.compiled", "trainer.matmul_precision", "model.aux_logits", "model.init_weights",
}  # fmt: skip
DEFAULTS = {"lr", "betas", "momentum", "weight_decay", "_partial_", "name", "of", "temperature", "per_class"}
"""Last names of keys that may be left out: their target has a value of its own, or nothing reads them."""


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
        yield from ((".nan", "nan"), (".inf", "inf"), ("-1", "negative"), ("1e30", "huge"))
        yield "99999999999999999999999", "beyond 64 bits"
        if isinstance(value, int) and "lr" not in last:
            yield from (("1.5", "fraction"), ("1000000000000", "a trillion"))
    elif isinstance(value, list):
        yield from (("5", "number"), ("x", "text"), ("[null]", "list of null"), ("[{a: 1}]", "list of dictionaries"))
        yield from (("[]", "empty"), ("[-7]", "list of negative"), ("[[1]]", "nested"))
    elif isinstance(value, str):
        if key not in ANY_TEXT | PATHS | LABELS:
            yield from ((f"{value}x", "misspelled"), ("5", "number"))
        yield from (("''", "empty"), ("[a]", "list"), ("true", "bool"), ("1.5", "fraction"))
        yield '"a\\tb"' if key in PATHS else "'\t'", "control characters"


def mutations(base: tuple[str, ...]) -> Iterator[Case]:
    """Every key of a configuration with everything that is wrong for it."""
    cfg: DictConfig = compose_config(*base)
    plain = OmegaConf.to_container(cfg, resolve=True)
    for key, value in leaves(plain):
        for text, kind in of_values(key, value):
            yield Case(base, (f"++{key}={text}",), kind)
        last = key.rpartition(".")[2]
        yield Case(base, (f"{key}s=1",), "misspelled key")
        if key not in OPTIONAL and last not in DEFAULTS:
            yield Case(base, (f"~{key}",), "deleted")
    for key in dictionaries(plain):
        if key.rpartition(".")[2] != "of" and ".of." not in key:
            yield Case(base, (f"+{key}.nonsense=1",), "unknown key")
        for text, kind in (("5", "number"), ("[]", "list"), ("true", "bool"), ("''", "empty")):
            yield Case(base, (f"{key}={text}",), f"{kind} for a group")
        if key not in OPTIONAL and key not in ("attack", "gate", "budget.of"):
            yield Case(base, (f"{key}=null",), "null for a group")
            yield Case(base, (f"++{key}=null",), "null for a group")


NASTY: tuple[str, ...] = (
    "logger=null", "partition=5", "store=null", "server_model=5", "data.mean=[0.5,0.5]", "data.std=[-1]", "data.std=[0]",
    "data=mnist data.root=null", "data=mnist data.root=''", "data=mnist data.root=/dev/null", "store=/dev/null/x",
    "store=/proc/x", "clients.optimizer.momentum=-1", "+clients.optimizer.foo=1", "~clients.epochs", "~clients",
    "~data", "~method", "~logger", "~trainer", "~store", "~seed", "~partition", "~model", "~evaluate", "~generator",
    "++method.per_architecture='\"true\"'", "trainer.channels_last='\"true\"'", "+trainer.limit_train_batches=0",
    "+trainer.max_steps=1", "+trainer.fast_dev_run=true", "+trainer.max_time=00:00:00:01", "+trainer.devices=2",
    "+trainer.foo=1", "partition.clients=1e9", "partition.clients=1000000000", "partition.clients=10001",
    "distill.batch_size=1000000000", "proxy.samples=1000000000000", "generator.width=1000000", "generator.noise=0",
    "generator.width=16384 generator.noise=16384 data.size=1024 data=image_folder data.root=x",
    "seed=18446744073709551616", "seed=-1", "seed=0.5", "seed='\"1\"'", "seed=[1]", "seed=${seed}", "seed=${study}",
    "seed=${no.such}", "study=${study}", "data.mean=${data.mean}", "store=${oc.env:NO_SUCH_VARIABLE_HERE}",
    "seed=${oc.decode:}", "seed=${nope:1}", "method.objective.adv.temprature=2", "method.objective.adv.tau=-1",
    "+method.objective.adv.temprature=2", "+method.objective.adv.tau=-1", "method.objective.adv.weight=-1",
    "method.objective.adv=null", "method.objective=null", "~method.objective", "~method.pool", "~method.student",
    "~method.init", "~method.source.generator", "~method.source.optimizer", "+method.objective.new=1",
    "+method.objective.new={weight: 1}", "+method.objective.new={_target_: os.getcwd, weight: 1}",
    "+method.objective.new={_target_: builtins.print, weight: 1}", "method.source._target_=torch.nn.Linear",
    "method.ensemble._target_=oneshot_fl.parts.ensembles.NoSuch", "+method.student_optimizer={lr: 0.1}",
    "+method.student_optimizer=sgd", "++method.student_schedule=linear", "clients.optimizer._target_=torch.optim.LBFGS",
    "clients.optimizer._target_=torch.nn.Linear", "clients.optimizer._target_=builtins.dict",
    "clients.optimizer._target_=os.system", "clients.optimizer.lr=0", "clients.optimizer.lr=1e9", "clients.sam=1e9",
    "+clients.optimizer.nesterov=true clients.optimizer.momentum=0", "+clients.optimizer.maximize=true",
    "distill.generator_optimizer.betas=[0.5]", "distill.generator_optimizer.betas=[0.5,1.0]",
    "distill.generator_optimizer.betas=0.5", "distill.generator_optimizer.betas=[a,b]", "clients.kinds=[]",
    "clients.kinds=[5]", "clients.kinds=[[cvae]]", "clients.kinds={classifier: a}", "clients.kinds={classifier: .nan}",
    "clients.kinds={classifier: .inf, cvae: 1}", "clients.kinds={classifier: true}", "clients.kinds=true",
    "model=mixed model.names=cnn2", "model=mixed model.names=[5]", "model=mixed model.names=[null]",
    "model=mixed 'model.names=[\"\"]'", "model=mixed model.names=[[cnn2]]", "model=mixed model.names={a: cnn2}",
    "model=mixed model.names=[cnn2] model.shares=[.nan]", "model=mixed model.names=[cnn2] model.shares=[.inf]",
    "model=mixed model.names=[cnn2] model.shares=[true]", "model=mixed model.names=[../model/cnn2]",
    "model=resnet18 model.depth=19", "model=resnet18 model.depth=0", "+model.norm=1", "model.norm='\"false\"'",
    "model=torchvision model.architecture=fasterrcnn_resnet50_fpn", "model=torchvision model.architecture=nonsense",
    "model=torchvision model.architecture=vit_b_16", "model=torchvision model.architecture=inception_v3 data=mnist",
    "model=torchvision model.architecture=densenet121 +model.foo=1", "model._target_=oneshot_fl.models.cvae.large",
    "model._target_=torch.nn.Linear", "model._target_=oneshot_fl.models.classifiers.vgg9", "server_model=''",
    "server_model=../cnn2", "server_model=[cnn2]", "server_model=mixed", "data._target_=oneshot_fl.data.partition.iid",
    "data.name=null", "data.name=[a]", "partition._target_=oneshot_fl.data.proxy.noise", "partition.alpha=null",
    "partition.seed=null", "generator._target_=oneshot_fl.models.classifiers.cnn2", "data=mnist data.download='\"false\"'",
    "data=mnist data.download=1", "data=mnist data.mean=0.5", "data=mnist data.mean=[120]", "data=mnist data.std=[58]",
    "data=mnist data.std=[1e-300]", "data=cifar10 data.mean=[0.5,0.5]", "data=cifar10 data.mean=[0.5,0.5,.nan]",
    "data=image_folder data.root=x data.channels=2", "data=image_folder data.root=x data.size=1e9",
    "data=image_folder data.root=x data.size=-8", "data=image_folder data.root=[x]", "data=image_folder data.root=5",
    "data=image_folder data.root=x data.channels=true", "evaluate.ensembles=null", "evaluate.ensembles.uniform=null",
    "evaluate.ensembles.uniform=5", "+evaluate.ensembles.mine={_target_: nope.nope}", "+evaluate.ensembles.mine={}",
    "evaluate.batch_size=0", "evaluate=fidelity evaluate.fidelity.model=nope", "evaluate=fidelity ~evaluate.fidelity.seed",
    "evaluate.fidelity=false", "evaluate.fidelity=fidelity", "logger=5", "logger.csv=null", "logger.csv=5",
    "+logger.mine={_target_: nope.Nope}", "+logger.mine=5", "logger.csv._target_=5", "+logger.csv.folder=x",
    "logger.csv._target_=oneshot_fl.tracking.loggers.WandbLogger", "communication_rounds=1000000000",
    "communication_rounds=true", "communication_rounds=1.0", "budget=5", "budget.rounds=-1", "budget.rounds=null",
    "+budget.nonsense=1", "+nonsense=1", "+nonsense.deeper=1", "+5=1", "nonsense", "=1", "seed", "seed=", "seed==1",
    "seed=1=2", "clients.epochs=", "clients.epochs='", "clients.epochs={", "clients.epochs=[", "+.=1", "a b", "\u00fc=1",
    "seed=\u0661", "study='\u0000'", "method=\u65b9\u6cd5", "method=../method/dense", "method=dense,fedavg seed=1,x",
    "method='dense'x", "experiment=nope", "experiment=fedhydra/nope", "experiment=fedhydra", "attack=nope", "gate=5",
    "+attack={_target_: nope.nope}", "+attack._target_=nope.nope", "+gate._target_=5", "method=fedmho", "proxy=dataset",
    "proxy=dataset proxy.data=nope", "proxy=dataset proxy.data=digits proxy.root=null", "proxy=holdout proxy.fraction=1",
    "proxy=holdout proxy.fraction=0", "proxy._target_=oneshot_fl.data.partition.iid", "stratify.classes_at_once=0",
    "stratify.min_loss=0", "stratify.optimizer=null", "stratify.optimizer=adam", "stratify=null", "distill=null",
    "distill.bank=true", "distill.student_schedule=null", "distill.clients_at_once=0", "cvae=fedcvae cvae.latent=1.5",
    "cvae=cvae_conv2 cvae.channels=8", "cvae=cvae_conv2 cvae.channels=[8,'a']", "method.pool.rounds=0",
    "method.pool.refill='\"false\"'", "method.source.keep=true", "method.source.steps=0", "method.source.batch_size=0",
    "method=fedmho clients=half_cvae method.pool.nearest=2", "method=fedmho clients=half_cvae method.warm_up=true",
    "method=fedmho clients=half_cvae method.warm_up.passes=-1", "trainer=null", "trainer.accelerator=quantum",
    "trainer.precision=8", "trainer.precision=32", "trainer.precision=null", "trainer.accelerator=5",
    "trainer.matmul_precision=low", f"store={'x' * 5000}", f"study={'x/' * 300}", "store='~no_such_user_here/x'",
    "clients.lr_of={cnn2: 0}", "clients.lr_of={nope: 1}", "clients.lr_of=[cnn2]", "clients.lr_of={5: 1}",
    "clients.lr_of={cnn2: null}", "clients.augmentation=[flip]", "clients.augmentation=null", "clients.cvae=null",
    "clients.cvae.optimizer=null", "~clients.cvae.epochs", "clients.optimizer=null", "~clients.optimizer._target_",
    "clients.optimizer={}", "clients.optimizer=5",
)  # fmt: skip
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
