"""Client-wise inversion, against the same written with a plain loop (FedChorus, Eqs. 1-4)."""

from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.generators import ConvGenerator, Pixels
from oneshot_fl.parts.procedural import dead_leaves, textures
from oneshot_fl.parts.terms import Adversarial, BatchNormStatistics, CrossEntropy, Roughness
from oneshot_fl.parts.uploads import Uploads
from oneshot_fl.phases import recite as phase
from oneshot_fl.phases.recite import Recitals, Recitation, recite
from oneshot_fl.seeds import torch_generator
from tests.parts import recipe_of, uploads_of

SPEC = DataSpec(1, 8, 3, (0.5,), (0.5,))
COLOUR = DataSpec(3, 8, 3, (0.5,) * 3, (0.5,) * 3)
TERMS = {
    "ce": recipe_of(CrossEntropy, weight=1.0),
    "bn": recipe_of(BatchNormStatistics, weight=0.5),
    "tv": recipe_of(Roughness, weight=0.05),
}
SETTINGS = Recitation(
    images=6,
    batch_size=4,
    steps=3,
    labels="counts",
    generator=recipe_of(Pixels, count=4, bounded=True),
    start="noise",
    shaken=0.0,
    mirrored="always",
    optimizer=recipe_of(torch.optim.Adam, lr=0.1),
    without_statistics=0.5,
    objective=TERMS,
    seed=3,
)


@pytest.fixture
def uploads() -> Uploads:
    """With batch normalisation."""
    return _two_clients(norm=True)


def _two_clients(*, norm: bool) -> Uploads:
    """One has classes 0 and 1, the other class 2 alone."""
    models = [cnn2(SPEC, norm=norm) for _ in range(2)]
    for model in models:
        model(torch.randn(64, 1, 8, 8))
        model.eval()
    plain = uploads_of(models, [10, 10])
    counts = (torch.tensor([6, 4, 0]), torch.tensor([0, 0, 10]))
    return Uploads(tuple(replace(one, label_counts=own) for one, own in zip(plain.classifiers, counts, strict=True)))


def _run(uploads, context, **options) -> Recitals:
    return recite(uploads, spec=SPEC, settings=replace(SETTINGS, **options), context=context)


def test_every_client_recites_its_own_classes(uploads, context):
    first, second = _run(uploads, context).of_clients
    assert first.images.shape == second.images.shape == (6, 1, 8, 8)
    assert first.images.dtype == torch.uint8
    assert set(first.labels.tolist()) <= {0, 1}
    assert second.labels.tolist() == [2] * 6


@pytest.mark.parametrize(("norm", "rate"), [(True, 0.1), (False, 0.05)])
def test_a_batch_equals_a_plain_loop_over_eqs_1_to_4(norm, rate, context):
    """At half the rate where there are no statistics."""
    uploads = _two_clients(norm=norm)
    client, (recital, _) = uploads.models[0], _run(uploads, context).of_clients
    pixels = torch.empty(4, 1, 8, 8).normal_(generator=torch_generator(3, "recital", 0, 0)).requires_grad_()
    optimizer = torch.optim.Adam([pixels], lr=rate)
    layers = [layer for layer in client.modules() if isinstance(layer, torch.nn.BatchNorm2d)]
    for _ in range(3):
        x, inputs = (pixels.sigmoid() - 0.5) / 0.5, []
        hooks = [
            layer.register_forward_pre_hook(lambda _, args, inputs=inputs: inputs.append(args[0])) for layer in layers
        ]
        loss = F.cross_entropy(client(x), recital.labels[:4])
        for hook in hooks:
            hook.remove()
        for layer, seen in zip(layers, inputs, strict=True):
            mean, variance = seen.mean((0, 2, 3)), seen.var((0, 2, 3), unbiased=False)
            loss = loss + 0.5 * ((mean - layer.running_mean).norm() + (variance - layer.running_var).norm())
        loss = loss + 0.05 * ((x[:, :, 1:] - x[:, :, :-1]).abs().mean() + (x[..., 1:] - x[..., :-1]).abs().mean())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert_close(recital.images[:4].float(), pixels.sigmoid() * 255, rtol=0, atol=1.01)


@pytest.mark.parametrize(("spec", "drawn"), [(SPEC, dead_leaves), (COLOUR, textures)])
def test_recitals_begin_as_dead_leaves_and_in_colour_as_textures(spec, drawn, context):
    """At a rate that moves no pixel by half a step of its byte, they are still what they began as."""
    (upload,) = uploads_of([cnn2(spec, norm=True).eval()], [10]).classifiers
    uploads = Uploads((replace(upload, label_counts=torch.tensor([6, 4, 0])),))
    still = replace(SETTINGS, start="drawings", optimizer=recipe_of(torch.optim.SGD, lr=1e-9))
    (recital,) = recite(uploads, spec=spec, settings=still, context=context).of_clients
    rng = torch_generator(3, "recital", 0, 0)
    torch.empty(4, spec.channels, 8, 8).normal_(generator=rng)  # the noise that drawings take the place of
    began = drawn(4, spec, rng).clamp(0.02, 0.98)
    assert_close(recital.images[:4].float(), began * 255, rtol=0, atol=1.01)


def test_in_every_step_a_client_sees_images_shaken_by_a_share_of_their_side(uploads, context, monkeypatch):
    plain, seen, real = _run(uploads, context), [], phase.shaken
    monkeypatch.setattr(phase, "shaken", lambda x, **how: seen.append(how["most"]) or real(x, **how))
    shaken = _run(uploads, context, shaken=0.25)
    assert seen == [2] * (2 * 2 * SETTINGS.steps)  # of 8 pixels; two clients, two batches each
    assert not torch.equal(shaken.of_clients[0].images, plain.of_clients[0].images)


