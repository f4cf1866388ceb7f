"""Phase 0, preparation: the data set on the run's device, and its split among the clients."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from oneshot_fl.data.dataset import Dataset
from oneshot_fl.data.partition import Indices, Labels, Partition
from oneshot_fl.data.proxy import Proxy
from oneshot_fl.data.sound import flaw, flaw_of_split, trained_on, without_images
from oneshot_fl.errors import OneshotError, first_of
from oneshot_fl.recipe import Recipe, is_ours

READ_ONLY = "read-only"
"""In all that NumPy says where something writes into an array that must stay as it is."""


@dataclass(frozen=True)
class DataPlan:
    """A data set before it is loaded."""

    name: str
    load: Recipe[Dataset]
    development: bool = False
    """Whether a part of the training images takes the test images' place."""

    def loaded(self) -> Dataset:
        """All of it, also where a part is for development only.

        Raises:
            OneshotError: a file is missing or damaged, or what a user's code made of it is no data set.
        """
        data = self.load()
        if not isinstance(data, Dataset):
            wanted = "must be a Dataset (oneshot_fl.data.dataset.make_dataset makes one)"
            raise OneshotError(f"data={self.name}: what {self.load.settings['_target_']} returns {wanted}")
        if found := flaw(data):
            raise OneshotError(f"data={self.name}: {found}")
        if is_ours(self.load.settings["_target_"]):  # it has its notes, and nobody need look at the papers' data again
            return data
        key = f"data={self.name}"
        notes = (*trained_on(data.train_images, data.test_images, key), *without_images(data, key))
        return replace(data, notes=data.notes + notes)


@dataclass(frozen=True)
class PartitionPlan:
    """A partition before there are labels."""

    name: str
    split: Recipe[Indices]

    @property
    def by_domain(self) -> bool:
        """Whether it takes the domain of each sample."""
        return "domains" in inspect.signature(self.split.target).parameters

    def dealt(self, labels: Labels, **domains: Labels) -> Indices:
        """Each client's samples, int64 `[n]` a client, sorted: in which order they were dealt changes nothing.

        Args:
            labels: of all training samples, `[n]`; the partition gets a copy that cannot be written into.
            domains: the same for the domains, where it takes them.

        Raises:
            OneshotError: the partition does not fit the data or writes into what it is given, or what a user's code
                made of them is none, or another one every time.
        """
        indices, ours = self._sorted(labels, **domains), is_ours(self.split.settings["_target_"])
        if not ours and not all(map(np.array_equal, indices, self._sorted(labels, **domains))):
            raise OneshotError(
                f"partition={self.name}: deals otherwise every time; let it draw from a generator that its seed "
                "starts, np.random.default_rng(seed)"
            )
        return indices

    def _sorted(self, labels: Labels, **domains: Labels) -> Indices:
        made = self._made(labels, **domains)
        if found := flaw_of_split(made, clients=self.split.settings["clients"], samples=len(labels)):
            raise OneshotError(f"partition={self.name}: {found}")
        return [np.sort(np.asarray(index, dtype=np.int64)) for index in made]

    def _made(self, labels: Labels, **domains: Labels) -> Indices:
        """What the partition's code makes of numbers that it cannot write into."""
        given = {name: _read_only(numbers) for name, numbers in {"labels": labels, **domains}.items()}
        try:
            return self.split(**given)
        except ValueError as error:
            if READ_ONLY not in str(error):
                raise
            names = " or ".join(given)
            raise OneshotError(
                f"partition={self.name}: writes into the {names} that it is given, which all other parts of the run "
                "use too; let it write into a copy, for instance labels.copy()"
            ) from error


