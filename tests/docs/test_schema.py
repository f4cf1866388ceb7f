"""The schema of `summary.json` holds what runs really write."""

import json
from pathlib import Path

import jsonschema
import pytest

import oneshot_fl
from docgen.schema import rows, schema_page
from tests.composing import TINY

SCHEMA = Path(__file__).parents[2] / "docs/reference/summary.schema.json"


@pytest.fixture(scope="module")
def schema():
    return json.loads(SCHEMA.read_text())


@pytest.mark.parametrize(
    "overrides",
    [
        ("method=fedhydra", "evaluate=fidelity", "evaluate.fidelity.epochs=1", "evaluate.fidelity.samples=60"),
        ("method=fedmho", "clients=half_cvae", "method.source.samples=60"),
        (
            *("method=fedavg", "clients=dp", "clients.epochs=1", "model=cnn2_group", "partition.clients=2"),
            *(
                "evaluate=privacy",
                "evaluate.privacy.epochs=1",
                "evaluate.privacy.samples=60",
                "evaluate.privacy.references=2",
            ),
        ),
        ("method=feddf", "proxy.samples=64", "communication_rounds=2"),
    ],
)
def test_a_summary_is_as_the_schema_says(tmp_path, schema, overrides):
    oneshot_fl.run(*TINY, *overrides, f"store={tmp_path / 'store'}", folder=tmp_path / "run")
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    jsonschema.validate(summary, schema)


def test_every_key_is_described(schema):
    described = {key for key, _, _ in rows(schema)}
    assert {"method", "server.accuracy_last", "clients[].accuracy", "ensemble.rows"} <= described
    top = {key.split(".")[0].removesuffix("[]") for key in described}
    assert top == set(schema["properties"])


def test_the_page_has_a_row_for_each_key(schema):
    page = schema_page(schema, "file.json")
    assert all(f"| `{key}` | {kind} | {about} |" in page for key, kind, about in rows(schema))
    assert "| `ensemble.rows` | object |" in page
