"""The global model: what rounds leave, that an interrupted loop goes on bit for bit, and what is never stored."""

import math
from dataclasses import replace
from functools import partial
from typing import ClassVar

import pytest
import torch
from lightning.pytorch import Trainer
from lightning.pytorch.plugins import MixedPrecision
from torch import nn

from oneshot_fl.data.batches import ImageBatches
from oneshot_fl.data.dataset import make_dataset
from oneshot_fl.data.proxy import Proxy
from oneshot_fl.errors import OneshotError
from oneshot_fl.methods.co_boosting import BoostedWeights
from oneshot_fl.methods.fedmho import SelfDistillation
from oneshot_fl.models.architecture import Architecture, InitialModel
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.cost import multiply_accumulates
from oneshot_fl.models.generators import ConvGenerator
from oneshot_fl.models.per_architecture import together
from oneshot_fl.parts.ensembles import LogitAverage
from oneshot_fl.parts.inits import AsClientsBegan, Average, Fresh
from oneshot_fl.parts.method import Method, WarmUpRecipe, of_source
from oneshot_fl.parts.moved import Moved
from oneshot_fl.parts.perturbation import Perturbation
from oneshot_fl.parts.pools import Pool
from oneshot_fl.parts.sources import GeneratorSource, ProxySource
from oneshot_fl.parts.terms import Adversarial, BatchNormStatistics, CrossEntropy, LabelCrossEntropy
from oneshot_fl.parts.terms import Distillation as DistillationTerm
from oneshot_fl.parts.uploads import Recital
from oneshot_fl.phases import global_model
from oneshot_fl.phases.checkpoint import RoundCheckpoint
from oneshot_fl.phases.distill import Distillation, DistillModule
from oneshot_fl.phases.global_model import StudentPlan, distill
from oneshot_fl.store import Store
from oneshot_fl.tracking.loggers import RunLog
from tests.parts import SMALL as SPEC
from tests.parts import Momentum, recipe_of, server_of

SETTINGS = Distillation(rounds=4, batch_size=8, bank="auto", clients_at_once=16, images=12, seed=5)
STUDENT = StudentPlan((Architecture(recipe_of(cnn2, norm=True)),), clients_seed=7)
KL = recipe_of(DistillationTerm, weight=1.0, temperature=1.0)


@pytest.fixture
def data():
    images = torch.randint(256, (30, 1, 8, 8), dtype=torch.uint8)
    labels = torch.arange(30) % 3
    return make_dataset(
        name="random", train=(images, labels), test=(images, labels), class_names=("a", "b", "c"), mean=[0.5], std=[0.5]
    )


@pytest.fixture
def server():
    models = [cnn2(SPEC, norm=True) for _ in range(2)]
    for model in models:
        model(torch.randn(64, 1, 8, 8))
    return server_of(models, [10, 20], spec=SPEC)


def _student() -> nn.Module:
    return STUDENT.build(SPEC, seed=SETTINGS.seed, as_clients_began=False)


def _method(*, reset: bool = False, pool_rounds: int | None = None, student_lr: float = 0.05, **slots) -> Method:
    source = recipe_of(
        GeneratorSource,
        generator=recipe_of(ConvGenerator, noise=6, width=4),
        optimizer=recipe_of(torch.optim.Adam, lr=0.01),
        batch_size=8,
        steps=2,
        reset=reset,
        keep="last",
    )
    objective = {
        "ce": recipe_of(CrossEntropy, weight=1.0),
        "bn": recipe_of(BatchNormStatistics, weight=1.0),
        "adv": recipe_of(Adversarial, weight=1.0, temperature=1.0, only_disagreement=False),
    }
    given = {
        "name": "tested",
        "init": recipe_of(Fresh),
        "ensemble": recipe_of(LogitAverage),
        "sources": {"images": source},
        "objective": objective,
        "pool": recipe_of(Pool, rounds=pool_rounds),
        "student": {"kl": KL},
        "optimizer": recipe_of(torch.optim.SGD, lr=student_lr, momentum=0.9),
    }
    return Method(**given | slots)


