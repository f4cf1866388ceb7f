"""Methods run end to end, ours and somebody else's: equal and mixed architectures, both kinds of clients, many.

What is expected of a run follows from what the method's parts need, never from its name.
"""

import pytest

from oneshot_fl.config import experiment_of
from oneshot_fl.config.compose import recipe
from oneshot_fl.config.serving import NEVER_MET, entrance_of
from oneshot_fl.errors import OneshotError
from tests.composing import TINY, clients_of, composed, few_images, run_config
from tests.contract.choices import OURS, SLOTS, THEIRS, parts_of, with_a_part_of_their_own

SETTINGS = {
    "same": ("model=cnn2",),
    "mixed": ("model=mixed", "model.names=[cnn2,lenet5,cnn2_plain]", "server_model=cnn2"),
    "voting": ("model=mixed", "model.names=[cnn2,lenet5]", "++method.per_architecture=true"),
    "weak": ("model=cnn2_plain", "partition.clients=6"),
    "many": ("partition=lognormal", "partition.clients=8", "partition.sigma=0.8", "model=cnn2_torch"),
}
RUNS = [
    *((method, "same") for method in THEIRS),  # ours: tests/pipeline/test_end_to_end.py
    *((method, setting) for setting in SETTINGS if setting != "same" for method in with_a_part_of_their_own()),
]
"""Other settings say nothing new of a method whose parts all stand in others too."""


def test_every_part_is_run():
    parts = [set(parts_of(SLOTS[method])) for method in dict.fromkeys(method for method, _ in RUNS)]
    assert set.union(*parts) == {part for slots in SLOTS.values() for part in parts_of(slots)}
    assert len(with_a_part_of_their_own()) >= 10
    assert len(RUNS) >= 2 + 4 * 10


@pytest.mark.parametrize("method", OURS)
def test_an_upload_is_let_in_where_the_method_makes_something_of_its_kind(method):
    found = experiment_of(composed(f"method={method}", *clients_of(method))).method
    uses = found.uses
    assert uses
    if never := NEVER_MET.keys() & found.needs:
        with pytest.raises(OneshotError, match=f"method={method}: {NEVER_MET[never.pop()]}"):
            entrance_of([f"method={method}"])
        return
    turned_away = {f"{kind}s" for kind in entrance_of([f"method={method}"]).unused}
    assert uses == {"classifiers", "decoders"} - turned_away


@pytest.mark.parametrize(
    ("method", "setting"),
    [pytest.param(*run, marks=pytest.mark.slow) if run[1] == "many" else run for run in RUNS],
)
def test_a_method_runs_or_says_why_not(method, setting, shared_store, tmp_path):
    cfg = composed(
        *TINY,
        "distill.rounds=1",
        f"store={shared_store}",
        f"method={method}",
        *SETTINGS[setting],
        *few_images(method),
        *(("clients=half_cvae",) if setting == "weak" else clients_of(method)),
    )
    needs = recipe(cfg.method.init).needs
    if "same_architecture" in needs and (setting == "mixed" or (setting == "voting" and "chain" in needs)):
        with pytest.raises(OneshotError, match=f"method={method}: averaging needs one architecture"):
            experiment_of(cfg)
        return
    summary = run_config(cfg, tmp_path / "run")
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
