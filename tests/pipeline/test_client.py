"""A client alone with its folder trains to the model that it has in a run, and packs it as the server reads it."""

from pathlib import Path

import pytest
import torch

import oneshot_fl
from oneshot_fl.config import from_overrides
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.model_file import read_model
from oneshot_fl.phases.clients.train import train_clients
from oneshot_fl.phases.prepare import prepare
from tests.folders import deal, write_digits

HALF = ("clients=half_cvae", "partition.clients=2", "clients.epochs=1", "clients.cvae.epochs=1", "trainer=cpu")
SIZE = ("data.channels=1", "seed=3")
NAMES = [str(digit) for digit in range(10)]


@pytest.fixture
def federation(tmp_path: Path, context):
    """Two clients of a run, one with a VAE: their folders, and what they upload there."""
    write_digits(tmp_path / "digits", every=10)
    data = ("data=image_folder", f"data.root={tmp_path / 'digits'}", f"store={tmp_path / 'store'}")
    experiment = from_overrides(*data, *HALF, *SIZE)[0]()
    given = prepare(experiment.data, experiment.partition, experiment.proxy, device=torch.device("cpu"))
    return deal(tmp_path / "digits", given.indices, tmp_path / "folders"), train_clients(
        given.data, given.indices, experiment.clients, context=context, label_counts=True
    )


def test_a_client_alone_uploads_what_it_uploads_in_a_run(federation, tmp_path):
    folders, clients = federation
    for number, (folder, client) in enumerate(zip(folders, clients, strict=True)):
        out, own = tmp_path / f"{number}.safetensors", (*HALF, *SIZE, f"store={tmp_path / 'other'}")
        sha256 = oneshot_fl.train_client(folder, *own, out=out, number=number, classes=NAMES, counts=True)
        file = read_model(out)
        expected = client.upload.model.state_dict()
        assert file.sha256 == sha256
        assert file.description.kind == {"classifier": "classifier", "cvae": "decoder"}[client.kind]
        assert file.description.samples == client.samples == sum(file.description.label_counts)
        assert list(file.description.label_counts) == client.upload.label_counts.tolist()
        assert file.tensors().keys() == expected.keys()
        assert all(torch.equal(tensor, expected[name]) for name, tensor in file.tensors().items())


def test_uploads_by_any_name_make_the_model_that_their_run_makes(tmp_path, context):
    write_digits(tmp_path / "digits", every=20)
    of_run = ("data=image_folder", f"data.root={tmp_path / 'digits'}", f"store={tmp_path / 'store'}")
    clients = ("partition.clients=2", "clients.epochs=1", *SIZE)
    server = (
        "method=fedchorus",
        "budget=reduced",
        "recite.images=8",
        "recite.steps=2",
        "distill.rounds=1",
        "trainer=cpu",
        "seed=3",
    )
    experiment = from_overrides(*of_run, *clients, *server)[0]()
    given = prepare(experiment.data, experiment.partition, experiment.proxy, device=torch.device("cpu"))
    for number, folder in enumerate(deal(tmp_path / "digits", given.indices, tmp_path / "folders")):
        out = tmp_path / "uploads" / f"{number}-{97 * (3 - number) ** 9}.safetensors"
        own = (*clients, "trainer=cpu", f"store={tmp_path / 'other'}")
        oneshot_fl.train_client(folder, *own, out=out, number=number, classes=NAMES, counts=True)
    others = ("gate=none", "hearing=none", f"store={tmp_path / 'another'}")
    made = oneshot_fl.aggregate(tmp_path / "uploads", *server, *others, folder=tmp_path / "made")
    ran = oneshot_fl.run(*of_run, *clients, *server, "logger=none", "plots.format=none", folder=tmp_path / "run")
    expected = ran.model().state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in made.model().state_dict().items())


def test_classes_are_those_that_there_are_folders_of(tmp_path):
    write_digits(tmp_path / "digits", every=40)
    own = (*HALF, *SIZE, f"store={tmp_path / 'store'}")
    oneshot_fl.train_client(tmp_path / "digits" / "train", *own, out=tmp_path / "a.safetensors")
    told = read_model(tmp_path / "a.safetensors").description
    assert told.class_names == tuple(sorted(path.name for path in (tmp_path / "digits" / "train").iterdir()))
    assert told.label_counts is None


def test_the_uploads_of_a_run_make_the_model_of_the_run(tmp_path):
    tiny = ("clients.epochs=1", "partition.clients=3", "trainer=cpu", f"store={tmp_path / 'store'}", "method=fedavg")
    found = oneshot_fl.uploads(*tiny, folder=tmp_path / "uploads")
    assert [each.file.name for each in found] == [f"client-{k}.safetensors" for k in range(3)]
    assert sorted(index for each in found for index in each.indices.tolist()) == list(range(1437))
    assert [read_model(each.file).description.samples for each in found] == [len(each.indices) for each in found]
    ran = oneshot_fl.run(*tiny, "logger=none", "plots.format=none", folder=tmp_path / "run")
    assert ran.summary["cost"]["clients"]["from_store"] == 3
    others = ("method=fedavg", "trainer=cpu", "logger=none", f"store={tmp_path / 'store'}")
    made = oneshot_fl.aggregate(tmp_path / "uploads", *others, folder=tmp_path / "made")
    expected = ran.model().state_dict()
    assert all(torch.equal(tensor, expected[name]) for name, tensor in made.model().state_dict().items())
    with pytest.raises(OneshotError, match=r"uploads: holds client-0\.safetensors; choose a new or an empty folder"):
        oneshot_fl.uploads(*tiny, folder=tmp_path / "uploads")


def test_the_uploads_of_a_run_are_those_that_its_server_receives(tmp_path):
    attacked = ("attack=nan_weights", "attack.clients=1", "method=fedmho_md", *HALF, f"store={tmp_path / 'store'}")
    found = [read_model(each.file) for each in oneshot_fl.uploads(*attacked, folder=tmp_path / "uploads")]
    assert sorted(file.description.kind for file in found) == ["classifier", "decoder"]
    assert any(not each.isfinite().all() for file in found for each in file.tensors().values())