def _distill(data, server, context, method, *, tested_at_once=16, **options):
    test = ImageBatches(data.test_images, data.test_labels, spec=SPEC, batch_size=tested_at_once)
    settings = replace(SETTINGS, **options)
    return distill(test, server, method, data_key=data.fingerprint, student=STUDENT, settings=settings, context=context)


def _same(first: nn.Module, second: nn.Module) -> bool:
    a, b = first.state_dict(), second.state_dict()
    return all(torch.equal(a[name], b[name]) for name in a)


def _of_two_architectures(server):
    """The same server with a client more, of another architecture."""
    other = cnn2(SPEC, norm=False).eval()
    return server_of([*server.uploads.models, other], [10, 20, 5], spec=SPEC)


def test_every_round_leaves_a_row_and_the_student_learns(data, server, context):
    made = _distill(data, server, context, _method())
    assert [row["round"] for row in made.history] == [1, 2, 3, 4]
    assert set(made.history[0]["generator"]) == {"ce", "bn", "adv"}
    assert made.history[0]["generator"]["bn"] > 0
    assert set(made.history[0]["student"]) == {"kl"}
    assert not _same(made.model, _student())


def test_a_student_begins_where_the_clients_of_its_communication_round_did(data, server, context):
    as_clients = _method(init=recipe_of(AsClientsBegan))
    start = InitialModel(server.uploads.models[0], "the last server's", 1)
    later = replace(server, start=start)
    first, second = (_distill(data, one, context, as_clients, rounds=0) for one in (server, later))
    assert _same(first.model, STUDENT.build(SPEC, seed=SETTINGS.seed, as_clients_began=True))
    assert _same(second.model, start.model)
    fresh, again = (_distill(data, one, context, _method(), rounds=0) for one in (server, later))
    assert fresh.key == again.key  # it begins elsewhere


def _trained_otherwise(uploads):
    first, *others = uploads.classifiers
    return replace(uploads, classifiers=(replace(first, key="another training"), *others))


INPUTS = {
    "uploads": lambda server: replace(server, uploads=_trained_otherwise(server.uploads)),
    "guidance": lambda server: replace(server, guidance=torch.eye(2, 3)),
    "recitals": lambda server: replace(
        server, recitals=(Recital(torch.zeros(1, 1, 8, 8), torch.zeros(1), "a recital"),)
    ),
}
"""What a server may have otherwise, whether or not the method looks at it."""


@pytest.mark.parametrize("changed", sorted(INPUTS))
def test_whatever_goes_into_a_model_is_in_its_key(data, server, context, changed):
    one = replace(server, guidance=torch.ones(2, 3))
    first, second, again = (
        _distill(data, each, context, _method(), rounds=0).key for each in (one, INPUTS[changed](one), one)
    )
    assert first == again != second


def test_the_data_set_is_in_its_key_and_a_proxy_where_the_method_uses_it(data, server, context):
    def key(server, sources, data=data):
        method = _method() if sources is None else _method(sources=sources, objective={})
        return _distill(data, server, context, method, rounds=0).key

    dark, bright = (replace(server, proxy=Proxy(partial(torch.full, (4, 1, 8, 8), pixel))) for pixel in (0, 255))
    on_proxy = {"images": recipe_of(ProxySource)}
    assert key(dark, on_proxy) == key(dark, on_proxy) != key(bright, on_proxy)
    assert key(dark, None) == key(bright, None)
    assert key(dark, None, replace(data, train_images=255 - data.train_images)) != key(dark, None)


def test_sources_draw_and_images_are_tested_as_the_key_says(data, server, context):
    def key(*names, **options):
        sources = {name: recipe_of(ProxySource) for name in names}
        given = replace(server, proxy=Proxy(partial(torch.zeros, (4, 1, 8, 8))))
        return _distill(data, given, context, _method(sources=sources, objective={}), rounds=0, **options).key

    assert key("a", "b") == key("a", "b")
    assert len({key("a", "b"), key("b", "a"), key("a", "b", tested_at_once=8)}) == 3


@pytest.mark.parametrize(("reset", "steps"), [(False, [2, 4]), (True, [2, 2])])
def test_a_source_that_begins_anew_has_a_new_optimiser_too(data, server, context, monkeypatch, reset, steps):
    seen, generate = [], DistillModule._generate

    def watched(module, name, *given):
        made = generate(module, name, *given)
        state, *_ = module._optimizer(of_source(name)).optimizer.state.values()
        seen.append(int(state["step"]))
        return made

    monkeypatch.setattr(DistillModule, "_generate", watched)
    _distill(data, server, context, _method(reset=reset), rounds=2)
    assert seen == steps


