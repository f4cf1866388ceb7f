"""Summaries and traces of runs as files, with no more in them than tables read."""

import json
import os

SETTINGS = {
    "data": {"name": "image_folder", "root": "east", "size": 28},
    "partition": {"name": "iid", "clients": 5},
    "proxy": {"name": "noise", "samples": 100},
    "method": {"name": "fedavg", "source": None},
}
RECORD = {
    **{"method": "fedavg", "changed": {}, "data": "image_folder", "budget": "demo", "study": "fedavg", "seed": 0},
    **{"models": {"clients": ["cnn2"] * 5, "server": "cnn2"}, "settings": SETTINGS, "overrides": []},
}
RESULT = {"server": {"accuracy_last": 0.5}, "data_sha256": "1", "rounds": []}


def write_record(path, *, at=None, **changes):
    """One file; `at` is its time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({**RECORD, **changes}))
    if at is not None:
        os.utime(path, (at, at))


def write_summary(folder, **changes):
    """That of a finished run."""
    write_record(folder / "summary.json", **{**RESULT, **changes})
