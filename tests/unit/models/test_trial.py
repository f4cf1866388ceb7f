"""Models that do not fit the images that are there are refused before anything is trained."""

import pytest
import torch
from torch import nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.trial import check_models, try_model
from tests.parts import SMALL, recipe_of


class _Classifier(nn.Module):
    """Takes images of one side alone, as vision transformers do; may answer with more than its logits."""

    def __init__(self, spec, *, side, several=False, classes=None):
        super().__init__()
        self.side, self.several = side, several
        self.linear = nn.Linear(spec.channels * side**2, classes or spec.classes)

    def forward(self, x):
        if x.shape[-1] != self.side:
            raise AssertionError(f"Expected {self.side} but got {x.shape[-1]}!")
        logits = self.linear(x.flatten(1))
        return (logits, logits) if self.several else logits


def _architecture(**settings) -> Architecture:
    return Architecture(recipe_of(_Classifier, name="picky", **settings))


def test_what_takes_the_images_passes_and_has_no_numbers():
    check_models([_architecture(side=SMALL.size)], SMALL)
    model = try_model("picky", _architecture(side=SMALL.size).build, SMALL)
    assert model.linear.weight.device == torch.device("meta")


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"side": 224}, r"^picky: cannot be built for .* images and 3 classes \(Expected 224 but got 8!\); change its"),
        (
            {"side": SMALL.size, "several": True},
            r"^picky: is no classifier, it does not answer with one number per class: .*tuple",
        ),
        ({"side": SMALL.size, "classes": 2}, r"per class: to 2 images of 3 classes with shape \[2, 2\]$"),
    ],
)
def test_what_does_not_is_named(settings, line):
    with pytest.raises(OneshotError, match=line):
        check_models([_architecture(side=SMALL.size), _architecture(**settings)], SMALL)


class _InPlace(nn.Linear):
    """Normalises the images of everybody."""

    def __init__(self, spec):
        super().__init__(spec.channels * spec.size**2, spec.classes)

    def forward(self, x):
        return super().forward(x.sub_(0.5).flatten(1))


def test_what_changes_the_images_of_others_is_refused():
    with pytest.raises(OneshotError, match=r"^own: changes the images that it is given, which other models see too"):
        check_models([Architecture(recipe_of(_InPlace, name="own"))], SMALL)


class _OnlyHere(nn.Linear):
    """Looks at numbers, which there are none of on `meta`; may end in a softmax or sigmoid, or run on none."""

    def __init__(
        self,
        spec,
        *,
        end=None,
        needs=0.0,
        several=False,
        double=False,
        trains=True,
        squeezed=((),),
        blind=False,
    ):
        super().__init__(spec.channels * spec.size**2, spec.classes)
        self.end, self.needs, self.several, self.double_ = end, needs, several, double
        self.squeezed, self.blind = squeezed, blind
        self.requires_grad_(trains)

    def forward(self, x):
        if float(x.sum()) < self.needs:
            raise ValueError("too dark")
        logits = super().forward(x.flatten(1))
        logits = logits.double() if self.double_ else logits
        answer = (logits if self.end is None else self.end(logits)).squeeze(*self.squeezed)
        answer = answer.detach() if self.blind else answer
        return (answer, answer) if self.several else answer


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"end": nn.Softmax(1)}, "^own: answers with probabilities instead of logits; leave the softmax or sigmoid"),
        ({"end": nn.Softmax(1), "double": True}, "^own: answers with probabilities"),
        ({"end": nn.Sigmoid()}, "^own: answers with probabilities"),
        ({"end": lambda logits: logits.sigmoid().float().view(-1, 3)}, "^own: answers with probabilities"),
        ({"several": True}, "^own: is no classifier, it does not answer with one number per class: .*tuple"),
        ({"squeezed": ()}, r"^own: is no classifier, .*: to one image of 3 classes with shape \[3\]$"),
        ({"trains": False}, r"^own: has no weight that is trained"),
        (
            {"blind": True},
            r"^own: its answers have no gradient, so that nothing .*; leave torch\.no_grad\(\) and \.detach",
        ),
        ({"needs": 1.0}, r"^own: does not run on \(2, 1, 8, 8\) \(ValueError: too dark\)"),
    ],
)
def test_somebody_elses_model_is_asked_with_numbers_too(settings, line):
    check_models([Architecture(recipe_of(_OnlyHere, name="own"))], SMALL)
    with pytest.raises(OneshotError, match=line):
        check_models([Architecture(recipe_of(_OnlyHere, name="own", **settings))], SMALL)