@dataclass(frozen=True)
class ProxyPlan:
    """The server's own images before there is a data set."""

    name: str
    take: Recipe[tuple[Dataset, Proxy]]
    other: Callable[[], Dataset] | None = None
    """The data set that lends them, where it is another one."""

    def taken(self, data: Dataset) -> tuple[Dataset, Proxy]:
        """What is left of a data set for the clients, and the server's images.

        Raises:
            OneshotError: the proxy does not fit the data, or a user's own writes into them.
        """
        lent = {} if self.other is None else {"other": self.other()}
        before = data.fingerprint
        left, images = self.take(data, **lent)
        if not is_ours(self.take.settings["_target_"]) and replace(data).fingerprint != before:  # hashed anew
            raise OneshotError(
                f"proxy={self.name}: writes into the data set that it is given, which keys were made of before; let it "
                "write into copies of its tensors, for instance data.train_images.clone()"
            )
        return left, images


@dataclass(frozen=True)
class RunData:
    """What a run begins with: the clients' data, who has which, and the server's own images."""

    data: Dataset
    partition: Partition
    proxy: Proxy
    fingerprint: str
    """Of the whole data set, also of what a proxy has taken away."""

    @property
    def indices(self) -> list[Tensor]:
        """Each client's samples in the training set."""
        return [torch.from_numpy(index) for index in self.partition.indices]


def prepare(data: DataPlan, partition: PartitionPlan, proxy: ProxyPlan, *, device: torch.device) -> RunData:
    """Load the data set, take away what the proxy takes, split the rest.

    Raises:
        OneshotError: a file is missing or damaged, what a user's code made is no sound data set, there is nothing to
            tell apart or to test on, the partition does not fit the data or leaves a client without samples, or a
            user's partition or proxy writes into the data.
    """
    loaded = data.loaded()
    whole = loaded.for_development() if data.development else loaded
    _check_testable(data, whole)
    fingerprint = whole.fingerprint  # before anything moves, which takes it along
    left, images = proxy.taken(whole)
    with _what_a_proxy_took_told(proxy.name, len(whole.train_labels) - len(left.train_labels)):
        indices = partition.dealt(left.train_labels.numpy(), **_domains(data, partition, left))
    _check_none_empty(partition.name, indices)
    return RunData(left.to(device), Partition(partition.name, indices), images.to(device), fingerprint)


@contextmanager
def _what_a_proxy_took_told(name: str, taken: int) -> Iterator[None]:
    """A split that does not fit what is left may fit the whole training set."""
    try:
        yield
    except OneshotError as error:
        if taken and "partition.clients" in str(error):
            raise OneshotError(f"{error}, or what proxy={name} takes from the clients, {taken} samples") from error
        raise


def _read_only(numbers: Labels) -> Labels:
    """A copy that nobody may write into: torch would share the memory of the original as if anybody might."""
    copied = numbers.copy()
    copied.setflags(write=False)
    return copied


def _check_testable(plan: DataPlan, data: Dataset) -> None:
    if data.spec.classes < 2:
        raise OneshotError(f"data={plan.name}: has one class, {data.class_names[0]}; two are the least to tell apart")
    if not len(data.test_labels):
        raise OneshotError(
            f"development=true: no class of data={plan.name} has two training images, one of them to test on; leave it "
            "out, or give more images"
        )


def _check_none_empty(name: str, indices: Indices) -> None:
    if empty := [k for k, index in enumerate(indices) if not len(index)]:
        raise OneshotError(
            f"partition={name}: client {first_of(empty)} of {len(indices)} gets no samples; lower partition.clients, "
            "or choose settings of the partition that give every client some"
        )


def _domains(plan: DataPlan, partition: PartitionPlan, data: Dataset) -> dict[str, Any]:
    """The domain of each training sample, for a partition that takes it."""
    if not partition.by_domain:
        return {}
    if data.train_domains is None:
        raise OneshotError(
            f"partition={partition.name}: data={plan.name} has no domains; choose data=pacs, digit_domains or "
            "image_domains, or another partition, for instance partition=dirichlet"
        )
    return {"domains": data.train_domains.numpy()}
