"""What uploads and the global model give away of the clients' images (`evaluate=privacy`).

Reference models for LiRA-lite are trained here, on halves of the audited images; every run that audits the same images
finds them in the store. Members and others are drawn with equal label counts, each model's own. A client that an attack
has poisoned is asked about what it trained on, beside images and labels, and reference models, poisoned as it was.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import Dataset
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.phases.clients.classifier import Classifier
from oneshot_fl.phases.clients.train import ClientPlan, train_clients
from oneshot_fl.phases.clients.training import Training
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.membership import Attack, attack, confidence, matched, relative
from oneshot_fl.phases.memorisation import Memorisation, memorisation
from oneshot_fl.phases.poisoned import Poisoned
from oneshot_fl.seeds import derive_seed, torch_generator
from oneshot_fl.values import Count, Images, Rule

AT_ONCE = 512
"""Images in a forward pass."""


@dataclass(frozen=True)
class Audit:
    """How privacy is measured."""

    architecture: Architecture
    """Of the reference models."""
    training: Training
    references: Annotated[Count, Rule("an even number of at least 2", lambda value: value >= 2 and value % 2 == 0)]
    """Reference models: pairs that trained on the two halves of a split, so that half of them never saw an image."""
    samples: Images
    """Members and as many others that are audited, at most."""

    @property
    def seed(self) -> int:
        """Of the reference models and of which images are audited."""
        return self.training.seed

    def check(self, data: Dataset) -> None:
        """Refuse data on which membership cannot be told from something else, before anything is trained.

        Raises:
            OneshotError: the test set is of a domain that no client has.
        """
        if data.train_domains is not None:
            raise OneshotError(
                f"evaluate=privacy: data={data.name} is tested on a domain that no client has: an attack would tell "
                "domains apart, not members; choose data whose test set is like its training set"
            )


@dataclass(frozen=True)
class Membership:
    """What both attacks find in one model."""

    samples: int
    """Members, and as many others."""
    loss: Attack
    lira: Attack


@dataclass(frozen=True)
class Privacy:
    """The panel."""

    server: Membership
    clients: list[Membership | None]
    """Of every client with a classifier, in their order; None where no test image has a label of its, or where its
    answers are no numbers, which tell nothing."""
    synthetic: dict[str, Memorisation]
    """Of the server's synthetic images and of the recitals, where there are some; not of those whose clients have no
    label of the test set."""


@dataclass(frozen=True)
class Attacked:
    """A classifier that was uploaded."""

    model: nn.Module
    members: Tensor
    """Positions of its client's images in the training set, `[n]`."""
    hostile: bool = False
    """Whether its client trained on what an attack had made of them."""


@dataclass(frozen=True)
class Synthetic:
    """Images that were made of models, and what they may be copies of."""

    images: Tensor
    """uint8 `[n, C, H, W]`"""
    learned: Tensor
    """Positions of the training images that those models have learned of, `[n]`."""


