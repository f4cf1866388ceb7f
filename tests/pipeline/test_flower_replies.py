"""Clients that fail, send rubbish, or send twice cost nobody else anything: Flower's messages, without its network."""

import json
import sys
from pathlib import Path
from types import ModuleType

import pytest
import torch
from safetensors.torch import save

from oneshot_fl.aggregation.federation import federation_of
from oneshot_fl.aggregation.found import found_in
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.seeds import seeded
from tests.parts import SMALL
from tests.pipeline.flower import APP, needs_flower

pytestmark = needs_flower
TOLD = {
    "format": 1,
    "kind": "classifier",
    "architectures": [{"name": "cnn2"}],
    "data": {"channels": 1, "size": 8, "mean": [0.5], "std": [0.5]},
    "class_names": ["a", "b", "c"],
}


@pytest.fixture
def server(monkeypatch) -> ModuleType:
    """The app's server side."""
    monkeypatch.syspath_prepend(str(APP))
    monkeypatch.delitem(sys.modules, "server_app", raising=False)
    import server_app

    return server_app


def _upload(seed: int) -> bytes:
    with seeded(seed, "upload"):
        state = cnn2(SMALL, norm=True).state_dict()
    return save({name: torch.clone(each) for name, each in state.items()}, {"oneshot_fl": json.dumps(TOLD)})


def _reply(node: int, file: bytes | None, **client: object):
    """What a node sends; None: no upload at all."""
    from flwr.app import Array, ArrayRecord, ConfigRecord, Message, RecordDict

    content = RecordDict({"client": ConfigRecord(client)})
    if file is not None:
        content["upload"] = ArrayRecord({"file": Array("uint8", (len(file),), "safetensors", file)})
    return Message(content=content, metadata=_from(node))


def _from(node: int):
    from flwr.app import Metadata

    return Metadata(
        run_id=1,
        message_id="",
        src_node_id=node,
        dst_node_id=1,
        reply_to_message_id="asked",
        group_id="",
        created_at=0.0,
        ttl=60.0,
        message_type="train",
    )


def _failed(node: int):
    from flwr.app import Error, Message

    return Message(error=Error(2, "OneshotError: client 3 (cnn2): training diverged"), metadata=_from(node))


def test_nobody_loses_anything_by_another_client(server, tmp_path: Path):
    files = [_upload(seed) for seed in range(3)]
    replies = [
        *(_reply(10 + k, file, number=k) for k, file in enumerate(files)),
        _reply(11, _upload(7), number=1),  # again
        _reply(20, files[0], number=0),  # the same from another node
        _reply(21, b"rubbish", number=1),
        _reply(22, files[1][:-9], number="../../../etc/passwd"),
        _reply(23, None, number=2),
        _failed(24),
    ]
    told = server.keep(replies, tmp_path)
    assert told == {
        **{str(10 + k): f"000{k}-{10 + k}.safetensors" for k in range(3)},
        "20": "0000-20.safetensors",
        "21": "0001-21.safetensors",
        "22": "9999-22.safetensors",
        "23": "sent no upload",
        "24": "failed: OneshotError: client 3 (cnn2): training diverged",
    }
    federation = federation_of(found_in(tmp_path))
    assert [member.name for member in federation.members] == [told[str(10 + k)] for k in range(3)]
    for member, seed in zip(federation.members, range(3), strict=True):
        assert (tmp_path / member.name).read_bytes() == _upload(seed)
    reasons = {one.name: one.reason for one in federation.uploads.quarantined}
    assert reasons.keys() == {told[node] for node in ("20", "21", "22")}
    assert reasons[told["20"]] == f"is the same file as {told['10']}"
    assert "no safetensors file" in reasons[told["21"]]
