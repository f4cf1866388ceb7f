"""A model out of the folder of a run: the architecture from its configuration, the weights from its file."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest
import torch
import yaml
from omegaconf import OmegaConf
from safetensors.torch import save_file
from torch import nn

from oneshot_fl.config.bind import bind
from oneshot_fl.config.compose import plain
from oneshot_fl.config.saved import LARGEST, saved_model
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.classifiers import cnn2, lenet5
from oneshot_fl.models.per_architecture import together
from tests.composing import compose_config
from tests.parts import SMALL


def _saved(folder: Path, model: nn.Module, *overrides: str) -> Path:
    """What of a finished run's folder a model is made of."""
    (folder / "summary.json").write_text(json.dumps({"data_spec": {**asdict(SMALL), "class_names": ["a", "b", "c"]}}))
    (folder / "config.yaml").write_text(yaml.safe_dump(plain(compose_config(*overrides)), sort_keys=False))
    save_file(model.state_dict(), folder / "server.safetensors")
    return folder


def test_it_answers_as_the_one_that_was_saved_and_is_in_evaluation_mode(tmp_path):
    own = cnn2(SMALL, norm=True).eval()
    model, told = saved_model(_saved(tmp_path, own))
    assert (told.spec, told.class_names) == (SMALL, ("a", "b", "c"))
    x = torch.rand(4, 1, 8, 8)
    assert torch.equal(model(x), own(x))
    assert not any(module.training for module in model.modules())


def test_the_servers_architecture_is_the_one_that_was_chosen(tmp_path):
    own = lenet5(SMALL).eval()
    model, _ = saved_model(_saved(tmp_path, own, "server_model=lenet5"))
    x = torch.rand(4, 1, 8, 8)
    assert torch.equal(model(x), own(x))


def test_a_model_of_each_architecture_is_restored_as_one_that_votes(tmp_path):
    own = together([cnn2(SMALL, norm=True), lenet5(SMALL)]).eval()
    model, _ = saved_model(_saved(tmp_path, own, "method=fedavg", "model=mixed", "model.names=[cnn2,lenet5]"))
    x = torch.rand(4, 1, 8, 8)
    assert torch.equal(model(x), own(x))


@pytest.mark.parametrize("missing", ["summary.json", "config.yaml", "server.safetensors"])
def test_a_folder_without_one_of_the_files_is_no_finished_run(tmp_path, missing):
    (_saved(tmp_path, lenet5(SMALL), "server_model=lenet5") / missing).unlink()
    with pytest.raises(OneshotError, match=rf"holds no finished run .*{missing}"):
        saved_model(tmp_path)


def test_of_a_sweeps_folder_a_job_is_named(tmp_path):
    (tmp_path / "1-seed=1").mkdir()
    job = _saved(tmp_path / "1-seed=1", lenet5(SMALL), "server_model=lenet5")
    with pytest.raises(OneshotError, match=rf"holds no finished run .*, for instance {job}$"):
        saved_model(tmp_path)


@pytest.mark.parametrize(
    ("file", "content"),
    [
        ("summary.json", "{"),
        ("summary.json", "{}"),
        ("summary.json", "[" * 100_000),
        ("server.safetensors", "no tensors"),
        ("config.yaml", "model: ["),
        ("config.yaml", "model:\n\t- name: {"),
        ("config.yaml", "model: !!python/object/apply:os.getcwd []"),
        ("config.yaml", "\0"),
    ],
)
def test_a_broken_file_is_no_finished_run(tmp_path, file, content):
    (_saved(tmp_path, lenet5(SMALL), "server_model=lenet5") / file).write_text(content)
    with pytest.raises(OneshotError, match="holds no finished run") as caught:
        saved_model(tmp_path)
    assert "\n" not in str(caught.value)


CHOICES = "method: {}\npartition: {clients: 2}\ndata: {name: digits}\nserver_model: null\n"
NO_CONFIGURATION = {
    "nothing": "",
    "a list": "- a\n",
    "no method": "server_model: null\n",
    "a server's model that is a number": "server_model: 3\n",
    "a model that is a text": CHOICES + "model: cnn2\n",
    "a model that is null": CHOICES + "model: null\n",
    "a model without a name": CHOICES + "model: {norm: true}\n",
    "a reference to nothing": CHOICES + "model: {name: cnn2, norm: '${nowhere}'}\n",
}
LEVELS = range(1, 8)
"""Of values that are two of the level before each; no memory holds the last of forty."""
UNFOLDING = {
    "aliases": "a0: &a0 [x, x]\n" + "".join(f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}]\n" for n in LEVELS),
    "merged keys": "a0: &a0 {k: x}\n" + "".join(f"a{n}: &a{n} {{<<: [*a{n - 1}, *a{n - 1}]}}\n" for n in LEVELS),
    "references": "a0: xx\n" + "".join(f"a{n}: ${{a{n - 1}}}${{a{n - 1}}}\n" for n in LEVELS),
}


