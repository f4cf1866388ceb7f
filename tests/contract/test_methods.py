"""Every method in conf/ runs end to end: equal and mixed architectures, both kinds of clients, many of unequal size."""

import pytest

from oneshot_fl.config.checks import check
from oneshot_fl.config.compose import build
from oneshot_fl.errors import OneshotError
from oneshot_fl.pipeline import run
from tests.conftest import TINY, clients_of, compose_config
from tests.contract.test_slots import choices

METHODS = choices("method", 9)
SETTINGS = {
    "same": ("model=cnn2",),
    "mixed": ("model=mixed", "model.names=[cnn2,lenet5,cnn2_plain]", "server_model=cnn2"),
    "voting": ("model=mixed", "model.names=[cnn2,lenet5]", "++method.per_architecture=true"),
    "weak": ("model=cnn2_plain", "partition.clients=6"),
    "many": ("partition=lognormal", "partition.clients=20", "partition.sigma=0.8", "model=cnn2_torch"),
}


@pytest.fixture(scope="module")
def store(tmp_path_factory):
    """One for all methods, as in a sweep: the clients are trained once."""
    return tmp_path_factory.mktemp("store")


@pytest.mark.parametrize("setting", SETTINGS)
@pytest.mark.parametrize("method", METHODS)
def test_a_method_runs_or_says_why_not(method, setting, store, tmp_path):
    cfg = compose_config(
        *TINY,
        "distill.rounds=1",
        "proxy.samples=64",
        f"store={store}",
        f"method={method}",
        *SETTINGS[setting],
        *(("clients=half_cvae",) if setting == "weak" else clients_of(method)),
    )
    needs = build(cfg.method.init).needs
    if "same_architecture" in needs and (setting == "mixed" or (setting == "voting" and "chain" in needs)):
        with pytest.raises(OneshotError, match=f"method={method}: averaging needs one architecture"):
            check(cfg)
        return
    check(cfg)
    summary = run(cfg, tmp_path / "run")
    clients = summary["clients"]
    assert len(clients) == cfg.partition.clients
    for client in clients:
        assert (client["kind"] == "cvae") is (client["accuracy"] is None)
        assert client["accuracy"] is None or 0 <= client["accuracy"] <= 1
    assert 0 <= summary["server"]["accuracy_last"] <= 1
    voting = "cnn2+lenet5" if any(client["kind"] == "classifier" for client in clients) else "cnn2"
    names = {"voting": voting, "weak": "cnn2_plain", "many": "cnn2_torch"}
    assert summary["server"]["model"] == names.get(setting, "cnn2")
    if setting == "weak":
        assert [client["kind"] for client in clients] == ["classifier"] * 3 + ["cvae"] * 3
    assert len(summary["rounds"]) == (0 if cfg.method.source is None else 1)
    if setting == "many":
        assert max(client["samples"] for client in clients) > 3 * min(client["samples"] for client in clients)