def test_some_of_the_newest_images_are_kept_as_bytes_and_choosing_them_draws_nothing(
    data, server, context, monkeypatch
):
    pools, add = [], Pool.add
    monkeypatch.setattr(Pool, "add", lambda pool, entry: (pools.append(pool), add(pool, entry))[1])
    kept = _distill(data, server, context, _method())
    assert (kept.images.shape, kept.images.dtype) == ((12, 1, 8, 8), torch.uint8)
    assert kept.labels.tolist() == sorted(kept.labels.tolist())
    newest = torch.cat([entry.x for entry in list(pools[-1].entries)[2:]])  # 16 images in two rounds
    assert {tuple(image.tolist()) for image in kept.images.flatten(1)} <= {
        tuple(image.tolist()) for image in SPEC.to_bytes(newest).flatten(1)
    }
    fewer = _distill(data, server, context, _method(), images=3)
    assert len(fewer.images) == 3
    assert fewer.history == kept.history
    assert _same(fewer.model, kept.model)


class Gated(LogitAverage):
    """As a user's might be: it begins with weights that it draws."""

    def __init__(self, server):
        super().__init__(server)
        self.gate = nn.Linear(3, 1)


def test_parts_that_draw_draw_alike_whatever_ran_before(data, server, context, tmp_path):
    def made(name):
        store = replace(context, store=Store(tmp_path / name))
        return _distill(data, server, store, _method(ensemble=recipe_of(Gated)), rounds=1)

    first = made("first")
    torch.rand(7)
    again = made("again")
    assert torch.equal(first.ensemble["gate.weight"], again.ensemble["gate.weight"])


def test_clients_are_left_as_they_were_uploaded(data, server, context):
    before = [{name: t.clone() for name, t in model.state_dict().items()} for model in server.uploads.models]
    _distill(data, server, context, _method())
    for state, model in zip(before, server.uploads.models, strict=True):
        assert all(torch.equal(state[name], tensor) for name, tensor in model.state_dict().items())


def _broken(data, server, context, method, folder, after: int):
    """A run that dies after some rounds, and the run that goes on from there in the same store."""
    broken = replace(context, store=Store(folder))
    save = RoundCheckpoint.on_train_epoch_end

    def die(self, trainer, module):
        save(self, trainer, module)
        if len(module.history) == after:
            raise RuntimeError("killed")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RoundCheckpoint, "on_train_epoch_end", die)
        with pytest.raises(RuntimeError, match="killed"):
            _distill(data, server, broken, method())
    return _distill(data, server, broken, method())


@pytest.mark.parametrize("after", [2, SETTINGS.rounds])
@pytest.mark.parametrize(("reset", "pool_rounds"), [(False, None), (True, 2)])
def test_a_broken_run_goes_on_bit_for_bit(data, server, context, tmp_path, reset, pool_rounds, after):
    def method() -> Method:
        return _method(reset=reset, pool_rounds=pool_rounds)

    unbroken = _distill(data, server, context, method())
    resumed = _broken(data, server, context, method, tmp_path / "other", after)
    assert resumed.history == unbroken.history
    assert _same(resumed.model, unbroken.model)
    assert torch.equal(resumed.images, unbroken.images)


@pytest.fixture
def scaling(monkeypatch) -> list[MixedPrecision]:
    """Trainers scale losses on this CPU as they do on a GPU in 16-mixed; what scales them, in the order of Trainers.

    The scale grows after every fourth step, and falls where gradients leave 16 bits.
    """
    plugins: list[MixedPrecision] = []

    def scaled(**given):
        scaler = torch.amp.GradScaler("cpu", growth_interval=4)
        plugins.append(MixedPrecision("16-mixed", "cpu", scaler))
        return Trainer(**given | {"precision": None, "plugins": plugins[-1]})

    monkeypatch.setattr("oneshot_fl.phases.trainer.Trainer", scaled)
    return plugins


