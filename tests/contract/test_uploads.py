"""Both kinds of clients upload what they say, and nothing else."""

import json

import pytest
from safetensors.torch import load_file

from oneshot_fl.config.clients import KINDS
from oneshot_fl.config.compose import architecture, build
from oneshot_fl.data.dataset import DataSpec
from tests.composing import CLIENTS, run_config


@pytest.mark.parametrize("kind", KINDS)
def test_what_leaves_a_client_is_its_classifier_or_its_decoder_and_label_counts(kind, tiny, tmp_path):
    """Everything that a run has of a client afterwards lies in the store: no image, no encoder, no optimiser."""
    cfg = tiny(f"clients.kinds=[{kind}]", "method=fedavg" if kind == "classifier" else "method=fedcvae_ens")
    run_config(cfg, tmp_path / "run")
    folders = list((tmp_path / "store" / "clients").glob("*/"))
    assert len(folders) == CLIENTS
    for folder in folders:
        tensors = load_file(folder / "tensors.safetensors")
        facts = json.loads((folder / "manifest.json").read_text())["facts"]
        model = build(
            cfg.model if kind == "classifier" else architecture("cvae_mlp", "cvae"),
            spec=DataSpec(1, 8, 10, (0.5,), (0.5,)),
        )
        assert set(tensors) == set((model if kind == "classifier" else model.decoder).state_dict())
        assert set(facts) == {"losses"} | ({"label_counts"} if kind == "cvae" else set())
