"""What the papers state of how they ran: our settings with their values, for all runs or by method and data set."""

from typing import Any

Settings = dict[str, Any]
"""Dotted keys and their values."""

COMMON: Settings = {
    "clients.augmentation": "none",
    "clients.sam": None,
    "distill.generator_steps": 30,
    "generator.width": 64,
}
OF_DENSE: Settings = {**COMMON, "clients.batch_size": 128, "clients.optimizer.lr": 0.01, "distill.batch_size": 128}
STATED: dict[str, Settings] = {
    "fedhydra": {**OF_DENSE, "clients.epochs": 200, "distill.rounds": 200},
    "co_boosting": {**OF_DENSE, "clients.epochs": 300, "distill.rounds": 500},
    "fedmho": {
        **COMMON,
        "clients.epochs": 200,
        "clients.batch_size": 64,
        "clients.optimizer._target_": "torch.optim.SGD",
        "clients.cvae.batch_size": 64,
        "distill.batch_size": 64,
    },
}
"""What holds for all methods and data sets (FedHydra, Sec. 4.1.5; Co-Boosting, appendix; FedMHO, Table 3); the codes
agree with it."""
BY_METHOD: dict[str, frozenset[str]] = {
    "fedmho": frozenset(
        {
            "clients.kinds",
            "clients.optimizer.lr",
            "clients.cvae.epochs",
            "clients.cvae.optimizer.lr",
            "distill.rounds",
            "method.student_optimizer.lr",
        }
    )
}
"""Keys that a paper sets by method or data set, on top of it."""
OF_VARIANTS: dict[str, Settings] = {
    "": {},
    "sam_local_training": {"clients.sam": 0.05},
    "homogeneous_large_clients": {},
    "various_models": {"clients.optimizer._target_": "torch.optim.Adam"},
}
WITH_DECODERS = ("fedmho", "fedmho_md", "fedmho_sd", "fedcvae")
CVAE_RATES = {"mnist": 0.05, "fashion_mnist": 0.05, "svhn": 0.001, "emnist": 0.003}
CVAE_EPOCHS = {"mnist": 30, "fashion_mnist": 40, "svhn": 40, "emnist": 50}
GLOBAL_RATES = {"mnist": 0.00001, "fashion_mnist": 0.0005, "svhn": 0.00005, "emnist": 0.00005}
GLOBAL_EPOCHS = {"mnist": 10, "fashion_mnist": 20, "svhn": 20, "emnist": 30}


def protocol(paper: str, method: str, data: str, variant: str) -> Settings:
    """What a paper states of the runs of one method (in the paper's word for it) on one data set."""
    own = _fedmho(method, data, variant) if paper == "fedmho" else {}
    return {**STATED[paper], **own, **(of_variant(variant) or {})}


def of_variant(variant: str) -> Settings | None:
    """What a variant sets outside the method; None where it is about something else."""
    if variant.startswith("local_epochs="):
        return {"clients.epochs": int(variant.removeprefix("local_epochs="))}
    return OF_VARIANTS.get(variant)


def _fedmho(method: str, data: str, variant: str) -> Settings:
    """FedMHO, Table 3 and Sec. 5.6; who trains what in Table 1. Of a method only what it depends on."""
    various = variant == "various_models"
    large = 0.0005 if various else 0.001 if data == "emnist" else 0.005
    cvaes = {"clients.cvae.epochs": CVAE_EPOCHS[data], "clients.cvae.optimizer.lr": CVAE_RATES[data]}
    return {
        "clients.kinds": _kinds(method, various),
        **({} if method == "fedcvae" else {"clients.optimizer.lr": large}),
        **({**cvaes, "method.student_optimizer.lr": _global_rate(method, data)} if method in WITH_DECODERS else {}),
        **({} if method == "fedavg" else {"distill.rounds": _rounds(method, data)}),
    }


def _global_rate(method: str, data: str) -> float:
    """Table 3's; of FEDCVAE its code's, which differs on SVHN."""
    return 0.0002 if (method, data) == ("fedcvae", "svhn") else GLOBAL_RATES[data]


def _kinds(method: str, various: bool) -> Any:
    """Half of FedMHO's clients are weak; in Sec. 5.6 a fifth."""
    if method not in WITH_DECODERS:
        return None
    return ["cvae"] if method == "fedcvae" else {"classifier": 4 if various else 1, "cvae": 1}


def _rounds(method: str, data: str) -> int:
    """Global epochs; of the methods with a generator the rounds, of FedDF the passes over its images, of its code."""
    return GLOBAL_EPOCHS[data] if method in WITH_DECODERS else 38 if method == "feddf" else 200
