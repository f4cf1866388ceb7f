"""FEDCVAE-ENS and FEDCVAE-KD: clients send decoders, the server trains on what they draw.

C. E. Heinbaugh, E. Luz-Ricca, H. Shao: Data-Free One-Shot Federated Learning Under Very High Statistical Heterogeneity,
ICLR 2023. The paper was not at hand; the card follows what its official code does.

| what | part | config key |
|---|---|---|
| all clients train conditional VAEs | `phases.clients`, `models.cvae` | `clients=all_cvae`, `cvae=fedcvae` |
| decoder k draws n_k / n of them, labels as it has them | `parts.decoders.shares_drawn` | `method.source.split` |
| noise from N(0, 1) cut off (not rescaled) | `parts.decoders.draw_noise` | `method.source.bound` |
| KD: one decoder learns from all, from their noise and labels | `OwnDecoderSource` | `method.source.epochs` |
| KD: it draws the images, labels uniform | `OwnDecoderSource` | `method.source.samples` |
| a classifier from scratch on them, CE, Adam 1e-3 | `parts.terms.LabelCrossEntropy` | `method.student` |

Numbers by data set are those of the code's `best_hyperparameters`: images, bound, and for KD epochs and images of the
decoder. Its epochs of clients (15, 25, 50, 100) and of the classifier (5 or 10) and the latent size are the budget's,
`distill.rounds` and `cvae.latent`.

Deviations:
- Batch size and passes of the classifier are `distill.batch_size` and `distill.rounds` (the code: 32, and 5 or 10).
- Images keep the data set's size and are classified in its normalised space; the code resizes everything to 32x32.
- KD: the server's decoder has the architecture of the first client with a VAE, where the code has a choice of its own;
  clients' images come at the data set's size, not at 32x32.

`method=fedcvae_fedmho` is what FedMHO's tables call FEDCVAE: ENS with noise that is not cut off, the split by squared
counts, and FedMHO's learning rates (1e-5 where its code names no data set) and numbers of images; clients there are
half `cvae_large`, half `cvae_small`.
"""

from typing import ClassVar

import torch

from oneshot_fl.data.batches import index_batches
from oneshot_fl.models.optimizers import OptimizerFactory
from oneshot_fl.models.precision import at_least_float32
from oneshot_fl.parts.decoders import DecoderSource, Split, draw, draw_noise
from oneshot_fl.parts.slots import Made, Minimise, Turn
from oneshot_fl.parts.uploads import Server
from oneshot_fl.seeds import seeded_by
from oneshot_fl.values import BatchSize, Count, Images, Positive


class OwnDecoderSource(DecoderSource):
    """Images from one decoder of the server's, which has learned to draw what the clients' decoders draw.

    Args:
        server: with the clients' decoders; a VAE of the first one's architecture is the server's.
        optimizer: of its decoder, which minimises the VAE's `distance`.
        samples: images for the classifier.
        taught: images of the clients' decoders that it learns from.
        epochs, batch_size: of that learning.
        split, bound: as in `DecoderSource`; the bound holds for all noise.
    """

    needs: ClassVar[frozenset[str]] = frozenset({"decoders", "own_decoder"})
    drawn_by: ClassVar[str] = "taught"

    def __init__(
        self,
        server: Server,
        *,
        optimizer: OptimizerFactory,
        samples: Images,
        taught: Images,
        epochs: Count,
        batch_size: BatchSize,
        split: Split,
        bound: Positive | None,
    ) -> None:
        super().__init__(server, samples=taught, split=split, bound=bound)
        self.build, self.optimizer = self.decoders[0].build, optimizer
        self.samples, self.epochs, self.batch_size = samples, epochs, batch_size
        vae = self.build()
        self.decoder, self.latent, self.distance = vae.decoder, vae.latent, vae.distance

    def begin(self, rng: torch.Generator) -> None:
        """The decoder's first weights."""
        with seeded_by(int(torch.randint(2**62, (1,), generator=rng))):
            self.decoder.load_state_dict(self.build().decoder.state_dict())

    def make(self, turn: Turn) -> Made:
        """The decoder learns, then it draws."""
        self._learn(turn.minimise, turn.rng)
        wanted = torch.randint(self.spec.classes, (self.samples,), generator=turn.rng)
        noise = draw_noise(self.samples, self.latent, self.bound, turn.rng)
        _, labels, images = draw(self.decoder, wanted, noise, size=self.spec.size)
        return Made(self.spec.normalise(images), labels)

    def _learn(self, minimise: Minimise, rng: torch.Generator) -> None:
        device = next(self.decoder.parameters()).device  # the clients' decoders stay where they were uploaded
        noise, labels, images = (torch.cat(column).to(device) for column in zip(*self.draws(rng), strict=True))
        self.decoder.train()
        for _ in range(self.epochs):
            for index in index_batches(len(labels), self.batch_size, rng, device=device):
                guess = at_least_float32(self.decoder.logits(noise[index], labels[index]))
                minimise(self.distance(guess, images[index]))
