"""The gate turns away what training cannot have made, each kind for its own reason, and nobody who trained."""

from copy import deepcopy
from dataclasses import asdict, replace
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from oneshot_fl.models.aligned import AlignedClassifier
from oneshot_fl.models.bank import LayerStatistics
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.cvae import mlp
from oneshot_fl.models.moments import batch_moments
from oneshot_fl.parts import attacks, gate, view
from oneshot_fl.parts.gate import Gate, Probed, never_trained, wrong_tensor
from oneshot_fl.parts.uploads import Uploads
from tests.parts import SMALL, FixedLogits, decoder_of, uploads_of

GATE = Gate(
    SMALL,
    images=64,
    largest_weight=1e6,
    largest_logit=1e3,
    least_spread=1e-3,
    most_doubt=0.99,
    strangeness=3.0,
    strangest_layer=30.0,
    times_usual=4.0,
    seed=0,
)


def _trained(seed: int, *, norm: bool = True) -> nn.Module:
    """A client that has seen a single class, a brighter one for every seed."""
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = cnn2(SMALL, norm=norm)
        optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
        for _ in range(30):
            x = SMALL.normalise((torch.rand(20, 1, 8, 8) * (0.5 + 0.1 * seed)).clamp(0, 1))
            optimizer.zero_grad()
            F.cross_entropy(model(x), torch.full((20,), seed % 3)).backward()
            optimizer.step()
    return model.eval()


@pytest.fixture(scope="module")
def honest() -> Uploads:
    return uploads_of([_trained(seed) for seed in range(5)], [20] * 5)


def test_clients_of_a_single_class_each_are_all_let_through(honest):
    after = GATE(honest)
    assert after.quarantined == ()
    assert after.classifiers == honest.classifiers


HOSTILE: dict[str, tuple[attacks.Tampering, str]] = {
    "nan": (attacks.Filled(value="nan", clients=1), "not finite"),
    "inf": (attacks.Filled(value="inf", clients=1), "not finite"),
    "zero": (attacks.Filled(value="zero", clients=1), "the same logits whatever it is shown"),
    "scale": (attacks.Scaled(factor=10.0, clients=1), "explode"),
    "scale far": (attacks.Scaled(factor=1e8, clients=1), "more than 1e+06"),
    "sign flip": (attacks.Scaled(factor=-1.0, clients=1), "running statistics"),
    "noise": (attacks.Noisy(deviation=10.0, clients=1), "explode"),
    "negative variance": (attacks.NegativeVariance(clients=1), "a value below 0"),
    "constant voter": (
        attacks.ConstantVoter(spec=SMALL, chosen=2, logit=20.0, clients=1),
        "class 2 with the same logits",
    ),
    "free rider": (attacks.FreeRider(clients=1), "never trained"),
    "copycat": (attacks.Copycat(clients=1), "a copy of client 0"),
}


@pytest.mark.parametrize(("attack", "says"), HOSTILE.values(), ids=HOSTILE)
def test_every_kind_of_tampering_is_seen_for_what_it_is(attack, says, honest):
    after = GATE(attack(honest))
    assert [one.name for one in after.quarantined] == ["client 4"]
    assert says in after.quarantined[0].reason
    assert [one.name for one in after.classifiers] == ["client 0", "client 1", "client 2", "client 3"]


def test_a_copy_that_is_told_of_otherwise_is_one_all_the_same(honest):
    first, second, third = (upload.model for upload in honest.classifiers[:3])
    renamed = AlignedClassifier(deepcopy(first), replace(SMALL, mean=(0.4,)), SMALL, [1, 0, 2]).eval()
    after = GATE(uploads_of([first, second, third, renamed], [20] * 4))
    assert [(one.name, one.reason) for one in after.quarantined] == [
        ("client 3", "is a copy of client 0, tensor by tensor")
    ]