def test_a_broken_run_goes_on_with_the_scale_of_losses_that_it_had(data, server, context, tmp_path, scaling):
    unbroken = _distill(data, server, context, _method())
    resumed = _broken(data, server, context, _method, tmp_path / "other", 2)
    whole, _, rest = (plugin.state_dict() for plugin in scaling)
    assert rest == whole
    assert whole["scale"] != torch.amp.GradScaler("cpu").state_dict()["scale"]
    assert resumed.history == unbroken.history
    assert _same(resumed.model, unbroken.model)


def test_sources_may_be_called_as_what_a_dictionary_has_and_with_dots(data, server, context, tmp_path):
    def method() -> Method:
        (source,) = _method().sources.values()
        return _method(sources=dict.fromkeys(("items", "a.b"), source))

    unbroken = _distill(data, server, context, method())
    resumed = _broken(data, server, context, method, tmp_path / "other", 2)
    assert resumed.history == unbroken.history
    assert unbroken.pool_bytes == 2 * _distill(data, server, context, _method()).pool_bytes


def test_an_ensemble_that_learns_goes_on_bit_for_bit_and_is_handed_over(data, server, context, tmp_path):
    def method() -> Method:
        settings = {"step": 0.05, "decay": 0.9, "per": "batch", "include_newest": False, "normalise": True}
        perturb = recipe_of(Perturbation, epsilon=0.02, direction="sign")
        return _method(ensemble=recipe_of(BoostedWeights, **settings), perturb=perturb)

    unbroken = _distill(data, server, context, method())
    resumed = _broken(data, server, context, method, tmp_path / "other", 3)
    assert unbroken.ensemble["weights"].tolist() != [0.5, 0.5]
    assert resumed.history == unbroken.history
    assert _same(resumed.model, unbroken.model)
    assert torch.equal(resumed.ensemble["weights"], unbroken.ensemble["weights"])


def test_of_images_that_move_the_answers_are_kept(data, server, context, tmp_path, monkeypatch):
    asked, real = [], DistillModule._taught
    monkeypatch.setattr(DistillModule, "_taught", lambda module, *given: asked.append(1) or real(module, *given))
    still, moved = (
        recipe_of(Moved, share=0.25, mirrored="always", colour_only=colour_only) for colour_only in (True, False)
    )
    plain, unmoved, other = (
        _distill(data, server, replace(context, store=Store(tmp_path / name)), _method(perturb=perturb))
        for name, perturb in (("plain", None), ("still", still), ("moved", moved))
    )
    assert not asked
    assert unmoved.history == plain.history
    assert other.history != plain.history


def test_what_a_warm_up_made_of_the_student_is_what_it_began_as_also_after_a_break(data, server, context, tmp_path):
    def method() -> Method:
        held = {"kl": KL, "sd": recipe_of(SelfDistillation, weight=1.0, per_class=False)}
        warm_up = WarmUpRecipe(3, {"kl": KL}, recipe_of(torch.optim.Adam, lr=0.01))
        return _method(pool_rounds=1, student=held, warm_up=warm_up)

    server = _of_two_architectures(server)  # equal clients need no warm-up
    unbroken = _distill(data, server, context, method())
    resumed = _broken(data, server, context, method, tmp_path / "other", 2)
    assert [len(row["warm_up"]) for row in unbroken.history] == [1, 0, 0, 0]
    assert unbroken.history[0]["student"]["sd"] < unbroken.history[0]["warm_up"]["kl"]
    assert resumed.history == unbroken.history
    assert _same(resumed.model, unbroken.model)


@pytest.mark.parametrize(
    ("clients", "students", "warmed"),
    [
        ((True, True), (True,), False),  # the student begins as their mean
        ((True, False), (True,), True),
        ((True, True), (False,), True),
        ((True, True), (True, False), True),  # of two that vote, one begins at random weights
        ((), (True,), False),  # nobody to learn from
    ],
)
def test_a_student_that_does_not_begin_as_the_mean_of_all_is_warmed_up(clients, students, warmed):
    models = [cnn2(SPEC, norm=norm) for norm in clients]
    assert global_model._differ(models, together([cnn2(SPEC, norm=norm) for norm in students])) == warmed


