"""Distances by hand, what the features are, and that the classifier is trained once."""

from dataclasses import replace

import pytest
import torch
from torch import nn
from torchmetrics.image.fid import FrechetInceptionDistance

from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.dataset import make_dataset
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.phases.clients.training import Training
from oneshot_fl.phases.fidelity import FidelityReference, distances, features, gaussian_noise, measure, two_draws
from tests.parts import recipe_of

CROSS = torch.tensor([[1.0, 0.0], [-1.0, 0.0], [0.0, 2.0], [0.0, -2.0]]).double()
"""Mean 0; covariance diag(2/3, 8/3), sums of squares over n - 1 = 3."""


def test_the_fid_of_two_gaussians():
    # stretched by (2, 3) and moved by (3, 4): |mu_1 - mu_2|^2 = 25, covariance diag(4 * 2/3, 9 * 8/3); where both are
    # diagonal tr(S_1 + S_2 - 2 (S_1 S_2)^(1/2)) = (2 - 1)^2 * 2/3 + (3 - 1)^2 * 8/3 = 34/3
    moved = CROSS * torch.tensor([2.0, 3.0]) + torch.tensor([3.0, 4.0])
    assert distances(CROSS, moved, seed=0).fid == pytest.approx(25 + 34 / 3, abs=1e-9)
    assert distances(CROSS, CROSS, seed=0).fid == pytest.approx(0, abs=1e-9)


def test_the_kid_of_two_points():
    # k(a, b) = (a.b / d + 1)^3: k(0, 0) = k(0, q) = 1, k(q, q) = (4 / 2 + 1)^3 = 27; MMD^2 = 1 + 27 - 2 * 1
    found = distances(torch.zeros(8, 2).double(), torch.tensor([2.0, 0.0]).double().expand(8, 2), seed=0)
    assert found.kid == pytest.approx(26, abs=1e-9)
    assert found.kid_std == pytest.approx(0, abs=1e-9)


def test_more_features_than_images_are_measured_as_they_are():
    first, second = torch.randn(6, 40).double() + 1, 2 * torch.randn(6, 40).double()
    directly = FrechetInceptionDistance(nn.Identity(), input_img_size=(40,))
    directly.update(first, real=True)
    directly.update(second, real=False)
    zeros = torch.zeros(6, 40).double()
    found = distances(first, second, seed=0)
    assert found.fid == pytest.approx(float(directly.compute()), rel=1e-6)
    assert distances(zeros, second, seed=0).fid == pytest.approx(  # |mu_2|^2 + tr S_2
        float(second.mean(dim=0).square().sum() + second.var(dim=0).sum()), rel=1e-6
    )
    point = torch.zeros(6, 40).double()
    point[:, 7] = 2.0
    assert distances(zeros, point, seed=0).kid == pytest.approx((4 / 40 + 1) ** 3 - 1, abs=1e-9)  # 1 + k - 2


def test_features_are_what_enters_the_last_linear_layer(spec):
    images = torch.randint(256, (5, 1, 8, 8), dtype=torch.uint8)
    classifier = nn.Sequential(nn.Flatten(), nn.Dropout(0.9), nn.Linear(64, 3))  # behind nothing but the pixels
    found = features(classifier, images, spec, batch_size=2)
    assert found.dtype == torch.float64
    torch.testing.assert_close(found, spec.to_input(images).flatten(1).double())


def test_two_draws_share_nothing():
    first, second = two_draws(9, 4, seed=0)
    assert (len(first), len(second)) == (4, 4)
    assert len({*first.tolist(), *second.tolist()}) == 8
    assert not torch.equal(first, two_draws(9, 4, seed=1)[0])


def test_noise_has_the_mean_and_standard_deviation_of_the_data(spec):
    narrow = spec.__class__(channels=1, size=8, classes=3, mean=(0.4,), std=(0.1,))  # 4 sigma from black
    noise = gaussian_noise(narrow, 100, seed=0)
    assert (noise.shape, noise.dtype) == ((100, 1, 8, 8), torch.uint8)
    assert noise.float().mean() / 255 == pytest.approx(0.4, abs=0.01)
    assert noise.float().std() / 255 == pytest.approx(0.1, abs=0.01)