def test_an_untrained_model_without_running_statistics_knows_nothing():
    torch.manual_seed(0)
    untrained = cnn2(SMALL, norm=False)
    with torch.no_grad():
        untrained[-1].weight.mul_(0.2)
        untrained[-1].bias.zero_()
    after = GATE(uploads_of([untrained.eval(), _trained(1, norm=False)], [1, 1]))
    assert [(one.name, one.reason[:13]) for one in after.quarantined] == [("client 0", "knows nothing")]


def test_small_logits_as_averages_of_models_have_them_are_no_ignorance():
    average = _trained(1, norm=False)
    with torch.no_grad():
        average[-1].weight.mul_(0.055)
        average[-1].bias.mul_(0.055)
    assert 0.98 < GATE.probe(average).doubt < 0.99
    assert not GATE(uploads_of([average], [1])).quarantined


def test_what_running_statistics_show_to_be_trained_may_have_flat_answers():
    brief = _trained(1)
    with torch.no_grad():
        brief[-1].weight.mul_(0.01)
        brief[-1].bias.mul_(0.01)
    assert GATE.probe(brief).doubt > 0.99
    assert not GATE(uploads_of([brief], [1])).quarantined


def test_who_knows_nothing_of_its_own_classes_does_so_beside_classes_that_it_lacks():
    torch.manual_seed(0)
    own, wider = replace(SMALL, classes=2), replace(SMALL, classes=12)
    untrained = cnn2(own, norm=False)
    with torch.no_grad():
        untrained[-1].weight.mul_(0.2)
        untrained[-1].bias.zero_()
    aligned = AlignedClassifier(untrained, own, wider, [0, 1, *[None] * 10]).eval()
    (upload,) = uploads_of([aligned], [1]).classifiers
    after = replace(GATE, spec=wider)(Uploads((replace(upload, unknown=tuple(range(2, 12))),)))
    assert [one.reason[:13] for one in after.quarantined] == ["knows nothing"]


def test_what_was_turned_away_before_is_still_told(honest):
    first = GATE(attacks.FreeRider(clients=1)(honest))
    assert GATE(first).quarantined == first.quarantined


def test_a_decoder_that_draws_no_images_is_turned_away():
    sound, broken = (decoder_of(mlp(SMALL, latent=2, hidden=4), [1, 0, 4], key=key) for key in ("sound", "broken"))
    broken.model.forward = lambda z, y: torch.full((len(y), 1, 8, 8), torch.nan)
    after = GATE(uploads_of([], [], [sound, broken]))
    assert [one.name for one in after.quarantined] == ["broken"]
    assert after.decoders == (sound,)


@pytest.mark.parametrize(("unknown", "turned_away"), [((), ["decoder"]), ((1,), [])])
def test_a_decoder_is_asked_for_classes_of_which_it_has_no_image_but_for_those_that_it_does_not_know(
    unknown, turned_away
):
    broken = decoder_of(mlp(SMALL, latent=2, hidden=4), [1, 0, 4])
    broken.model.forward = lambda z, y: torch.zeros(len(y), 1, 8, 8) / (y != 1).view(-1, 1, 1, 1)
    after = GATE(uploads_of([], [], [replace(broken, unknown=unknown)]))
    assert [one.name for one in after.quarantined] == turned_away


def test_answers_that_are_not_finite_are_seen_though_all_weights_are():
    huge = FixedLogits([1.0, 2.0, 3.0])
    huge.forward = lambda x: huge.logits * torch.full((len(x), 1), torch.inf)  # type: ignore[method-assign]
    assert "not finite" in GATE(uploads_of([huge], [1])).quarantined[0].reason


def _sound(**changes: Any) -> Probed:
    sound = Probed(1.0, 1.0, 0.5, strangeness=None, strangest=None, layers="", favourite=0, share=0.5)
    return replace(sound, **changes)


def _told_strange(distances: dict[str, list[float]]) -> dict[str, str]:
    """Who is turned away of classifiers whose layers are so many variances away, by what their layers are."""
    probed = {
        f"{layers} {number}": _sound(layers=layers, strangeness=distance, strangest=distance)
        for layers, several in distances.items()
        for number, distance in enumerate(several)
    }
    return GATE._of_answers(probed)