def test_a_method_without_a_loop_is_its_init(data, server, context):
    made = _distill(data, server, context, Method("averaged", recipe_of(Average)))
    assert _same(made.model, Average(server)(_student()))
    assert not _same(made.model, _student())
    assert (made.history, made.images) == ([], None)


class AsFirstClient(Fresh):
    """As a user's might be: it does not copy what it begins at."""

    def __init__(self, server):
        self.first = server.uploads.models[0]

    def __call__(self, student):
        return self.first


class AtFirstClientsTensors(AsFirstClient):
    def __call__(self, student):
        for layer, other in zip(student, self.first, strict=True):
            layer._parameters.update(other._parameters)
            layer._buffers.update(other._buffers)
        return student


@pytest.mark.parametrize("init", [AsFirstClient, AtFirstClientsTensors])
def test_a_student_that_begins_as_a_client_is_not_that_client(data, server, context, init):
    first = server.uploads.models[0]
    before = {name: tensor.clone() for name, tensor in first.state_dict().items()}
    begun = _distill(data, server, context, _method(init=recipe_of(init)), rounds=0)
    taught = _distill(data, server, context, _method(init=recipe_of(init)), rounds=1)
    assert all(torch.equal(tensor, before[name]) for name, tensor in first.state_dict().items())
    assert _same(begun.model, first)
    assert not _same(taught.model, first)


class SumsInPlace(AsFirstClient):
    """The usual slip: the sum of all begins as the first client's own tensors."""

    def __call__(self, student):
        total = self.first.state_dict()
        for tensor in total.values():
            tensor.add_(1)
        student.load_state_dict(total)
        return student


class Halves(LabelCrossEntropy):
    """A term that writes into a client, past what torch counts."""

    needs = frozenset({"teacher"})

    def __call__(self, view):
        for parameter in view._bank.models[0].parameters():
            parameter.data.mul_(0.5)
        return super().__call__(view)


@pytest.mark.parametrize(
    ("slots", "who"),
    [
        ({"init": recipe_of(SumsInPlace)}, "its init, or another of its parts while it is made,"),
        ({"student": {"kl": KL, "halves": recipe_of(Halves, weight=1.0)}}, "one of its parts"),
    ],
)
def test_a_part_that_writes_into_an_upload_is_told_and_nothing_is_stored(data, server, context, slots, who):
    with pytest.raises(OneshotError, match=rf"^method: {who} writes into the uploaded models of "):
        _distill(data, server, context, _method(**slots), rounds=1)
    assert not list(context.store.root.glob("distill/*/manifest.json"))


class Answers(Fresh):
    """An init of a user's that returns something else than a student."""

    made = staticmethod(lambda student: None)

    def __call__(self, student):
        return self.made(student)


@pytest.mark.parametrize(
    ("made", "line"),
    [
        (lambda student: None, r"returns a NoneType, and must return the student.*end it with `return student`$"),
        (lambda student: student.state_dict(), r"returns a OrderedDict, .*end it with `return student`$"),
        (
            lambda student: cnn2(SPEC, norm=False),
            r"returns a Sequential, .*: of what it returns, \S+ \(and \d+ more\) is .*, and of the student .*$",
        ),
        (
            lambda student: cnn2(replace(SPEC, classes=4), norm=True),
            r"is a Tensor of shape \[4, \d+\] \(torch\.float32\), and of the student a Tensor of shape \[3, \d+\]",
        ),
        (lambda student: student.double(), r"\(torch\.float64\), and of the student .*\(torch\.float32\)$"),
    ],
)
@pytest.mark.parametrize("build", [STUDENT, StudentPlan(2 * STUDENT.architectures, clients_seed=7)])
def test_an_init_that_returns_no_student_is_told_at_once(data, server, context, monkeypatch, made, line, build):
    monkeypatch.setattr(Answers, "made", staticmethod(made))
    monkeypatch.setattr(global_model, "DistillModule", None)  # no round begins
    with pytest.raises(OneshotError, match=rf"^method\.init: .*{line}"):
        distill(
            None,
            server,
            _method(init=recipe_of(Answers)),
            data_key=data.fingerprint,
            student=build,
            settings=SETTINGS,
            context=context,
        )
    assert not list(context.store.root.rglob("manifest.json"))


