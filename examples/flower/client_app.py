"""The clients' side of the Flower app: each trains on its own folder of images and replies with its upload."""

import csv
import shlex
from pathlib import Path
from tempfile import TemporaryDirectory

from flwr.app import Array, ArrayRecord, ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

import oneshot_fl

app = ClientApp()


@app.train()
def train(message: Message, context: Context) -> Message:
    """Train, and send the upload: the very bytes of the file that `oneshot-fl aggregate` reads."""
    given = context.run_config
    number, folder = place(context)
    names = next(csv.reader([str(given["classes"])], skipinitialspace=True), [])  # a name with a comma is in quotes
    with TemporaryDirectory() as scratch:
        out = Path(scratch, "upload.safetensors")
        oneshot_fl.train_client(
            folder,
            f"partition.clients={given['clients']}",
            *shlex.split(str(given["client-settings"])),
            out=out,
            number=number,
            classes=[name for name in map(str.strip, names) if name],
            counts=given["counts"] is True,  # Flower takes any type, and what is not asked for stays here
        )
        file = out.read_bytes()
    upload = ArrayRecord({"file": Array("uint8", (len(file),), "safetensors", file)})
    return Message(RecordDict({"upload": upload, "client": ConfigRecord({"number": number})}), reply_to=message)


def place(context: Context) -> tuple[int, Path]:
    """The client's number and its images: as its owner set them (`--node-config`), or of a simulated node.

    Raises:
        ValueError: the owner left one out, or the number is none.
    """
    node = context.node_config
    if "partition-id" in node and "folder" not in node:
        number = int(node["partition-id"])
        return number, Path(str(context.run_config["folders"]), f"client-{number}")
    if missing := [key for key in ("folder", "number") if key not in node]:
        raise ValueError(f"--node-config: has no {' and no '.join(missing)}; give 'folder=\"/data/images\" number=0'")
    if type(node["number"]) is not int:  # Flower takes any type
        raise ValueError(f"--node-config: number={node['number']!r}: must be a whole number from 0, without quotes")
    return node["number"], Path(str(node["folder"]))