def _strange(distances: dict[str, list[float]]) -> list[str]:
    return sorted(_told_strange(distances))


def test_a_model_that_raises_over_many_images_is_turned_away(honest):
    few = FixedLogits([1.0, 2.0, 3.0])
    few.register_forward_pre_hook(lambda _model, args: _refuse_many(args[0]))
    after = GATE(uploads_of([few, *honest.models], [1] * 6))
    assert [one.name for one in after.quarantined] == ["client 0"]
    assert after.quarantined[0].reason == "does not run on 64 images (ValueError: four are enough)"


def _refuse_many(x: torch.Tensor) -> None:
    if len(x) > 4:
        raise ValueError("four are enough")


def test_the_usual_is_asked_only_of_three_clients_or_more():
    """Two clients do not outvote each other; what is always too much, 3 variances, is so for them as well."""
    assert _strange({"a": [0.1, 2.9]}) == []
    assert _strange({"a": [0.1, 3.1]}) == ["a 1"]
    assert _strange({"a": [0.1, 0.12, 2.9]}) == ["a 2"]  # above 4 * 0.12


def test_a_deep_network_may_have_a_layer_that_is_far_off():
    """A ResNet-10 that was trained on digits in 60 steps: 0.3 variances in half of its layers, 4.6 in the last."""
    assert GATE._wrong(_sound(strangeness=0.3, strangest=4.6)) is None
    assert str(GATE._wrong(_sound(strangeness=3.1, strangest=4.6))).endswith("more than 3, in half of its layers")
    assert str(GATE._wrong(_sound(strangeness=0.3, strangest=31.0))).endswith("more than 30, in one of its layers")


@torch.no_grad()
def _off_by(*deviations: float) -> nn.Module:
    """Layers whose running means are so many standard deviations away from what reaches them."""
    x, layers = GATE._probes(), []
    for deviation in deviations:
        layer = nn.BatchNorm2d(1, eps=1e-12).eval()
        mean, layer.running_var = batch_moments(x)
        layer.running_mean = mean + deviation * layer.running_var.sqrt()
        x = layer(x)
        layers.append(layer)
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(64, 3)).eval()


def test_strangeness_is_that_of_the_layer_in_the_middle_of_two_the_larger():
    probed = GATE.probe(_off_by(1.0, 4.0, 2.0))
    assert (probed.strangeness, probed.strangest) == (pytest.approx(4, rel=1e-3), pytest.approx(16, rel=1e-3))
    assert GATE.probe(_off_by(1.0, 4.0)).strangeness == pytest.approx(16, rel=1e-3)


def test_a_quarter_of_a_variance_is_never_too_much():
    assert _strange({"a": [0.01, 0.01, 0.25]}) == []
    (reason,) = _told_strange({"a": [0.01, 0.01, 0.26]}).values()
    assert reason.endswith("more than 0.25, which is allowed also where it is more than 4 times what is usual here")
    (reason,) = _told_strange({"a": [0.1, 0.12, 2.9]}).values()
    assert reason.endswith("more than 0.48, 4 times what is usual here")


def test_networks_of_other_layers_have_a_usual_of_their_own():
    """An honest MLP's hidden units lie much further away than the channels of convolutions."""
    assert _strange({"a": [0.1, 0.1, 0.1], "b": [1.2]}) == []
    assert _strange({"a": [0.1, 0.1, 0.5], "b": [1.2, 1.2, 1.3]}) == ["a 2"]


def test_what_the_layers_are_is_read_off_the_model():
    mlp_of_two = nn.Sequential(nn.Flatten(), nn.Linear(64, 5), nn.BatchNorm1d(5), nn.Linear(5, 3)).eval()
    assert GATE.probe(mlp_of_two).layers == "BatchNorm1d(5)"
    assert GATE.probe(cnn2(SMALL, norm=False).eval()).layers == ""


def _told(probed: Probed) -> dict[str, float]:
    """What there is a number of."""
    return {name: value for name, value in asdict(probed).items() if isinstance(value, int | float)}


