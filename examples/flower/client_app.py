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
    """The client's number and its images: as its owner set them (`--node-config`), or of a simulated node."""
    node = context.node_config
    if "folder" in node:
        return int(node["number"]), Path(str(node["folder"]))
    number = int(node["partition-id"])
    return number, Path(str(context.run_config["folders"]), f"client-{number}")