@pytest.fixture
def data():
    """Three classes of stripes, alike in training and test set."""
    labels = torch.arange(90) % 3
    images = (labels.view(-1, 1, 1, 1) * 90 + torch.randint(40, (90, 1, 8, 8))).to(torch.uint8)
    images[:, :, ::2] = 0
    both = images, labels
    return make_dataset(name="stripes", train=both, test=both, class_names=("a", "b", "c"), mean=[0.5], std=[0.5])


def _reference(*, build=cnn2, samples=30, lr=0.01, **options) -> FidelityReference:
    training = Training(epochs=8, batch_size=16, optimizer=recipe_of(torch.optim.Adam, lr=lr), seed=0)
    settings = options or {"norm": True}
    return FidelityReference(Architecture(recipe_of(build, name="cnn2", **settings)), training, samples)


def _measure(data, context, images, labels, **options):
    test = ImageBatches(data.test_images, data.test_labels, spec=data.spec, batch_size=64)
    return measure(_reference(**options), images, labels, data=data, test=test, context=context)


def test_good_images_are_nearer_than_noise_and_the_classifier_is_trained_once(data, context, monkeypatch):
    logged = []
    context.log.within = lambda prefix: (logged.append(prefix), context.log)[1]
    found = _measure(data, context, data.train_images, data.train_labels)
    assert found.synthetic.fid < found.noise.fid / 5
    assert found.real.fid < found.noise.fid / 5  # 30 images are few: its expectation is not 0
    assert found.synthetic.kid < found.noise.kid / 10
    assert (found.extractor, found.epochs, found.samples) == ("cnn2", 8, 30)
    assert found.accuracy > 0.9
    assert logged == ["fidelity/"]
    monkeypatch.setattr("lightning.pytorch.Trainer.fit", None)
    assert _measure(data, context, data.train_images, data.train_labels) == found


def test_the_classifier_begins_where_no_client_of_its_seed_does(data, context, monkeypatch):
    """Else the images of that seed's clients lie nearer to real ones than others' do."""
    begin, begun = Architecture.as_clients_begin, []

    def watched(*given):
        model = begin(*given)
        begun.append(model[0].weight.detach().clone())
        return model

    monkeypatch.setattr(Architecture, "as_clients_begin", watched)
    _measure(data, context, data.train_images, data.train_labels)
    clients = begin(_reference().architecture, data.spec, 0)[0].weight
    assert [torch.equal(weight, clients) for weight in begun] == [False]


def test_too_few_images_are_refused_before_anything_is_trained(data, context, monkeypatch):
    monkeypatch.setattr("lightning.pytorch.Trainer.fit", None)
    with pytest.raises(OneshotError, match=r"^evaluate\.fidelity\.samples=30: .* only 29 synthetic images.*29 or less"):
        _measure(data, context, data.train_images[:29], data.train_labels[:29])


def test_a_diverged_classifier_names_its_own_learning_rate(data, context):
    with pytest.raises(OneshotError, match=r"diverged, .*; lower evaluate\.fidelity\.optimizer\.lr=1e\+30$"):
        _measure(data, context, data.train_images, data.train_labels, lr=1e30)


def pixels(spec) -> nn.Module:
    return nn.Sequential(nn.Conv2d(spec.channels, spec.classes, spec.size), nn.Flatten())


def test_what_cannot_be_measured_on_a_data_set_is_refused(data):
    _reference(samples=45).check(data)
    with pytest.raises(OneshotError, match=r"^evaluate\.fidelity\.samples=46: .*has 90 .*set it to 45 or less"):
        _reference(samples=46).check(data)
    without = replace(_reference(), architecture=Architecture(recipe_of(pixels, name="pixels")))
    with pytest.raises(OneshotError, match=r"^evaluate\.fidelity\.model=pixels: runs no linear layer"):
        without.check(data)


def test_the_kernel_distance_is_of_subsets_of_half_of_the_images():
    rng = torch.Generator().manual_seed(0)
    first, second = (torch.randn(40, 4, generator=rng).double() for _ in range(2))
    assert distances(first, second, seed=0).kid_std > 1e-3  # all subsets of the whole are the same


def test_of_images_that_come_sorted_some_of_every_class_are_compared(data, context):
    order = data.train_labels.argsort(stable=True)
    found = _measure(data, context, data.train_images[order], data.train_labels[order])
    assert found.synthetic.fid < found.noise.fid / 5
