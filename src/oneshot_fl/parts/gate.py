"""The gate: which uploads the server uses. It looks at tensors, and at answers to images of no data set.

Nothing here asks whether clients agree: honest clients of very skewed data contradict each other, and one that has seen
a single class always says it. What is asked is whether a model can have come out of training at all. The strongest sign
are the running statistics: whatever a network was trained on, its layers' means on other images lie near those that
training has left, and weights that were changed afterwards no longer fit them.
"""

import math
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from statistics import median, median_high

import torch
from torch import Tensor, nn

from oneshot_fl.artifacts import tensor_hash
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import named_line
from oneshot_fl.models.aligned import own_model
from oneshot_fl.models.bank import ClientBank, LayerStatistics, norm_layers
from oneshot_fl.models.place import place_of
from oneshot_fl.parts.decoders import flaw_of_drawn
from oneshot_fl.parts.ensembles import entropy
from oneshot_fl.parts.procedural import shapes
from oneshot_fl.parts.uploads import DecoderUpload, Uploads
from oneshot_fl.parts.view import in_pieces
from oneshot_fl.seeds import torch_generator
from oneshot_fl.values import Images, Positive, Seed, Share

ALLOWED = 0.25
"""A layer's means may always be off by so many running variances, however close together the other clients are."""


@dataclass(frozen=True)
class Probed:
    """What one classifier answers to the probes."""

    largest: float
    """Of the absolute logits; not a number where one is none."""
    spread: float
    """Largest standard deviation of a class's logit over the probes."""
    doubt: float
    """Mean entropy of its answers, as a share of the largest that there can be."""
    strangeness: float | None
    """How far a layer's means on the probes are from its running means, in running variances; the mean over channels,
    of the layer in the middle, or of two the larger. None without batch normalisation. What sound deep networks know
    is not in the probes, so a few of their layers can be far off; weights that were changed make most of them so."""
    strangest: float | None
    """The same of the layer where it is largest."""
    layers: str
    """The layers with batch normalisation: how far their means are usually depends on what they are."""
    favourite: int
    """The class that it says most often."""
    share: float
    """Of the probes that it says that of."""


@dataclass(frozen=True)
class Gate:
    """Turns away uploads that training cannot have made, each with a line that says why.

    Args:
        spec: of the images that the models take.
        images: to probe with, half dead leaves and half strokes.
        largest_weight: in absolute value.
        largest_logit: in absolute value, of the answers to the probes.
        least_spread: of the answers; below it a model says the same whatever it is shown.
        most_doubt: as a share of the largest entropy; above it a model knows nothing. Averages of models have small
            logits, and poor or briefly trained ones are as doubtful as a new model is, which nothing tells apart. So
            this is asked of models without running statistics alone: those of others show whether they were trained.
        strangeness: of the running statistics, in variances, that is always too much in half of the layers.
        strangest_layer: what is always too much in any layer.
        times_usual: in the strangest layer also this many times the median of the classifiers with the same layers,
            where there are three or more of them, if that is above a quarter.
        seed: of the probes.
    """

    spec: DataSpec
    images: Images
    largest_weight: Positive
    largest_logit: Positive
    least_spread: Positive
    most_doubt: Share
    strangeness: Positive
    strangest_layer: Positive
    times_usual: Positive
    seed: Seed

    def __call__(self, uploads: Uploads) -> Uploads:
        """The uploads that are left; the others are in `quarantined`."""
        reasons = self._of_tensors(uploads)
        probed: dict[str, Probed] = {}
        for upload in (each for each in uploads.classifiers if each.name not in reasons):
            try:
                probed[upload.name] = self.probe(upload.model, upload.unknown)
            except Exception as error:  # whatever a stranger's model raises over images is its answer
                reasons[upload.name] = f"does not run on {self.images} images ({named_line(error)})"
        reasons |= self._of_answers(probed)
        reasons |= self._of_images([upload for upload in uploads.decoders if upload.name not in reasons])
        return uploads.without(reasons)

    def _of_tensors(self, uploads: Uploads) -> dict[str, str]:
        """What can be seen without asking a model anything."""
        reasons, seen = {}, dict[str, str]()
        for name, upload in uploads.named().items():
            model = own_model(upload.model)
            content = tensor_hash(model.state_dict().values())
            if wrong := wrong_tensor(model, self.largest_weight):
                reasons[name] = wrong
            elif content in seen:
                reasons[name] = f"is a copy of {seen[content]}, tensor by tensor"
            elif never_trained(model):
                reasons[name] = "was never trained: its running statistics are those that a new model has"
            seen.setdefault(content, name)
        return reasons

    @torch.no_grad()
    def probe(self, model: nn.Module, unknown: Collection[int] = ()) -> Probed:
        """What a classifier answers to images of no data set; of classes without an output it says nothing."""
        P, statistics = _asked(model, self._probes().to(place_of(model)))
        said = P.argmax(dim=1).bincount(minlength=P.shape[1])
        known = sorted({*range(P.shape[1])}.difference(unknown))
        strange = [_distance(layer) for layer in statistics]
        return Probed(
            largest=float(P.abs().max()),
            spread=float(P.std(dim=0).max()),
            doubt=float(entropy(P[:, known]).mean()) / math.log(max(2, len(known))),
            strangeness=median_high(strange) if strange else None,
            strangest=max(strange, default=None),
            layers=", ".join(f"{type(layer).__name__}({layer.num_features})" for layer in norm_layers(model)),
            favourite=int(said.argmax()),
            share=float(said.max()) / len(P),
        )

    def _probes(self) -> Tensor:
        rng = torch_generator(self.seed, "gate")
        return self.spec.normalise(shapes(max(2, self.images), self.spec, rng))

    def _of_answers(self, probed: dict[str, Probed]) -> dict[str, str]:
        reasons = {name: reason for name, found in probed.items() if (reason := self._wrong(found))}
        sound = {name: found for name, found in probed.items() if name not in reasons}
        for layers in sorted({found.layers for found in sound.values()}):
            peers = {name: found for name, found in sound.items() if found.layers == layers}
            reasons |= self._unusual({name: found.strangest for name, found in peers.items() if found.strangest})
        return reasons

    def _unusual(self, peers: dict[str, float]) -> dict[str, str]:
        """Whose running statistics are much further from its weights than those of others with the same layers."""
        if len(peers) < 3:
            return {}
        limit = max(ALLOWED, self.times_usual * median(peers.values()))
        usual = f"{self.times_usual:g} times what is usual here"
        told = f"{limit:.3g}, {usual if limit > ALLOWED else f'which is allowed also where it is more than {usual}'}"
        return {name: _misfit(far, told) for name, far in peers.items() if far > limit}

    def _wrong(self, found: Probed) -> str | None:
        """What is wrong with one classifier's answers, whatever the others say."""
        if not math.isfinite(found.largest):
            return "answers with numbers that are not finite"
        if found.largest > self.largest_logit:
            return f"its answers explode: a logit of {found.largest:.3g} on images of no data set"
        if found.spread < self.least_spread:
            return f"answers class {found.favourite} with the same logits whatever it is shown"
        if found.strangeness is None and found.doubt > self.most_doubt:
            return (
                "knows nothing, was trained only briefly, or is an average of models that do not fit: all classes are "
                f"nearly as likely to it whatever it is shown ({found.doubt:.4f} of the largest entropy; "
                f"gate.most_doubt={self.most_doubt:g}, with 1 it is taken)"
            )
        return self._too_strange(found)

    def _too_strange(self, found: Probed) -> str | None:
        if found.strangeness is not None and not found.strangeness <= self.strangeness:
            return _misfit(found.strangeness, f"{self.strangeness:g}, in half of its layers")
        if found.strangest is not None and not found.strangest <= self.strangest_layer:
            return _misfit(found.strangest, f"{self.strangest_layer:g}, in one of its layers")
        return None

    def _of_images(self, decoders: list[DecoderUpload]) -> dict[str, str]:
        """Decoders that draw no images, of whatever class they may be asked for."""
        classes = range(self.spec.classes)
        found = {
            each.name: flaw_of_drawn(
                each.model.eval(), each.latent, [j for j in classes if j not in each.unknown], self.spec.size
            )
            for each in decoders
        }
        return {name: flaw for name, flaw in found.items() if flaw}


