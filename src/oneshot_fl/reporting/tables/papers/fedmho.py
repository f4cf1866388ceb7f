"""FedMHO."""

from fractions import Fraction

from oneshot_fl.reporting.tables.papers.paper import Asked, Paper, of_symbols

SYMBOLS = {
    "beta1": ("method.student.kl.weight", Fraction(1, 2)),  # 1 and 1 are its default, lambda = 0.5
    "beta2": ("method.student.ce.weight", Fraction(1, 2)),
    "R_th": ("method.pool.nearest", Fraction(1)),
    "cvae_local_epochs": ("clients.cvae.epochs", Fraction(1)),
}
UNFILTERED = {"mnist": 4800, "fashion_mnist": 4800, "svhn": 4800, "emnist": 9600}
"""Images where it does not filter: as many as the filter leaves."""


def asked(variant: str, data: str) -> Asked | None:
    """Table 5: weights of its losses; Tables 6 and 8: the filter; Table 11: epochs of the VAEs."""
    if variant == "without_kmeans":
        return {"method.pool.nearest": 1.0, "method.source.samples": UNFILTERED[data]}
    return of_symbols(variant, SYMBOLS)


PAPER = Paper(
    "fedmho",
    "FedMHO",
    asked,
    methods={"fedcvae": "fedcvae_fedmho"},
    partitions={"dirichlet": "dirichlet_equal_chunks"},
    by_method=(
        *("clients.kinds", "clients.optimizer.lr", "clients.cvae.epochs", "clients.cvae.optimizer.lr"),
        *("distill.rounds", "distill.student_optimizer", "models"),
    ),
    note="Its Table 2, the MFLOPs of its models, is shown where it is asked for: --paper fedmho/table2.",
    notes={
        "T5": "Learnable weights (beta) are printed, but not how they are learned: nothing of ours stands beside them.",
        "T11": "The printed FID is on the features of another network; ours is in every summary (synthetic).",
    },
)