def test_half_a_pixel_moves_nothing(uploads, context):
    plain, same = _run(uploads, context), _run(uploads, context, shaken=0.0625)
    assert torch.equal(same.of_clients[0].images, plain.of_clients[0].images)


@pytest.mark.parametrize(
    ("mirrored", "spec", "turned"),
    [
        ("always", SPEC, True),
        ("always", COLOUR, True),
        ("in_colour", SPEC, False),
        ("in_colour", COLOUR, True),
        ("never", SPEC, False),
        ("never", COLOUR, False),
    ],
)
def test_digits_are_moved_and_not_mirrored(mirrored, spec, turned):
    """A ramp from left to right rises everywhere but where it was rolled around, unless it is turned."""
    ramp, rng = torch.arange(8.0).expand(1, spec.channels, 8, 8), torch_generator(0)
    seen = replace(SETTINGS, shaken=0.125, mirrored=mirrored).seen(spec, rng)
    falls = {bool((seen(ramp).diff(dim=3) < 0).sum() > 8 * spec.channels) for _ in range(30)}
    assert falls == ({True, False} if turned else {False})


def test_without_label_counts_the_labels_are_what_a_model_shows(uploads, context):
    model = uploads.models[0]
    with torch.no_grad():
        model[-1].bias.copy_(torch.tensor([0.0, -99.0, 0.0]))
    silent = Uploads(tuple(replace(one, label_counts=None) for one in uploads.classifiers))
    recital = _run(silent, context, labels="estimated", images=40, steps=1).of_clients[0]
    assert 1 not in recital.labels
    with pytest.raises(ValueError, match="label counts are declared"):
        _run(silent, context)


def test_nobody_recites_a_class_that_its_model_has_no_output_for(uploads, context):
    silent = Uploads(tuple(replace(one, label_counts=None, unknown=(0, 2)) for one in uploads.classifiers))
    for recital in _run(silent, context, labels="estimated", images=40, steps=1).of_clients:
        assert recital.labels.tolist() == [1] * 40


def test_a_model_whose_answers_are_not_finite_shows_no_labels(uploads, context):
    torch.nn.init.constant_(uploads.models[1][-1].bias, torch.nan)
    with pytest.raises(OneshotError, match=r"^recite\.labels=estimated: client 1 answers .*gate=checks"):
        _run(uploads, context, labels="estimated")


def test_a_recital_that_diverges_names_its_upload_and_the_rate(uploads, context):
    left = uploads.without({"client 0": "turned away"})
    line = r"^recitals of client 1 diverged: .*lower recite\.optimizer\.lr=1e\+38$"
    with pytest.raises(OneshotError, match=line):
        _run(left, context, optimizer=recipe_of(torch.optim.SGD, lr=1e38), generator=recipe_of(Pixels, count=4))


def test_of_an_upload_that_is_not_finite_no_rate_is_blamed(uploads, context):
    torch.nn.init.constant_(uploads.models[1][-1].weight, torch.nan)
    left = uploads.without({"client 0": "turned away"})
    line = r"^recitals of client 1: tensor .*weight of its upload is not finite; gate=checks turns such uploads away$"
    with pytest.raises(OneshotError, match=line):
        _run(left, context)


def test_a_generator_may_draw_the_recitals(uploads, context):
    generator = recipe_of(ConvGenerator, noise=6, width=4)
    drawn, pixels = _run(uploads, context, generator=generator), _run(uploads, context)
    assert drawn.of_clients[0].images.shape == (6, 1, 8, 8)
    assert not torch.equal(drawn.of_clients[0].images, pixels.of_clients[0].images)


def test_finished_batches_are_not_made_again_and_counted_once(uploads, context, monkeypatch, clock):
    whole, calls, real = _run(uploads, context, seed=4), [], phase._invert

    def dies_on_the_second(*args):
        calls.append(args[-1])
        if len(calls) == 2:
            raise KeyboardInterrupt
        clock.tick()
        return real(*args)

    monkeypatch.setattr(phase, "_invert", dies_on_the_second)
    again = replace(context, store=type(context.store)(context.store.root / "other"))
    with pytest.raises(KeyboardInterrupt):
        _run(uploads, again, seed=4)
    resumed = _run(uploads, again, seed=4)
    assert calls == [0, 1, 1, 0, 1]
    assert resumed.spent.cost.macs == whole.spent.cost.macs > 0
    assert resumed.spent.cost.seconds == 4  # a batch takes one
    for one, other in zip(whole.of_clients, resumed.of_clients, strict=True):
        assert torch.equal(one.images, other.images)


def test_a_term_cannot_look_at_a_student_that_there_is_not(uploads, context):
    adversarial = {"adv": recipe_of(Adversarial, weight=1.0, temperature=1.0, only_disagreement=False)}
    with pytest.raises(OneshotError, match=r"recite\.objective: there is no student yet"):
        _run(uploads, context, objective=adversarial)


def test_clients_of_one_model_have_recitals_of_their_own(uploads, context):
    first = uploads.classifiers[0]
    same = Uploads((first, replace(first, name="its double", draws=1)))
    recitals = _run(same, context).of_clients
    assert recitals[0].key != recitals[1].key
    assert not torch.equal(recitals[0].images, recitals[1].images)


def test_what_a_client_recites_does_not_hang_on_who_else_is_left(uploads, context):
    _, second = _run(uploads, context).of_clients
    (alone,) = _run(uploads.without({"client 0": "says nothing"}), context).of_clients
    assert alone.key == second.key
    assert torch.equal(alone.images, second.images)