@dataclass(frozen=True)
class _Pool:
    """The images that are audited, as the training set of a data set, and what the reference models say of them."""

    data: Dataset
    origin: Tensor
    """Where each lies in the clients' training set, `[n]`; -1 for test images, which nobody trained on."""
    confidences: Tensor
    """Of the reference models in the labels, `[r, n]`."""
    seen: Tensor
    """Which of them trained on which image, `[r, n]`."""
    kinds: Tensor
    """Numbers `[n]`, equal where images look alike to whoever knows none of them: of one class, and changed alike."""

    def of(self, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Which of the pool's images lie at these positions of the training set, and which are test images."""
        return torch.isin(self.origin, positions).nonzero().flatten(), (self.origin < 0).nonzero().flatten()


def measure_privacy(
    audit: Audit,
    data: Dataset,
    server: nn.Module,
    clients: Sequence[Attacked],
    learned: Tensor,
    synthetic: Mapping[str, Synthetic],
    *,
    changed: Poisoned | None = None,
    context: Context,
) -> Privacy:
    """Attack the server's model and every client's upload.

    Args:
        data: with the clients' training images, and test images that nobody trained on.
        server: the global model, which is asked about true labels.
        clients: classifiers that were uploaded.
        learned: positions of the images that the global model has learned of, through the uploads that were used.
        synthetic: images by where they come from.
        changed: what hostile clients made of the data, where some are.

    Raises:
        OneshotError: there is nothing to audit the server with.
    """
    pool = _pool(audit, data, data, _logged(context, "privacy/"))
    found = _membership(audit, pool, server, learned, "server")
    if found is None:
        raise OneshotError(
            "evaluate=privacy: no training image that is audited has a label of the test set; raise "
            f"evaluate.privacy.samples={audit.samples}"
        )
    poisoned = _poisoned_pool(audit, data, clients, changed, context) or pool
    pools = [poisoned if each.hostile else pool for each in clients]
    pairs = enumerate(zip(pools, clients, strict=True))
    attacked = [_membership(audit, each, client.model, client.members, k) for k, (each, client) in pairs]
    compared = {name: _memorised(audit, data, made, changed) for name, made in synthetic.items()}
    return Privacy(found, attacked, {name: told for name, told in compared.items() if told})


def _poisoned_pool(
    audit: Audit, data: Dataset, clients: Sequence[Attacked], changed: Poisoned | None, context: Context
) -> _Pool | None:
    """Where there are hostile clients to ask about it."""
    if changed is None or not any(each.hostile for each in clients):
        return None
    return _pool(audit, changed.data, data, _logged(context, "privacy/poisoned/"))


def _pool(audit: Audit, data: Dataset, true: Dataset, context: Context) -> _Pool:
    """Up to twice `samples` training and test images, and reference models on halves that differ from pair to pair.

    Args:
        data: as the attacked clients trained on it.
        true: as it was before.
    """
    own, foreign = (
        _drawn(len(labels), 2 * audit.samples, audit.seed, name).to(labels.device)
        for name, labels in (("training", data.train_labels), ("test", data.test_labels))
    )
    audited, before = (_joined(one, own, foreign) for one in (data, true))
    total = len(audited.train_labels)
    halves = [half for pair in range(audit.references // 2) for half in _halves(total, audit.seed, pair)]
    plans = [_plan(audit, number) for number in range(len(halves))]
    trained = train_clients(audited, halves, plans, context=context, task="reference models")
    seen = torch.stack([torch.isin(torch.arange(total), half) for half in halves])
    confidences = torch.stack([_confidences(one.upload.model, audited, torch.arange(total)) for one in trained])
    origin = torch.cat([own.cpu(), torch.full((len(foreign),), -1)])
    return _Pool(audited, origin, confidences, seen, _kinds(before, audited))


def _logged(context: Context, prefix: str) -> Context:
    return replace(context, log=context.log.within(prefix))


def _joined(data: Dataset, own: Tensor, foreign: Tensor) -> Dataset:
    """With these training and test images, in this order, to train on."""
    return replace(
        data,
        train_images=torch.cat([data.train_images[own], data.test_images[foreign]]),
        train_labels=torch.cat([data.train_labels[own], data.test_labels[foreign]]),
        train_domains=None,
    )


def _kinds(true: Dataset, trained_on: Dataset) -> Tensor:
    """A number for every true label, label to train on, and whether the image is another one; `[n]`."""
    other_image = (true.train_images != trained_on.train_images).flatten(1).any(dim=1)
    labels = true.train_labels * true.spec.classes + trained_on.train_labels
    return (2 * labels + other_image).cpu()


def _plan(audit: Audit, number: int) -> ClientPlan:
    """Of a reference model, which begins where no client and no other one does, and draws as none does.

    Else it would be nearer to the attacked clients than to any model of a stranger.
    """
    own = replace(audit.training, seed=derive_seed(audit.seed, "privacy", "reference model", number))
    return ClientPlan(audit.architecture, own, Classifier(), "evaluate.privacy.optimizer.lr")


def _drawn(total: int, most: int, seed: int, name: str) -> Tensor:
    """Up to `most` positions below `total`, in order."""
    rng = torch_generator(seed, "privacy", "audited", name)
    return torch.randperm(total, generator=rng)[:most].sort().values


def _halves(total: int, seed: int, pair: int) -> tuple[Tensor, Tensor]:
    order = torch.randperm(total, generator=torch_generator(seed, "privacy", "halves", pair))
    return order[: total // 2], order[total // 2 :]


@torch.no_grad()
def _confidences(model: nn.Module, data: Dataset, index: Tensor) -> Tensor:
    """In the labels of training images, `[n]`."""
    device = data.train_images.device
    model.to(device).eval()
    parts = [
        confidence(model(data.spec.to_input(data.train_images[part])), data.train_labels[part]).cpu()
        for part in index.to(device).split(AT_ONCE)
    ]
    return torch.cat(parts)


def _membership(audit: Audit, pool: _Pool, model: nn.Module, members: Tensor, who: str | int) -> Membership | None:
    """Both attacks on one model; None where no label is both among its members and in the test set, or its answers are
    no numbers.
    """
    own, foreign = pool.of(members)
    rng = torch_generator(audit.seed, "privacy", "matched", who)
    chosen, others = matched(pool.kinds[own], pool.kinds[foreign], audit.samples, rng)
    if not len(chosen):
        return None
    index, half = torch.cat([own[chosen], foreign[others]]), len(chosen)
    plain = _confidences(model, pool.data, index)
    if plain.isnan().any():
        return None
    scores = relative(plain, pool.confidences[:, index], pool.seen[:, index])
    return Membership(half, attack(plain[:half], plain[half:]), attack(scores[:half], scores[half:]))


def _memorised(audit: Audit, data: Dataset, made: Synthetic, changed: Poisoned | None = None) -> Memorisation | None:
    """Against all training images, and against equally many of them and of test images with the same labels.

    None where these share no label.
    """
    learned, labels = made.learned, data.train_labels.cpu()[made.learned]
    test_labels = data.test_labels.cpu()
    rng = torch_generator(audit.seed, "privacy", "memorised")
    own, test = matched(labels, test_labels, min(len(learned), len(test_labels), 2 * audit.samples), rng)
    if not len(own):
        return None
    alike = torch.isin(test_labels, labels).nonzero().flatten()  # what shows another class is no copy at any distance
    asked = alike[torch.randperm(len(alike), generator=rng)[: 2 * audit.samples]]
    training = _trained_on(data, learned, changed)
    others = data.test_images[asked.to(data.test_images.device)]
    same = (training[own.to(training.device)], _tested_as(data, test, learned[own], changed))
    return memorisation(made.images, training, others, matched=same)


def _trained_on(data: Dataset, learned: Tensor, changed: Poisoned | None) -> Tensor:
    """Training images as clients trained on them, the hostile ones' as these made them."""
    plain = data.train_images[learned.to(data.train_images.device)]
    return plain if changed is None else _as_theirs(plain, changed.data.train_images, learned, learned, changed)


def _tested_as(data: Dataset, test: Tensor, partners: Tensor, changed: Poisoned | None) -> Tensor:
    """Test images, each as the client of its training image would have made it.

    Else images that show what both may show, as a backdoor's trigger, would be nearer to one side for that alone.
    """
    plain = data.test_images[test.to(data.test_images.device)]
    return plain if changed is None else _as_theirs(plain, changed.data.test_images, test, partners, changed)


def _as_theirs(plain: Tensor, made: Tensor, index: Tensor, training: Tensor, changed: Poisoned) -> Tensor:
    """Images `[n, C, H, W]`, as hostile clients made them where the training image beside is one of theirs."""
    theirs = torch.isin(training.to(plain.device), changed.hostile.to(plain.device)).view(-1, 1, 1, 1)
    return torch.where(theirs, made[index.to(made.device)], plain)