class _WithMore(_OnlyHere):
    """Keeps what is no tensor in its state, or answers by the batch."""

    def __init__(self, spec, *, more=None, by_batch=False):
        super().__init__(spec)
        self.more, self.by_batch = more, by_batch

    def get_extra_state(self):
        return self.more

    def set_extra_state(self, state):
        pass

    def forward(self, x):
        logits = super().forward(x)
        return logits - logits.mean(0, keepdim=True) if self.by_batch else logits


def test_a_state_that_holds_more_than_tensors_is_refused_before_anything_is_trained():
    with pytest.raises(OneshotError, match=r"^own: keeps _extra_state in its state, which is no tensor"):
        check_models([Architecture(recipe_of(_WithMore, name="own", more={"a": 1}))], SMALL)


@pytest.mark.parametrize("made", [torch.jit.script, torch.compile], ids=["jit", "compile"])
@pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
def test_what_torch_made_of_a_module_is_refused(made):
    def build(spec):
        return made(nn.Sequential(nn.Flatten(), nn.Linear(spec.channels * spec.size**2, spec.classes)))

    with pytest.raises(OneshotError, match=r"^own: is what torch\.jit or torch\.compile made of a module; build"):
        check_models([Architecture(recipe_of(build, name="own"))], SMALL)


def test_a_model_that_answers_by_the_batch_is_told(capsys):
    check_models([Architecture(recipe_of(_OnlyHere, name="own"))], SMALL)
    assert capsys.readouterr().err == ""
    more = {"more": torch.zeros(1), "by_batch": True}
    check_models([Architecture(recipe_of(_WithMore, name="own", **more))], SMALL)
    assert "oneshot_fl: own: answers an image otherwise beside others" in capsys.readouterr().err


class _RandomFeatures(nn.Linear):
    """Multiplies images by numbers of its own, which its state may lack; may drop some of them in every call."""

    def __init__(self, spec, *, persistent, moody=False):
        super().__init__(spec.channels * spec.size**2, spec.classes)
        self.register_buffer("own", torch.randn(self.in_features), persistent=persistent)
        self.moody = moody

    def forward(self, x):
        features = x.flatten(1) * self.own
        return super().forward(nn.functional.dropout(features) if self.moody else features)


def test_numbers_that_the_state_lacks_are_refused_because_whoever_builds_the_model_has_others():
    check_models([Architecture(recipe_of(_RandomFeatures, name="own", persistent=True))], SMALL)
    with pytest.raises(OneshotError, match=r"^own: computes with numbers .* its state_dict\(\) lacks.*register_buffer"):
        check_models([Architecture(recipe_of(_RandomFeatures, name="own", persistent=False))], SMALL)


def test_what_answers_otherwise_every_time_is_refused_as_nothing_could_load_what_became_of_it():
    for persistent in (True, False):
        own = Architecture(recipe_of(_RandomFeatures, name="own", persistent=persistent, moody=True))
        with pytest.raises(OneshotError, match=r"^own: answers the same images otherwise every time, .*self\.training"):
            check_models([own], SMALL)


class _Dark(nn.Linear):
    """Runs on no image but a black one."""

    def __init__(self, spec):
        super().__init__(spec.channels * spec.size**2, spec.classes)

    def forward(self, x):
        if float(x.sum()) > 0:
            raise ValueError("too bright")
        return super().forward(x.flatten(1))


def test_what_runs_on_no_noise_is_one_line():
    with pytest.raises(OneshotError, match=r"^own: does not run on images of noise \(ValueError: too bright\)$"):
        check_models([Architecture(recipe_of(_Dark, name="own"))], SMALL)


def test_where_the_side_is_not_known_nothing_is_asked():
    try_model("picky", _architecture(side=224).build, SMALL, answers=False)


class _Fourier(nn.Linear):
    """Multiplies the images' frequencies by complex weights."""

    def __init__(self, spec):
        super().__init__(spec.channels * spec.size**2, spec.classes)
        self.frequencies = nn.Parameter(torch.ones(spec.size, spec.size // 2 + 1, dtype=torch.cfloat))

    def forward(self, x):
        return super().forward(torch.fft.irfft2(torch.fft.rfft2(x) * self.frequencies, s=x.shape[-2:]).flatten(1))


def test_complex_weights_are_refused():
    line = (
        r"^own: frequencies is of torch\.complex64, and images of torch\.float32; keep .* torch\.view_as_complex joins$"
    )
    with pytest.raises(OneshotError, match=line):
        check_models([Architecture(recipe_of(_Fourier, name="own"))], SMALL)