@pytest.mark.parametrize("rounds", [0, 4])
def test_no_rounds_leave_the_student_as_it_began(data, server, context, rounds):
    made = _distill(data, server, context, _method(), rounds=rounds)
    assert _same(made.model, _student()) is (rounds == 0)
    assert len(made.history) == rounds


@pytest.mark.parametrize(
    ("slots", "options", "line"),
    [
        ({"student_lr": 1e30}, {}, r"^server: diverged in round [12] \(not finite: .*student 1e\+30\)"),
        ({"student_lr": 1e30}, {"rounds": 1}, r"^server: diverged in round 1 \(not finite: .*student's"),
    ],
)
def test_a_diverged_student_is_the_servers_and_never_stored(data, server, context, slots, options, line):
    for _ in range(2):  # what a broken-off run left is no help either
        with pytest.raises(OneshotError, match=line) as caught:
            _distill(data, server, context, _method(**slots), **options)
        assert "distill.student_optimizer.lr" in str(caught.value)
    assert not list(context.store.root.glob("distill/*/manifest.json"))
    assert _distill(data, server, context, _method(), **options).history


class Counted(LogitAverage):
    """An ensemble that grows surer with every answer, and counts them where nobody looks."""

    def __init__(self, server):
        super().__init__(server)
        self.answers = 0

    def forward(self, votes):
        self.answers += 1
        return super().forward(votes) * (1 + 0.1 * self.answers)


class Undefined(LogitAverage):
    """An ensemble that answers with no numbers."""

    def forward(self, votes):
        return super().forward(votes) * math.nan


class Excluding(LogitAverage):
    """One that excludes a class, as it may."""

    def forward(self, votes):
        return super().forward(votes).index_fill(1, torch.tensor([0]), -math.inf)


class Nan:
    """A term that is no number."""

    needs = frozenset()

    def __init__(self, weight):
        self.weight = weight

    def __call__(self, view):
        return view.student.mean() * math.nan


class NoWeights:
    """An init that sets weights that are no numbers."""

    needs = frozenset()

    def __init__(self, server): ...

    @torch.no_grad()
    def __call__(self, student):
        student[0].weight.fill_(math.nan)
        return student


MINE = {"kl": KL, "mine": recipe_of(Nan, weight=1.0)}


@pytest.mark.parametrize(
    ("slots", "line"),
    [
        ({"ensemble": recipe_of(Undefined)}, r"^method\.ensemble: answers with logits that are not finite, and what"),
        ({"student": MINE}, r"^method\.student\.mine: the loss term is nan in the first step, where all others are"),
        ({"init": recipe_of(NoWeights)}, r"^method\.init: returns a model whose 0\.weight is not finite; let it"),
        ({"student": {"mine": MINE["mine"]}}, r"^server: diverged in round 1 \(not finite: student mine"),
        ({"student_lr": 1e30, "ensemble": recipe_of(Counted)}, r"^server: diverged in round"),
        ({"student_lr": 1e30, "ensemble": recipe_of(Excluding)}, r"^server: diverged in round"),
    ],
)
def test_a_part_that_alone_is_not_finite_is_to_blame_and_no_learning_rate(data, server, context, slots, line):
    with pytest.raises(OneshotError, match=line):
        _distill(data, server, context, _method(**slots))
    assert not list(context.store.root.glob("distill/*/manifest.json"))


def test_a_warm_up_that_diverges_names_its_own_rate_beside_the_others(data, server, context):
    warm_up = WarmUpRecipe(3, {"kl": KL}, recipe_of(torch.optim.SGD, lr=1e30))
    line = (
        r"not finite: .*warm_up kl.*\(source images 0\.01, student 0\.05, warm_up 1e\+30\): "
        r"distill\.student_optimizer\.lr or distill\.generator_optimizer\.lr or method\.warm_up\.optimizer\.lr$"
    )
    with pytest.raises(OneshotError, match=line):
        _distill(data, _of_two_architectures(server), context, _method(warm_up=warm_up))


def test_a_student_that_diverges_in_its_very_last_step_is_noticed_too(data, server, context):
    """One round of one step: all losses are those before it, and finite."""
    labels = {"ce": recipe_of(LabelCrossEntropy, weight=1.0)}
    with pytest.raises(OneshotError, match=r"^server: diverged in round 1 \(not finite: student's "):
        _distill(data, server, context, _method(student=labels, student_lr=1e38), rounds=1)
    assert not list(context.store.root.glob("distill/*/manifest.json"))


