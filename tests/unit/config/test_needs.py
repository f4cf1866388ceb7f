"""What a method needs and who cannot give it is told before training."""

from copy import deepcopy

import pytest
from omegaconf import DictConfig, open_dict

from oneshot_fl.config.checks import check
from oneshot_fl.config.compose import choice
from oneshot_fl.config.needs import asking, method_needs, source_needs
from oneshot_fl.errors import OneshotError
from tests.composing import compose_config


@pytest.mark.parametrize(
    ("overrides", "line"),
    [
        (["method=fedmho"], r"^method=fedmho: draws its images from clients' decoders, .*clients=all_cvae$"),
        (["method=fedmho", "communication_rounds=2"], r"clients=all_cvae and communication_rounds=1$"),
        (["method=fedavg", "server_model=lenet5"], r"choose one \(model=cnn2 server_model=null\) or a method that"),
        (["method=dense", "clients=all_cvae"], r"^method=dense: needs clients that upload classifiers"),
        (["method=fedavg", "clients=all_cvae"], r"^method=fedavg: needs clients that upload classifiers"),
        (["method=dense", "clients=all_cvae"], r"or a method that works on decoders, for instance method=fedcvae_ens$"),
        (
            ["method=fedcvae_ens", "clients=all_cvae", "cvae=fedcvae", "hearing=witnesses"],
            r"^hearing: needs clients that upload classifiers, and none does; choose hearing=none",
        ),
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


def _drawing(source: str, *overrides: str, besides: bool = True) -> DictConfig:
    """FEDCVAE-ENS with another source: beside the decoders that it draws from, or in their place."""
    cfg = deepcopy(compose_config("method=fedcvae_ens", "clients=all_cvae", "cvae=fedcvae", *overrides))
    with open_dict(cfg):
        drawn = choice("method/source", source)
        cfg.method.source = {"decoders": cfg.method.source, "drawn": drawn} if besides else drawn
    return cfg


@pytest.mark.parametrize(
    ("source", "besides", "key"),
    [
        ("strokes", True, r"method\.source\.drawn"),
        ("proxy", True, r"method\.source\.drawn"),
        ("textures", True, r"method\.source\.drawn"),
        ("strokes", False, r"method\.source"),
    ],
)
def test_images_that_no_client_can_name_are_told_with_their_source(source, besides, key):
    line = rf"^{key}: makes images without labels, and no client uploads a classifier .* choose clients=half_cvae, or"
    with pytest.raises(OneshotError, match=line):
        check(_drawing(source, "proxy=noise", besides=besides))


def test_images_that_a_classifier_can_name_are_welcome_and_so_are_none():
    check(_drawing("strokes", "clients=half_cvae"))
    grey = _drawing("textures")
    grey.method.source.drawn.colour_only = True
    check(grey)


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
