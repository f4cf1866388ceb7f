"""The server's side of the Flower app: one question to every client, and one model of what they answer."""

import json
import shlex
import time
from collections.abc import Iterable
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict
from flwr.serverapp import Grid, ServerApp

import oneshot_fl
from oneshot_fl.config.record import SUMMARY
from oneshot_fl.config.serving import entrance_of

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Ask, keep what comes in time, aggregate; `out` gets what `oneshot-fl aggregate` leaves, uploads included."""
    given = context.run_config
    out = Path(str(given["out"]))
    if not out.is_absolute():
        raise ValueError(f"out={out}: must be a whole path: Flower runs this wherever the SuperLink was started")
    if (out / SUMMARY).exists():  # `flwr run` does not say whether a run failed: whether a result is there has to
        raise ValueError(f"out={out}: holds the result of an earlier run; choose another folder, or move that away")
    settings = shlex.split(str(given["server-settings"]))
    entrance_of(settings)  # what is wrong with one is told before anybody trains
    test = str(given["test"]) or None
    if test and not Path(test).is_dir():
        raise ValueError(f"test={test}: there is no such folder here, where the SuperLink was started")
    nodes = come(grid, int(given["clients"]), float(given["wait"]))
    asked = [Message(RecordDict(), message_type=MessageType.TRAIN, dst_node_id=node) for node in nodes]
    uploads = out / f"uploads-{context.run_id}"
    uploads.mkdir(parents=True)
    told = dict.fromkeys(map(str, nodes), "did not answer")
    kept = keep(grid.send_and_receive(asked, timeout=float(given["timeout"])), uploads)
    told |= {node: what for node, what in kept.items() if node in told}  # of the dead the SuperLink tells, as node 1
    (out / "nodes.json").write_text(json.dumps(told, indent=1))
    oneshot_fl.aggregate(uploads, *settings, folder=out, test=test)


def come(grid: Grid, wanted: int, seconds: float) -> list[int]:
    """The nodes that are there, once there are so many of them or the time is over.

    Raises:
        ValueError: there are more, so that nobody can say whose models are wanted.
    """
    end = time.monotonic() + seconds
    while len(nodes := sorted(grid.get_node_ids())) < wanted and time.monotonic() < end:
        time.sleep(0.5)
    if len(nodes) > wanted:
        raise ValueError(
            f"clients={wanted}: {len(nodes)} clients are connected; set clients to {len(nodes)}, or let only the "
            f"{wanted} of this federation connect"
        )
    return nodes


def keep(replies: Iterable[Message], folder: Path) -> dict[str, str]:
    """Write what was sent into `folder` as it is: the gate of the aggregation judges it.

    Returns:
        What became of each node that answered: its file, or why there is none. Files are named by the number that the
        client says it has, and by its node, so that nobody overwrites another's.
    """
    told: dict[str, str] = {}
    for reply in replies:
        node = str(reply.metadata.src_node_id)
        if reply.has_error():
            told.setdefault(node, f"failed: {reply.error.reason}"[:1000])
        elif (sent := upload_of(reply.content)) is None:
            told.setdefault(node, "sent no upload")
        elif node not in told:
            number, file = sent
            told[node] = f"{number:04d}-{node}.safetensors"
            (folder / told[node]).write_bytes(file)
    return told


def upload_of(content: RecordDict) -> tuple[int, bytes] | None:
    """The client's number and its file, where the reply has them; nothing is decoded."""
    record, client = content.get("upload"), content.get("client")
    if not isinstance(record, ArrayRecord) or not isinstance(client, ConfigRecord) or "file" not in record:
        return None
    number = client.get("number")
    known = isinstance(number, int) and 0 <= number <= 9999
    return (number if known else 9999), record["file"].data