def test_what_is_held_out_is_kept_and_the_student_never_sees_it(data, server, context):
    whole = _distill(data, server, context, _method())
    part = _distill(data, server, context, _method(), held_out=0.25)
    assert whole.held is None
    assert part.held.shape == (4 * 2, 1, 8, 8)  # a quarter of eight images in each of four rounds
    assert part.held.dtype == torch.uint8
    assert len(part.images) == min(SETTINGS.images, 4 * 6)
    seen = {tuple(image.flatten().tolist()) for image in part.images}
    assert not seen & {tuple(image.flatten().tolist()) for image in part.held}
    assert not _same(whole.model, part.model)


def test_of_what_is_held_out_only_the_newest_images_are_kept(data, server, context):
    assert len(_distill(data, server, context, _method(), held_out=0.5, images=6).held) == 6


def _stopped_and_resumed(run, monkeypatch):
    """The result of a distillation that was stopped after two rounds."""
    saved = RoundCheckpoint.on_train_epoch_end

    def stop_after_two(self, trainer, module):
        saved(self, trainer, module)
        if len(module.history) == 2:
            raise KeyError("stopped")

    with monkeypatch.context() as patch:
        patch.setattr(RoundCheckpoint, "on_train_epoch_end", stop_after_two)
        with pytest.raises(KeyError, match="stopped"):
            run()
    return run()


def test_a_run_that_goes_on_holds_out_what_one_in_one_go_does(data, server, context, tmp_path, monkeypatch):
    whole = _distill(data, server, context, _method(), held_out=0.25)
    again = replace(context, store=Store(tmp_path / "other"))
    resumed = _stopped_and_resumed(partial(_distill, data, server, again, _method(), held_out=0.25), monkeypatch)
    assert torch.equal(resumed.held, whole.held)
    assert _same(resumed.model, whole.model)


class Growing(nn.Module):
    """A perturbation whose noise grows with every call."""

    def __init__(self, server):
        super().__init__()
        self.register_buffer("calls", torch.zeros(()))

    def draw(self, count, rng):
        return torch.randn(count, 1, 8, 8, generator=rng)

    def forward(self, x, teacher, drawn):
        self.calls += 1
        return x + 0.1 * self.calls * drawn


class Counting(nn.Module):
    """A term that counts its calls: the student's logits weigh more every time."""

    needs = frozenset()

    def __init__(self, weight):
        super().__init__()
        self.weight = weight
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, view):
        self.calls += 1
        return 0.01 * self.calls * view.student.square().mean()


@pytest.mark.parametrize(
    "slots",
    [{"perturb": recipe_of(Growing)}, {"student": {"kl": KL, "mine": recipe_of(Counting, weight=1.0)}}],
    ids=["perturbation", "term"],
)
def test_a_run_that_goes_on_has_what_parts_of_a_users_own_have_kept(
    data, server, context, tmp_path, monkeypatch, capsys, slots
):
    whole = _distill(data, server, context, _method(**slots))
    again = replace(context, store=Store(tmp_path / "other"))
    resumed = _stopped_and_resumed(partial(_distill, data, server, again, _method(**slots)), monkeypatch)
    assert _same(resumed.model, whole.model)
    assert "begins anew" not in capsys.readouterr().err


class Ramp:
    """A term that weighs more with every call, which it counts under a name for itself."""

    needs = frozenset()

    def __init__(self, weight):
        self.weight, self._calls = weight, 0

    def __call__(self, view):
        self._calls += 1
        return 0.01 * self._calls * view.student.square().mean()


class Looks:
    """A receiver of images, of which it keeps the round and the number."""

    shows_images = True

    def __init__(self):
        self.seen = []

    def log(self, metrics, step):
        """Nobody looks at these."""

    def images(self, name, images, step):
        self.seen.append((name, step, len(images), images.dtype))


def test_of_rounds_from_the_store_the_last_ones_images_are_logged(data, server, context):
    first, second = (replace(context, log=RunLog([Looks()])) for _ in range(2))
    for each in (first, second):
        _distill(data, server, each, _method())
    assert [step for _, step, *_ in first.log.sinks[0].seen] == [1, 2, 3, 4]
    assert second.log.sinks[0].seen == [("distill/images", 4, 12, torch.uint8)]


