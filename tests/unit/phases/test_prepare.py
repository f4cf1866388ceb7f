"""Preparation: the data set, who has which samples, and what the server keeps for itself."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from oneshot_fl.config import experiment_of
from oneshot_fl.config.compose import recipe
from oneshot_fl.data.dataset import Dataset, make_dataset
from oneshot_fl.data.datasets import digits
from oneshot_fl.data.proxy import Proxy
from oneshot_fl.data.sound import without_images
from oneshot_fl.errors import OneshotError
from oneshot_fl.phases.prepare import DataPlan, PartitionPlan, ProxyPlan, RunData, prepare
from tests.composing import compose_config


def _prepared(*overrides: str) -> RunData:
    experiment = experiment_of(compose_config("trainer=cpu", *overrides))
    return prepare(experiment.data, experiment.partition, experiment.proxy, device=torch.device("cpu"))


def test_one_client_per_training_domain(digit_domains):
    given = _prepared(*digit_domains, "partition=leave_one_domain_out")
    assert given.data.train_images.shape == (18, 3, 32, 32)
    assert [index.tolist() for index in given.indices] == [list(range(k, k + 6)) for k in (0, 6, 12)]


@pytest.mark.parametrize("name", ["iid", "dirichlet"])
def test_other_partitions_split_domain_data_too(digit_domains, name):
    more = ["partition.min_samples=0"] if name == "dirichlet" else []
    given = _prepared(*digit_domains, f"partition={name}", "partition.clients=2", *more)
    assert sum(given.partition.sizes) == 18


def test_held_out_images_leave_before_the_partition_and_take_their_domains_along(digit_domains):
    given = _prepared(*digit_domains, "partition=leave_one_domain_out", "proxy=holdout")
    assert (sum(given.partition.sizes), len(given.proxy.images)) == (14, 4)  # a fifth of 18
    assert len(given.data.train_domains) == 14


def test_a_split_that_fits_too_little_that_a_proxy_leaves_tells_of_the_proxy():
    with pytest.raises(
        OneshotError, match=r"^partition\.clients: .* has 1; .*, or what proxy=holdout takes .* 1436 samples$"
    ):
        _prepared("proxy=holdout", "proxy.fraction=0.999")
    with pytest.raises(OneshotError, match=r"lower partition\.clients or partition\.min_samples$"):
        _prepared("partition.clients=700")


def test_development_leaves_test_images_alone():
    plain, given = _prepared(), _prepared("development=true")
    assert sum(given.partition.sizes) == len(given.data.train_labels) == 1437 - len(given.data.test_labels)
    whole = {image.numpy().tobytes() for image in plain.data.train_images}
    assert {image.numpy().tobytes() for image in given.data.test_images} <= whole


def test_another_data_set_lends_its_images(digit_domains):
    given = _prepared("proxy=dataset", "proxy.data=digits", "proxy.samples=7", *digit_domains, "partition=iid")
    assert given.proxy.images.shape == (7, 3, 32, 32)


def test_data_without_domains_are_refused():
    with pytest.raises(OneshotError, match=r"^partition=leave_one_domain_out: data=digits has no domains; .*data=pacs"):
        _prepared("partition=leave_one_domain_out")


@pytest.mark.parametrize(
    ("chosen", "line"),
    [
        (
            ("partition.min_samples=0", "partition.alpha=0.01", "partition.clients=20"),
            r"^partition=\w+: client \d+ \(and \d+ more\) of \d+ gets no samples",
        ),
        (
            ("partition=classes_per_client", "partition.classes=10", "partition.clients=160"),
            r"^partition\.classes=10: class \d has \d+ samples and would be dealt to 160 clients",
        ),
    ],
)
def test_a_client_without_samples_is_refused_before_it_would_train_on_nothing(chosen, line):
    with pytest.raises(OneshotError, match=line):
        _prepared(*chosen)


def test_a_data_set_is_hashed_once_however_it_moves():
    given = _prepared()
    assert vars(given.data)["fingerprint"] == given.fingerprint
    held = _prepared("proxy=holdout")
    assert held.fingerprint == given.fingerprint != held.data.fingerprint  # what the clients have is less


def floats():
    data = digits(mean=[0.5], std=[0.5])
    return replace(data, train_images=data.train_images / 255)


def nothing():
    return None


def one_class():
    data = digits(mean=[0.5], std=[0.5])
    zeros = {f"{part}_labels": torch.zeros_like(getattr(data, f"{part}_labels")) for part in ("train", "test")}
    return replace(data, spec=replace(data.spec, classes=1), class_names=("zero",), **zeros)


def one_image_each():
    data = digits(mean=[0.5], std=[0.5])
    first = [int((data.train_labels == label).nonzero()[0]) for label in range(10)]
    return replace(data, train_images=data.train_images[first], train_labels=data.train_labels[first])


@pytest.mark.parametrize(
    ("made", "development", "line"),
    [
        ("floats", False, r"^data=own: train_images: must be torch\.uint8"),
        ("nothing", False, rf"^data=own: what {__name__}\.nothing returns must be a Dataset"),
        ("one_class", False, r"^data=own: has one class, zero; two are the least to tell apart$"),
        ("one_image_each", True, r"^development=true: no class of data=own has two training images"),
    ],
)
def test_what_a_users_code_makes_is_looked_at_before_it_is_split(made, development, line):
    experiment = experiment_of(compose_config("trainer=cpu"))
    own = DataPlan("own", recipe({"name": "own", "_target_": f"{__name__}.{made}"}), development=development)
    with pytest.raises(OneshotError, match=line):
        prepare(own, experiment.partition, experiment.proxy, device=torch.device("cpu"))


def overlapping(*, shared: int) -> Dataset:
    """Grey images of which so many are to train on and to test on."""
    images, labels = torch.arange(40, dtype=torch.uint8).view(-1, 1, 1, 1).expand(-1, 1, 8, 8), torch.arange(40) % 2
    parts = {"train": (images[:30], labels[:30]), "test": (images[30 - shared :], labels[30 - shared :])}
    return make_dataset(name="own", **parts, class_names=("a", "b"), mean=0.5, std=0.5)


@pytest.mark.parametrize("shared", [0, 3])
def test_test_images_of_a_users_function_that_are_trained_on_are_counted_in_a_note(shared):
    own = DataPlan("own", recipe({"name": "own", "_target_": f"{__name__}.overlapping", "shared": shared}))
    line = f"data=own: {shared} of {10 + shared} test images are training images too: accuracy is too high by them"
    assert own.loaded().notes == ((line,) if shared else ())


def test_classes_without_an_image_in_data_of_a_users_function_are_told():
    made = overlapping(shared=0)
    data = replace(made, class_names=("a", "b", "c", "d"), spec=replace(made.spec, classes=4))
    assert without_images(made, "data=own") == ()
    assert without_images(data, "data=own") == (
        "data=own: no training image is of class c (and 1 more)",
        "data=own: no test image is of class c (and 1 more)",
    )


def everything_to_all(labels, *, clients):
    return [np.arange(len(labels))] * clients


def backwards(labels, *, clients):
    return [part[::-1].astype(np.int32) for part in np.array_split(np.arange(len(labels)), clients)]


def _split_by(name: str, *overrides: str) -> RunData:
    experiment = experiment_of(compose_config("trainer=cpu", *overrides))
    own = PartitionPlan("own", recipe({"name": "own", "_target_": f"{__name__}.{name}", "clients": 2}))
    return prepare(experiment.data, own, experiment.proxy, device=torch.device("cpu"))


def test_a_users_partition_is_looked_at_before_clients_train():
    with pytest.raises(OneshotError, match=r"^partition=own: each of 1437 training samples must go to one client once"):
        _split_by("everything_to_all")


def test_the_order_in_which_a_users_partition_deals_samples_is_none_of_the_runs():
    assert _split_by("backwards").indices[0].tolist() == list(range(719))


def of_coarser_labels(labels, *, clients):
    labels //= 5
    return np.array_split(labels.argsort(kind="stable"), clients)


def of_coarser_domains(labels, domains, *, clients):
    np.floor_divide(domains, 2, out=domains)
    return np.array_split(domains.argsort(kind="stable"), clients)


def past_numpy(labels, *, clients):
    torch.from_numpy(labels).zero_()
    return np.array_split(np.arange(len(labels)), clients)


def ill(labels, *, clients):
    raise ValueError("my own mistake")


def by_chance(labels, *, clients):
    return np.array_split(np.random.default_rng().permutation(len(labels)), clients)


def test_a_users_partition_that_deals_otherwise_every_time_is_refused():
    with pytest.raises(OneshotError, match=r"^partition=own: deals otherwise every time; .*default_rng\(seed\)$"):
        _split_by("by_chance")


def test_a_users_partition_that_writes_into_labels_is_told_to_copy_them():
    line = r"^partition=own: writes into the labels that it is given, .* for instance labels\.copy\(\)$"
    with pytest.raises(OneshotError, match=line):
        _split_by("of_coarser_labels")
    with pytest.raises(ValueError, match=r"^my own mistake$"):
        _split_by("ill")


def test_a_users_partition_that_writes_into_domains_is_told_to_copy_them(digit_domains):
    with pytest.raises(OneshotError, match=r"^partition=own: writes into the labels or domains that it is given"):
        _split_by("of_coarser_domains", *digit_domains)


@pytest.mark.filterwarnings("ignore:The given NumPy array is not writable")
def test_no_partition_gets_at_the_labels_of_the_run():
    assert torch.equal(_split_by("past_numpy").data.train_labels, _prepared().data.train_labels)


def inverted(data):
    data.train_images.numpy()[:] ^= 255
    return data, Proxy(lambda: data.train_images[:3])


def inverted_copy(data):
    return inverted(replace(data, train_images=data.train_images.clone()))


def test_a_users_proxy_that_writes_into_the_data_set_is_told_to_copy_it():
    experiment = experiment_of(compose_config("trainer=cpu"))

    def made(name):
        own = ProxyPlan("own", recipe({"name": "own", "_target_": f"{__name__}.{name}"}))
        return prepare(experiment.data, experiment.partition, own, device=torch.device("cpu"))

    line = r"^proxy=own: writes into the data set that it is given.*data\.train_images\.clone\(\)$"
    with pytest.raises(OneshotError, match=line):
        made("inverted")
    left = made("inverted_copy").data
    assert torch.equal(left.train_images, 255 - _prepared().data.train_images)
    assert left.fingerprint != _prepared().data.fingerprint
