"""Fidelity: how like the training images the server's synthetic images are (FedMHO, Sec. 5.8 and Table 11).

FID (Heusel et al. 2017) and KID (Binkowski et al. 2018) between features of images. The papers' features are those of
Inception; ours are what enters the last linear layer of a classifier that is trained on the whole training set at hand.
So these are **not** the papers' numbers and cannot be put beside them. Two runs can be compared where data set,
classifier and number of images agree.

The FID of few images is too large, the more so the more features there are, and with more features than images the
covariances do not have full rank. Gaussian noise and other training images are therefore measured with as many images
and against the same ones. Training images are the best that is to be expected; noise is a mark but no bound on such
features: the 8x8 digits, blurred by 3x3 means, are farther from the digits than noise is (FID 104 against 71). KID has
no such bias, and so it may come out below 0.
"""

import warnings
from dataclasses import dataclass, replace
from typing import Annotated

import torch
from torch import Tensor, nn
from torchmetrics.image.fid import FrechetInceptionDistance
from torchmetrics.image.kid import KernelInceptionDistance

from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.dataset import Dataset, DataSpec
from oneshot_fl.data.spread import spread
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.bank import ClientBank, has_features
from oneshot_fl.models.place import place_of
from oneshot_fl.phases.clients.classifier import Classifier
from oneshot_fl.phases.clients.train import ClientPlan, TrainedClient, train_clients
from oneshot_fl.phases.clients.training import Training
from oneshot_fl.phases.context import Context
from oneshot_fl.phases.evaluate import evaluate
from oneshot_fl.seeds import derive_seed, seeded, torch_generator
from oneshot_fl.values import Images, Rule

SUBSETS = 50
"""KID is the mean over that many random subsets, each of half of the images."""


@dataclass(frozen=True)
class Distances:
    """From one set of images to the training images."""

    fid: float
    kid: float
    kid_std: float
    """Over the subsets."""


@dataclass(frozen=True)
class Fidelity:
    """The distances of synthetic images, and of what they should be far from (noise) and near to (real images)."""

    synthetic: Distances
    noise: Distances
    real: Distances
    """Of other training images."""
    samples: int
    """Images in each set."""
    extractor: str
    """The name of the classifier whose features are compared."""
    epochs: int
    accuracy: float
    """The classifier's, on the test set."""


@dataclass(frozen=True)
class FidelityReference:
    """What images are measured by: a classifier to train on everything, and how many images to compare."""

    architecture: Architecture
    training: Training
    samples: Annotated[Images, Rule("a whole number of at least 4", lambda value: value >= 4)]

    @property
    def seed(self) -> int:
        """Of the classifier and of which images are compared."""
        return self.training.seed

    def check(self, data: Dataset) -> None:
        """Refuse what cannot be measured on a data set, before anything is trained.

        Raises:
            OneshotError: there are fewer than twice as many training images, or the classifier has no features.
        """
        available = len(data.train_labels)
        if self.samples > available // 2:
            raise OneshotError(
                f"evaluate.fidelity.samples={self.samples}: needs twice as many training images, and data={data.name} "
                f"has {available} for the clients; set it to {available // 2} or less"
            )
        model = self.architecture.as_clients_begin(data.spec, self.seed)
        if not has_features(model, data.spec):
            raise OneshotError(
                f"evaluate.fidelity.model={self.architecture.name}: runs no linear layer, and features are what enters "
                "the last one; choose another, for instance cnn2"
            )


def measure(
    fidelity_reference: FidelityReference,
    images: Tensor,
    labels: Tensor,
    *,
    data: Dataset,
    test: ImageBatches,
    context: Context,
) -> Fidelity:
    """Compare synthetic `images`, uint8 `[n, C, H, W]`, with training images.

    Of more images than the reference asks for some are taken evenly over their `labels` `[n]`. The classifier is
    trained as a client that has the whole training set; every run that asks for the same finds it.

    Raises:
        OneshotError: there are fewer synthetic images than are to be compared.
    """
    samples, seed = fidelity_reference.samples, fidelity_reference.seed
    _require(len(labels), samples)
    extractor = _train(fidelity_reference, data, context)
    extractor.upload.model.to(data.train_images.device)
    reference, others = two_draws(len(data.train_labels), samples, seed=seed)
    sets = {
        "reference": data.train_images[reference],
        "real": data.train_images[others],
        "noise": gaussian_noise(data.spec, samples, seed=seed),
        "synthetic": images[spread(labels, samples)],
    }
    found = {name: features(extractor.upload.model, own, data.spec, test.batch_size) for name, own in sets.items()}
    against = found.pop("reference")
    return Fidelity(
        **{name: distances(against, own, seed=seed) for name, own in found.items()},
        samples=samples,
        extractor=extractor.name,
        epochs=fidelity_reference.training.epochs,
        accuracy=evaluate(test, [], extractor.upload.model, {}, context=context).accuracies.server,
    )