@pytest.mark.parametrize("content", NO_CONFIGURATION.values(), ids=NO_CONFIGURATION)
def test_what_is_no_configuration_of_a_run_is_called_so(tmp_path, content):
    (_saved(tmp_path, lenet5(SMALL)) / "config.yaml").write_text(content)
    with pytest.raises(OneshotError, match=r"config\.yaml: is no configuration of a run \(") as caught:
        saved_model(tmp_path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("content", UNFOLDING.values(), ids=UNFOLDING)
def test_a_configuration_that_unfolds_to_more_than_it_says_is_refused_as_it_stands(tmp_path, content):
    model = "model: {name: cnn2, norm: '${a7}'}\n"
    (_saved(tmp_path, lenet5(SMALL)) / "config.yaml").write_text(content + CHOICES + model)
    with pytest.raises(OneshotError, match=r"config\.yaml: is no .* \(line 2: (\*a0|.*{a0}) stands for another value"):
        saved_model(tmp_path)


def test_more_clients_than_a_run_may_have_are_given_no_architectures(tmp_path):
    content = CHOICES.replace("clients: 2", "clients: 10001") + "model: {name: cnn2}\n"
    (_saved(tmp_path, lenet5(SMALL)) / "config.yaml").write_text(content)
    with pytest.raises(OneshotError, match=r"config\.yaml: partition\.clients=10001: must be .* at most 10,000$"):
        saved_model(tmp_path)


def test_a_configuration_is_read_up_to_a_size(tmp_path):
    own = lenet5(SMALL).eval()
    path = _saved(tmp_path, own, "server_model=lenet5") / "config.yaml"
    path.write_text(path.read_text() + "#" * (LARGEST - path.stat().st_size))
    assert type(saved_model(tmp_path)[0]) is type(own)
    path.write_text(path.read_text() + "#")
    with pytest.raises(OneshotError, match=r"config\.yaml: is no configuration of a run \(larger than 50,000 bytes\)$"):
        saved_model(tmp_path)


@pytest.mark.parametrize(
    "overrides",
    [(), ("method=fedmho", "clients=half_cvae"), ("method=fedchorus", "model=mixed", "model.names=[cnn2,lenet5]")],
)
def test_what_runs_write_stands_for_nothing_else(overrides):
    written = yaml.safe_dump(dict(bind(compose_config(*overrides)).config), sort_keys=False)
    assert not any(isinstance(event, yaml.AliasEvent) for event in yaml.parse(written, Loader=yaml.SafeLoader))
    assert "${" not in written
    assert len(written) < LARGEST / 5


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("channels", "grey"),
        ("size", None),
        ("size", 10**9),
        ("classes", 4),
        ("mean", [float("nan")]),
        ("mean", [0.1, 0.2]),
        ("std", [0]),
        ("class_names", [1, 2, 3]),
        ("class_names", ["a", "a", "b"]),
    ],
)
def test_images_that_cannot_be_are_named(tmp_path, name, value):
    path = _saved(tmp_path, lenet5(SMALL), "server_model=lenet5") / "summary.json"
    summary = json.loads(path.read_text())
    path.write_text(json.dumps({"data_spec": summary["data_spec"] | {name: value}}))
    with pytest.raises(OneshotError, match=rf"summary\.json: data_spec\.{name}=.*: must be ") as caught:
        saved_model(tmp_path)
    assert "\n" not in str(caught.value)


def test_weights_of_another_architecture_are_refused(tmp_path):
    _saved(tmp_path, lenet5(SMALL), "server_model=cnn2")
    with pytest.raises(OneshotError, match=r"server\.safetensors"):
        saved_model(tmp_path)


@pytest.mark.parametrize("inside", [False, True], ids=["as the architecture", "inside of it"])
def test_a_folder_of_somebody_else_runs_none_of_its_own_code(tmp_path, inside):
    marker = tmp_path / "ran"
    theirs = {"_target_": "os.mkdir", "path": str(marker)}
    ours = {"_target_": "oneshot_fl.models.classifiers.cnn2", "name": "m", "norm": theirs}
    folder = _saved(tmp_path, cnn2(SMALL, norm=True))
    cfg = OmegaConf.load(folder / "config.yaml")
    cfg.model = ours if inside else {"name": "m", **theirs}
    OmegaConf.save(cfg, folder / "config.yaml")
    with pytest.raises(OneshotError, match=r"server.safetensors: architecture.norm|os.mkdir.*not allowed"):
        saved_model(folder)
    assert not marker.exists()
