"""The server's side of the Flower app: one question to every client, and one model of what they answer."""

import json
import shlex
import time
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path

from flwr.app import ArrayRecord, ConfigRecord, Context, Message, MessageType, RecordDict, UserConfig
from flwr.serverapp import Grid, ServerApp

import oneshot_fl
from oneshot_fl.aggregation.run import known_before
from oneshot_fl.config.record import SUMMARY
from oneshot_fl.errors import OneshotError
from oneshot_fl.job import alone_in

app = ServerApp()


@app.main()
def main(grid: Grid, context: Context) -> None:
    """Ask, keep what comes in time, aggregate; `out` gets what `oneshot-fl aggregate` leaves, uploads included."""
    given = context.run_config
    out = Path(str(given["out"]))
    if not out.is_absolute():
        raise ValueError(f"out={out}: must be a whole path: Flower runs this wherever the SuperLink was started")
    settings = shlex.split(str(given["server-settings"]))
    test = checked(given, settings)
    with alone_in(out, wait=False):
        # `flwr run` does not say whether a run failed: whether a result is there has to
        if (out / SUMMARY).exists():
            raise ValueError(f"out={out}: holds the result of an earlier run; choose another folder, or move it away")
        nodes = come(grid, int(given["clients"]), float(given["wait"]))
        asked = [Message(RecordDict(), message_type=MessageType.TRAIN, dst_node_id=node) for node in nodes]
        uploads = out / f"uploads-{context.run_id}"
        uploads.mkdir()
        told = dict.fromkeys(map(str, nodes), "did not answer")
        kept = keep(grid.send_and_receive(asked, timeout=float(given["timeout"])), uploads)
        told |= {node: what for node, what in kept.items() if node in told}  # the SuperLink, node 1, tells of the dead
        (out / "nodes.json").write_text(json.dumps(told, indent=1))
        tell_of_lost(told, uploads)
        tell_of_numbers(kept, int(given["clients"]))
        aggregate(uploads, settings, out, test)


def checked(given: UserConfig, settings: Sequence[str]) -> Path | None:
    """The test set's folder, where there is one.

    Raises:
        ValueError: what is wrong with the server's settings, before anybody trains; or an `OneshotError` about them.
    """
    if type(given["counts"]) is not bool:  # Flower takes any type; `"false"` would be true
        raise ValueError(f"counts={given['counts']!r}: must be true or false, without quotes")
    test = Path(str(given["test"])) if given["test"] else None
    if test and not test.is_dir():
        raise ValueError(f"test={test}: there is no such folder here, where the SuperLink was started")
    known_before(settings, test)
    return test


def come(grid: Grid, wanted: int, seconds: float) -> list[int]:
    """The nodes that are there, once there are so many of them or the time is over.

    Raises:
        ValueError: there are more, so that nobody can say whose models are wanted; or none.
    """
    end = time.monotonic() + seconds
    while len(nodes := sorted(grid.get_node_ids())) != wanted and time.monotonic() < end:
        time.sleep(0.5)
    if len(nodes) > wanted:
        raise ValueError(
            f"clients={wanted}: {len(nodes)} clients are connected; set clients to {len(nodes)}, or let only the "
            f"{wanted} of this federation connect (one that was killed and begun again counts twice for a minute)"
        )
    if not nodes:
        raise ValueError(f"no client is connected to this SuperLink after wait={seconds:g} seconds")
    if len(nodes) < wanted:
        print(f"clients={wanted}: {len(nodes)} are connected after wait={seconds:g} seconds; they go on", flush=True)
    return nodes


def tell_of_lost(told: Mapping[str, str], uploads: Path) -> None:
    """A line for each node that sent no upload.

    Raises:
        ValueError: none of them did.
    """
    files = {file.name for file in uploads.iterdir()}
    lost = [f"node {node}: {what}" for node, what in told.items() if what not in files]
    if not files:
        raise ValueError(f"no client sent an upload; {'; '.join(lost)}")
    for line in lost:
        print(line, flush=True)


def tell_of_numbers(kept: Mapping[str, str], clients: int) -> None:
    """A line for each number that several nodes say they have, and for each that none of the clients should have."""
    nodes: dict[int, list[str]] = {}
    for node, file in sorted(kept.items()):
        if file.endswith(f"-{node}.safetensors"):
            nodes.setdefault(int(file.partition("-")[0]), []).append(node)
    for number, owners in sorted(nodes.items()):
        if len(owners) > 1 or number >= clients:
            print(
                f"number={number}: is that of node {' and of node '.join(owners)}; to be equal to a run each of the "
                f"{clients} clients needs a number of its own in its --node-config, from 0 to {clients - 1}",
                flush=True,
            )


def aggregate(uploads: Path, settings: Sequence[str], out: Path, test: Path | None) -> None:
    """One model of what has come; a test set that does not fit that costs none (all who know a class may be lost)."""
    try:
        oneshot_fl.aggregate(uploads, *settings, folder=out, test=test)
    except OneshotError as error:
        if test is None:
            raise
        print(f"{error}\nonce more, without a test", flush=True)
        oneshot_fl.aggregate(uploads, *settings, folder=out)


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