@pytest.mark.parametrize("norm", [True, False])
def test_a_model_is_asked_about_as_many_images_at_once_as_have_so_many_pixels(norm, monkeypatch):
    model, seen = _trained(1, norm=norm), []
    model.register_forward_pre_hook(lambda _module, args: seen.append(len(args[0])))
    whole = GATE.probe(model)
    monkeypatch.setattr(view, "PIXELS_AT_ONCE", 10 * SMALL.size**2 + 1)
    pieces = GATE.probe(model)
    assert seen == [64, *[10] * 6, 4]
    assert _told(pieces) == pytest.approx(_told(whole), rel=1e-5)
    monkeypatch.setattr(view, "PIXELS_AT_ONCE", 1)  # one image has more
    assert _told(GATE.probe(model)) == pytest.approx(_told(whole), rel=1e-5)


def test_a_decoder_draws_so_many_images_at_once(monkeypatch):
    drawn = []
    broken = decoder_of(mlp(SMALL, latent=2, hidden=4), [1, 0, 4])
    broken.model.forward = lambda z, y: drawn.append(y.tolist()) or torch.full((len(y), 1, 8, 8), torch.nan)
    monkeypatch.setattr(view, "PIXELS_AT_ONCE", SMALL.size**2)
    assert [one.name for one in GATE(uploads_of([], [], [broken])).quarantined] == ["decoder"]
    assert drawn == [[0]]


def test_statistics_of_pieces_are_those_of_the_whole_batch():
    x, layer = torch.randn(7, 3, 4, 4), nn.BatchNorm2d(3).eval()
    running = layer.running_mean, layer.running_var
    pieces = [LayerStatistics(*batch_moments(piece), *running) for piece in x.split(3)]
    found = gate._over_all(pieces, [3 / 7, 3 / 7, 1 / 7])
    for own, whole in zip(found, (*batch_moments(x), *running), strict=True):
        assert torch.allclose(own, whole, atol=1e-6)


def test_tensors_are_looked_at_one_by_one():
    layer = nn.BatchNorm2d(2)
    assert wrong_tensor(layer, 1e6) is None
    assert never_trained(layer)
    layer.running_var[1] = 0.0
    assert wrong_tensor(layer, 1e6) is None  # a channel that is always the same
    assert not never_trained(layer)
    layer.running_var[1] = -1e-3
    assert "below 0" in str(wrong_tensor(layer, 1e6))
    assert not never_trained(nn.Linear(2, 2))


def test_one_layer_whose_statistics_are_not_its_own_is_enough():
    x, true, shifted = GATE._probes(), nn.BatchNorm2d(1, eps=1e-12), nn.BatchNorm2d(1)
    true.running_mean, true.running_var = batch_moments(x)
    shifted.running_mean.fill_(10.0)  # standard deviations
    model = nn.Sequential(true, shifted, nn.Flatten(), nn.Linear(64, 3)).eval()
    assert GATE.probe(model).strangest == pytest.approx(100, rel=1e-3)
    assert "in half of its layers" in GATE(uploads_of([model], [1])).quarantined[0].reason


def test_a_model_may_answer_some_classes_alike_whatever_it_is_shown():
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3)).eval()
    with torch.no_grad():
        model[1].weight[1:] = 0
        varies = float(model(GATE._probes())[:, 0].std())
    assert GATE.probe(model).spread == pytest.approx(varies, rel=1e-4)


def test_a_large_weight_below_zero_is_as_large():
    layer = nn.Linear(1, 2, bias=False)
    layer.weight.data = torch.tensor([[-200.0], [1.0]])
    assert wrong_tensor(layer, 100.0) == "tensor weight holds 200, more than 100"


def test_doubt_is_about_the_classes_that_a_model_has_an_output_for():
    unsure = FixedLogits([0.0, 0.0, 50.0])  # what stands for the third class is nobody's answer
    assert GATE.probe(unsure, unknown=(2,)).doubt == pytest.approx(1.0)
    assert GATE.probe(unsure).doubt == pytest.approx(0.0, abs=1e-6)
