from types import SimpleNamespace

import torch

from oneshot_fl.artifacts import Spent
from oneshot_fl.ledger import Cost
from oneshot_fl.reporting.cost import ledger_of_run
from tests.parts import SMALL


def _linear(inputs=64):
    return torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(inputs, 3, bias=False))


def _client(seconds, from_store):
    return SimpleNamespace(cost=Cost(seconds, macs=10), from_store=from_store, upload=SimpleNamespace(model=_linear()))


def _result(guidance=None):
    data = SimpleNamespace(spec=SMALL, test_images=torch.zeros(7, 1, 8, 8, dtype=torch.uint8))
    return SimpleNamespace(
        clients=[_client(1.0, True), _client(2.0, False)],
        guidance=guidance,
        recitals=None,
        server=SimpleNamespace(spent=Spent(Cost(5.0, peak_host_bytes=9), 1, 1), model=_linear()),
        given=SimpleNamespace(uploads=SimpleNamespace(models=[_linear(), _linear()])),
        data=data,
    )


def test_one_entry_for_every_phase_over_all_exchanges():
    guidance = SimpleNamespace(spent=Spent(Cost(3.0, cpu_joules=None), 2, 0))
    results = [_result(), _result(guidance)]
    ledger = ledger_of_run(results, prepare=Cost(0.5), evaluate=Cost(0.25))
    assert list(ledger) == ["prepare", "clients", "stratify", "recite", "distill", "evaluate"]
    assert [entry["seconds"] for entry in ledger.values()] == [0.5, 6.0, 3.0, 0.0, 10.0, 0.25]
    assert [(entry["results"], entry["from_store"]) for entry in ledger.values()] == [
        *((0, 0), (4, 2), (2, 0), (0, 0), (2, 2), (0, 0))
    ]
    assert ledger["stratify"]["cpu_joules"] is None
    assert ledger["distill"]["peak_host_bytes"] == 9


def test_clients_send_at_every_exchange_and_receive_at_all_but_the_first():
    model = 4 * 64 * 3
    once, twice = (ledger_of_run([_result()] * n, prepare=Cost(), evaluate=Cost())["clients"] for n in (1, 2))
    assert (once["upload_bytes"], once["download_bytes"]) == (2 * model, 0)
    assert (twice["upload_bytes"], twice["download_bytes"]) == (4 * model, 2 * model)
    assert (once["macs"], twice["macs"]) == (20, 40)


def test_the_test_pass_asks_every_client_and_the_server_once_an_image():
    assert ledger_of_run([_result()], prepare=Cost(), evaluate=Cost())["evaluate"]["macs"] == 7 * 3 * 64 * 3