def _asked(model: nn.Module, x: Tensor) -> tuple[Tensor, list[LayerStatistics]]:
    """Logits `[b, c]` on all images `[b, C, H, W]`, and every layer's statistics over all of them, piece by piece."""
    bank, pieces = ClientBank([model], mode="loop"), in_pieces(x, x.shape[-1])
    answers = [bank(piece, frozenset({"statistics"})) for piece in pieces]
    shares = [len(piece) / len(x) for piece in pieces]
    layers = zip(*(answer.statistics[0] for answer in answers), strict=True)
    return torch.cat([answer.logits[0] for answer in answers]), [_over_all(layer, shares) for layer in layers]


def _over_all(pieces: Sequence[LayerStatistics], shares: Sequence[float]) -> LayerStatistics:
    """One layer's statistics over several pieces of a batch, of which each makes up a share."""
    means = torch.stack([piece.batch_mean for piece in pieces])
    weights = torch.tensor(shares).to(means).unsqueeze(1)
    mean = (weights * means).sum(dim=0)
    squares = torch.stack([piece.batch_var for piece in pieces]) + (means - mean).square()
    return pieces[0]._replace(batch_mean=mean, batch_var=(weights * squares).sum(dim=0))


def wrong_tensor(model: nn.Module, largest: float) -> str | None:
    """The first tensor that no training leaves: not finite, larger than `largest`, or a variance below 0."""
    for name, tensor in model.state_dict().items():
        if not tensor.is_floating_point() or not tensor.numel():
            continue
        if not bool(torch.isfinite(tensor).all()):
            return f"tensor {name} holds a value that is not finite"
        if name.rpartition(".")[2] == "running_var" and float(tensor.min()) < 0:
            return f"tensor {name} is a variance, and holds a value below 0"
        if (most := float(tensor.abs().max())) > largest:
            return f"tensor {name} holds {most:.3g}, more than {largest:g}"
    return None


def never_trained(model: nn.Module) -> bool:
    """Whether all batch normalisation is as it begins: means of 0 and variances of 1."""
    states = [(layer.running_mean, layer.running_var) for layer in norm_layers(model)]
    return bool(states) and all(
        mean is not None and var is not None and not bool(mean.any()) and bool((var == 1).all()) for mean, var in states
    )


def _distance(layer: LayerStatistics) -> float:
    """Between the mean on the probes and the running mean, squared, in running variances; the mean over channels."""
    spread = layer.running_var.clamp_min(1e-5)
    return float(((layer.batch_mean - layer.running_mean).square() / spread).mean())


def _misfit(found: float, limit: str) -> str:
    return (
        "its running statistics are not those of its weights, which were changed afterwards or had too few steps of "
        f"training: {found:.3g} variances apart, more than {limit}"
    )
