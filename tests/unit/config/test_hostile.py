"""An attack that would hit fewer clients than it says, or nobody, ends before training with one line."""

import pytest

from oneshot_fl.config.checks import check
from oneshot_fl.errors import OneshotError
from tests.composing import compose_config

VAES = ("clients=all_cvae", "method=fedcvae_ens", "cvae=fedcvae")
HALF = ("clients=half_cvae", "method=dense")
MIXED = ("model=mixed", "model.names=[cnn2,lenet5]", "partition.clients=5")


class Own:
    """An attack that counts its clients by a word."""

    def __init__(self, *, clients: str) -> None:
        self.clients = clients


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (["attack=sign_flip", "attack.clients=6"], "^attack.clients=6: must be at most partition.clients=5$"),
        (["attack=label_flip", "attack.clients=4", "partition.clients=3"], "at most partition.clients=3$"),
        ([*VAES, "attack=sign_flip"], "^attack.clients=1: attack=sign_flip .* and 0 of .*attack=label_flip"),
        ([*HALF, "attack=copycat", "attack.clients=5"], "^attack.clients=5: attack=copycat .* and 2 of the clients"),
        ([*HALF, "attack=copycat", "attack.clients=2"], "^attack.clients=2: attack=copycat copies an honest client's"),
        ([*MIXED, "attack=copycat", "attack.clients=4"], "no honest one has .* architecture, lenet5; lower it"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_fewer_clients_than_are_to_be_hostile_are_refused(overrides, says):
    with pytest.raises(OneshotError, match=says):
        check(compose_config(*overrides))


@pytest.mark.parametrize(
    "overrides",
    [
        ["attack=sign_flip", "attack.clients=5"],
        ["attack=sign_flip", "attack.clients=0", *VAES],
        [*HALF, "attack=copycat", "attack.clients=1"],
        [*HALF, "attack=sign_flip", "attack.clients=2"],
        [*MIXED, "attack=copycat", "attack.clients=3"],
        [*VAES, "attack=none"],
        [*VAES, "attack=label_flip", "attack.clients=5"],
        [*VAES, f"+attack._target_={__name__}.Own", "+attack.clients=all"],
        ["attack=none"],
    ],
    ids=" ".join,
)
def test_as_many_as_there_are_may_be_hostile(overrides):
    check(compose_config(*overrides))