class Sharing:
    """A term that counts its calls in its class, for all objects of it together."""

    needs = frozenset()
    calls: ClassVar[list[int]] = []

    def __init__(self, weight):
        self.weight = weight

    def __call__(self, view):
        self.calls.append(1)
        return view.student.square().mean()


def test_what_a_later_run_of_the_same_process_would_begin_with_is_told(data, server, context, capsys):
    _distill(data, server, context, _method(student={"kl": KL, "mine": recipe_of(Sharing, weight=1.0)}))
    told = "student.mine (Sharing.calls, in its class), has changed, and the next run of this process begins with that"
    assert told in capsys.readouterr().err
    _distill(data, server, context, _method(ensemble=recipe_of(Counted)))
    assert "has changed" not in capsys.readouterr().err


@pytest.mark.parametrize(
    ("slots", "told"),
    [
        ({"ensemble": recipe_of(Counted)}, "ensemble (Counted.answers)"),
        ({"student": {"kl": KL, "mine": recipe_of(Ramp, weight=1.0)}}, "student.mine (Ramp._calls)"),
        ({"optimizer": recipe_of(Momentum, lr=0.05)}, "optimiser of student (Momentum.m)"),
    ],
    ids=["ensemble", "term", "optimiser"],
)
def test_a_run_whose_own_part_kept_something_unsaved_begins_anew(
    data, server, context, tmp_path, monkeypatch, capsys, slots, told
):
    method = _method(**slots)
    whole = _distill(data, server, context, method)
    again = replace(context, store=Store(tmp_path / "other"))
    assert "begins anew" not in capsys.readouterr().err
    resumed = _stopped_and_resumed(partial(_distill, data, server, again, method), monkeypatch)
    assert _same(resumed.model, whole.model)
    assert f"begins anew, as what {told} kept was not saved" in capsys.readouterr().err


def test_a_run_that_goes_on_draws_as_before_from_all_generators_that_code_shares(data, server, context, monkeypatch):
    states, put_back = iter(range(9)), []
    monkeypatch.setattr("oneshot_fl.phases.checkpoint.rng_states", lambda: next(states))
    monkeypatch.setattr("oneshot_fl.phases.checkpoint.set_rng_states", put_back.append)
    _stopped_and_resumed(partial(_distill, data, server, context, _method()), monkeypatch)
    assert put_back == [1]  # of the second round, in which it was stopped


def test_an_ensemble_is_handed_the_clients_as_the_settings_run_them(data, server, context):
    banks = []

    class Noting(LogitAverage):
        def __init__(self, server):
            super().__init__(server)
            banks.append(server.bank)

    _distill(data, server, context, _method(ensemble=recipe_of(Noting)), bank="stacked", clients_at_once=1)
    assert [(bank.mode, bank.at_once) for bank in banks] == [("stacked", 1)]


def test_the_cost_counts_what_earlier_processes_spent(data, server, context, tmp_path, monkeypatch):
    whole = _distill(data, server, context, _method()).spent.cost
    again = replace(context, store=Store(tmp_path / "other"))
    resumed = _stopped_and_resumed(partial(_distill, data, server, again, _method()), monkeypatch)
    assert resumed.spent.cost.macs == whole.macs > 0


def test_passes_through_clients_generator_and_student_are_counted(data, server, context):
    once, twice = (_distill(data, server, context, _method(), rounds=rounds).spent.cost.macs for rounds in (1, 2))
    image = torch.zeros(1, 1, 8, 8)
    one = multiply_accumulates(_student(), image)
    drawn = multiply_accumulates(ConvGenerator(SPEC, noise=6, width=4), torch.zeros(1, 6))
    # two steps of eight images: the generator learns, two clients and the student pass gradients on
    step = 8 * (3 * drawn + 2 * 2 * one + 2 * one)
    # the ensemble's answers on eight new images, one pass of the student over the pool, the test set
    first = 2 * step + 8 * 2 * one + 8 * 3 * one + 30 * one
    assert once == first
    assert twice == 2 * first + 8 * 3 * one
