"""A client with a conditional VAE: it learns to draw, and only its decoder leaves."""

import torch

from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.cvae import mlp
from oneshot_fl.phases.clients.cvae import Autoencoder
from oneshot_fl.phases.clients.train import ClientPlan, train_clients
from oneshot_fl.phases.clients.training import Training
from tests.parts import recipe_of


def test_a_vae_learns_and_its_client_uploads_decoder_and_label_counts(data, context):
    logged = []
    context.log.log = lambda metrics, step: logged.append(metrics["clients/00/loss"])
    adam = recipe_of(torch.optim.Adam, lr=0.01)
    training = Training(epochs=8, batch_size=16, optimizer=adam, seed=0)
    plan = ClientPlan(Architecture(recipe_of(mlp, latent=2, hidden=16)), training, Autoencoder())
    (client,) = train_clients(data, [torch.arange(44)], [plan], context=context)
    assert logged[-1] < logged[0]
    assert client.upload.label_counts.tolist() == [15, 15, 14]  # labels 0, 1, 2 in turn
    assert client.upload.latent == 2
    assert client.kind == "cvae"
    images = client.upload.model(torch.zeros(2, 2), torch.tensor([0, 2]))
    assert images.shape == (2, 1, 8, 8)
    assert images.min() >= 0
    assert images[1].mean() > images[0].mean()  # class 2 is brighter


def test_of_the_vae_only_the_decoder_leaves_and_the_server_can_build_another(spec):
    vae, kind = mlp(spec, latent=2, hidden=4), Autoencoder()
    assert kind.uploaded(vae) is vae.decoder
    assert kind.facts(torch.tensor([2, 0, 2]), 4) == {"label_counts": [1, 0, 2, 0]}
    assert kind.probe(vae, torch.zeros(2, 1, 8, 8), torch.tensor([0, 2])).shape == (2, 1, 8, 8)


def test_a_vae_draws_pixels_and_not_what_classifiers_see(spec):
    vae, seen = mlp(spec, latent=2, hidden=4), []
    vae.loss = lambda x, y, noise: seen.append(x) or x.sum()  # type: ignore[method-assign]
    pixels = torch.rand(2, 1, 8, 8)
    training = Training(epochs=1, batch_size=2, optimizer=recipe_of(torch.optim.Adam, lr=0.01), seed=0)
    Autoencoder().module(vae, training, [], spec).loss((spec.normalise(pixels), torch.tensor([0, 1])))
    assert torch.allclose(seen[0], pixels, atol=1e-6)
