import json
import threading
import time

import pytest
import torch
from torch import nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.store import Artifact, Store, fingerprint, load_model


def _made(value: float = 1.0) -> Artifact:
    return Artifact({"w": torch.full((2,), value)}, {"note": "made"})


def test_made_once_and_loaded_with_tensors_facts_key_and_seconds(tmp_path):
    store, calls = Store(tmp_path), []

    def make(work):
        calls.append(work)
        return _made()

    first, second = (store.get_or_make("clients", {"a": 1}, make) for _ in range(2))
    assert len(calls) == 1
    assert torch.equal(second.tensors["w"], torch.ones(2))
    assert second.facts == {"note": "made"}
    assert (first.key, first.seconds) == (second.key, second.seconds)


def test_inputs_phase_and_context_all_enter_the_key(tmp_path):
    stores = [Store(tmp_path), Store(tmp_path, {"device": "cuda"})]
    keys = {
        store.get_or_make(phase, {"a": value}, lambda _: _made()).key
        for store in stores
        for phase in ("clients", "distill")
        for value in (1, 2)
    }
    assert len(keys) == 8
    assert fingerprint({"a": 1, "b": 2}) == fingerprint({"b": 2, "a": 1})


def test_a_failed_making_leaves_its_work_folder_and_no_artifact(tmp_path):
    store = Store(tmp_path)

    def half(work):
        (work / "checkpoint").write_text("half")
        raise RuntimeError("killed")

    with pytest.raises(RuntimeError):
        store.get_or_make("distill", {}, half)

    def rest(work):
        assert (work / "checkpoint").read_text() == "half"
        return _made()

    artifact = store.get_or_make("distill", {}, rest)
    assert sorted(path.name for path in (tmp_path / "distill").iterdir()) == [artifact.key, f"{artifact.key}.lock"]


def test_two_threads_that_want_the_same_make_it_once(tmp_path):
    made = []

    def make(_):
        time.sleep(0.2)
        made.append(1)
        return _made()

    threads = [threading.Thread(target=Store(tmp_path).get_or_make, args=("clients", {}, make)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert made == [1]


@pytest.mark.parametrize("damage", ["flip", "truncate", "manifest"])
def test_a_damaged_artifact_is_named_not_used(tmp_path, damage):
    store = Store(tmp_path)
    folder = tmp_path / "clients" / store.get_or_make("clients", {}, lambda _: _made()).key
    tensors = folder / "tensors.safetensors"
    content = bytearray(tensors.read_bytes())
    if damage == "flip":
        content[-1] ^= 1
        tensors.write_bytes(content)
    elif damage == "truncate":
        tensors.write_bytes(content[:-3])
    else:
        (folder / "manifest.json").write_text("{")
    with pytest.raises(OneshotError, match=rf"{folder}.*remove"):
        store.get_or_make("clients", {}, lambda _: _made())


def test_the_manifest_tells_what_the_artifact_was_made_from(tmp_path):
    store = Store(tmp_path, {"device": "cpu"})
    key = store.get_or_make("clients", {"epochs": 3}, lambda _: _made()).key
    manifest = json.loads((tmp_path / "clients" / key / "manifest.json").read_text())
    assert manifest["inputs"] == {"epochs": 3}
    assert manifest["context"] == {"device": "cpu"}


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (lambda s: s.pop("bias"), "bias is missing"),
        (lambda s: s.update(extra=torch.zeros(1)), "extra is unexpected"),
        (lambda s: s.update(weight=torch.zeros(3, 2)), r"weight is torch.float32 \(3, 2\), expected .* \(2, 3\)"),
        (lambda s: s.update(weight=torch.zeros(2, 3, dtype=torch.float64)), "float64"),
        (lambda s: s["bias"].fill_(float("nan")), "bias holds a value that is not finite"),
    ],
)
def test_an_upload_that_does_not_fit_is_refused_by_name(change, says):
    state = {name: tensor.clone() for name, tensor in nn.Linear(3, 2).state_dict().items()}
    change(state)
    with pytest.raises(OneshotError, match=f"client 4.*{says}"):
        load_model(nn.Linear(3, 2), state, "client 4")
