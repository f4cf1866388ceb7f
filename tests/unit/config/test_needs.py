"""What a method needs and who cannot give it is told before training."""

import pytest

from oneshot_fl.config.checks import check
from oneshot_fl.config.needs import asking, method_needs, source_needs
from oneshot_fl.errors import OneshotError
from tests.composing import compose_config


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["method=fedmho"], r"^method=fedmho: draws its images from clients' decoders, .*clients=half_cvae"),
        (["method=dense", "clients=all_cvae"], r"^method=dense: needs clients that upload classifiers"),
        (["method=fedavg", "clients=all_cvae"], r"^method=fedavg: needs clients that upload classifiers"),
        (["method=dense", "clients=all_cvae"], r"or a method that works on decoders, for instance method=fedcvae_ens$"),
        (["method=fedmho_sd", "clients=all_cvae"], r"^method=fedmho_sd: needs clients that upload classifiers"),
        (
            ["method=fedmho", "clients=half_cvae", "communication_rounds=2"],
            r"^communication_rounds=2: clients with a VAE",
        ),
        (["method=fedmho", "clients=half_cvae", "method.pool.nearest=0"], r"^method\.pool\.nearest=0: must be"),
    ],
)
def test_methods_and_kinds_of_clients_must_fit(overrides, line):
    with pytest.raises(OneshotError, match=line):
        check(compose_config(*overrides))


def test_what_a_method_needs_is_that_of_its_slots():
    dense, fedmho, fedavg = (compose_config(f"method={name}") for name in ("dense", "fedmho", "fedavg"))
    assert method_needs(dense) == {"classifiers"}  # its ensemble asks them
    assert "decoders" in source_needs(fedmho) <= method_needs(fedmho)
    assert source_needs(fedavg) == frozenset()


def test_a_student_that_is_held_to_its_start_needs_what_that_is_made_of():
    held = compose_config("method=fedmho_sd"), compose_config("method=fedmho_sd", "method.student.kl.weight=0")
    assert ["classifiers" in method_needs(cfg) for cfg in held] == [True, False]
    assert "classifiers" not in method_needs(compose_config("method=fedmho_sd", "method/init=fresh"))


def test_a_term_without_weight_asks_nothing():
    def asked(*overrides):
        cfg = compose_config("method=dense", *overrides)
        return asking({"method": cfg.method, "evaluate": {"ensembles": {}}}, "statistics")

    assert asked() == ["method.objective.bn"]
    assert asked("method.objective.bn.weight=0") == []