def _require(available: int, samples: int) -> None:
    if available < samples:
        raise OneshotError(
            f"evaluate.fidelity.samples={samples}: the server has only {available} synthetic images at the end; set it "
            f"to {available} or less (what has been trained is in the store and is not trained again)"
        )


def _train(reference: FidelityReference, data: Dataset, context: Context) -> TrainedClient:
    """The classifier, which begins where no client does and draws as none does.

    Else the features of the run whose clients have its seed would be nearer to theirs, and so its images to real ones.
    """
    everything = torch.arange(len(data.train_labels))
    within = replace(context, log=context.log.within("fidelity/"))
    own = replace(reference.training, seed=derive_seed(reference.seed, "fidelity", "classifier"))
    plan = ClientPlan(reference.architecture, own, Classifier(), "evaluate.fidelity.optimizer.lr")
    (extractor,) = train_clients(data, [everything], [plan], context=within, task="feature extractor")
    return extractor


def two_draws(total: int, samples: int, *, seed: int) -> tuple[Tensor, Tensor]:
    """Twice `samples` positions below `total`, none in both; at random, because KID is unbiased for random samples."""
    order = torch.randperm(total, generator=torch_generator(seed, "fidelity", "training images"))
    return order[:samples], order[samples : 2 * samples]


def gaussian_noise(spec: DataSpec, samples: int, *, seed: int) -> Tensor:
    """Images uint8 `[samples, C, H, W]` whose pixels have the data set's mean and standard deviation, cut to bytes."""
    shape = (samples, spec.channels, spec.size, spec.size)
    return spec.to_bytes(torch.randn(shape, generator=torch_generator(seed, "fidelity", "noise")))


@torch.no_grad()
def features(classifier: nn.Module, images: Tensor, spec: DataSpec, batch_size: int) -> Tensor:
    """What enters the classifier's last linear layer, `[n, d]` in double precision, for images uint8 `[n, C, H, W]`."""
    bank = ClientBank([classifier], mode="loop")
    device = place_of(classifier)
    batches = (spec.to_input(part.to(device)) for part in images.split(batch_size))
    seen = (bank(x, frozenset({"features"})).features[0] for x in batches)
    return torch.cat([features.cpu().double() for features in seen])  # Apple's GPUs have no double precision


def distances(reference: Tensor, others: Tensor, *, seed: int) -> Distances:
    """FID and KID between features `[n, d]` and `[n, d]`, both with their usual settings (cubic kernel).

    FID = |mu_1 - mu_2|^2 + tr(S_1 + S_2 - 2 (S_1 S_2)^(1/2)).
    """
    width = reference.shape[1]
    first, second = _in_their_span(reference, others)
    fid = FrechetInceptionDistance(feature=_Taken(first.shape[1]))
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message=".*will save all extracted features in buffer")
        kid = KernelInceptionDistance(nn.Identity(), subsets=SUBSETS, subset_size=len(others) // 2, gamma=1 / width)
    for metric in (fid, kid):
        metric.update(first, real=True)
        metric.update(second, real=False)
    with seeded(seed, "fidelity", "subsets"):
        mean, std = kid.compute()
    return Distances(float(fid.compute()), float(mean), float(std))


class _Taken(nn.Identity):
    """Features that were taken already, for a metric that asks an extractor how many there are."""

    def __init__(self, num_features: int) -> None:
        super().__init__()
        self.num_features = num_features


def _in_their_span(first: Tensor, second: Tensor) -> tuple[Tensor, Tensor]:
    """More features than images, turned into the space that the images span: no inner product changes.

    The covariances of 64x64 images' features would take gigabytes otherwise.
    """
    both = torch.cat([first, second])
    if both.shape[1] <= len(both):
        return first, second
    basis = torch.linalg.qr(both.T).Q
    return first @ basis, second @ basis
