"""Local training: what is learned, what a client's key depends on, and what is never stored."""

import io
from dataclasses import replace

import pytest
import torch
from rich.console import Console
from torch import nn

from oneshot_fl.errors import OneshotError
from oneshot_fl.models.architecture import Architecture, InitialModel
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.cvae import mlp
from oneshot_fl.models.group_norm import cnn2_group
from oneshot_fl.models.zoo import resnet
from oneshot_fl.parts.attacks import Backdoor, LabelFlip
from oneshot_fl.phases.clients.classifier import Classifier
from oneshot_fl.phases.clients.cvae import Autoencoder
from oneshot_fl.phases.clients.train import ClientPlan, train_clients
from oneshot_fl.phases.clients.training import Training
from oneshot_fl.tracking.progress import Progress
from tests.parts import recipe_of

OPTIONS = {"cnn2": {"norm": True}, "resnet": {"depth": 18}, "cnn2_group": {}}


def _training(*, lr=0.05, **settings):
    sgd = recipe_of(torch.optim.SGD, lr=lr, momentum=0.9)
    return Training(**{"epochs": 3, "batch_size": 16, "optimizer": sgd, "seed": 0} | settings)


def _plan(build=cnn2, own_rate_key=None, **settings):
    architecture = Architecture(recipe_of(build, **OPTIONS[build.__name__]))
    return ClientPlan(architecture, _training(**settings), Classifier(), own_rate_key)


def _train(data, context, indices, build=cnn2, **settings):
    plans = [_plan(build, **settings) for _ in indices]
    return train_clients(data, [torch.tensor(list(index)) for index in indices], plans, context=context)


def test_training_lowers_the_loss_and_counts_samples(data, context):
    logged = []
    context.log.log = lambda metrics, step: logged.append((metrics, step))
    clients = _train(data, context, [range(33), range(33, 66)])
    assert [client.samples for client in clients] == [33, 33]
    losses = [metrics["clients/00/loss"] for metrics, _ in logged if "clients/00/loss" in metrics]
    assert len(losses) == 3
    assert losses[-1] < losses[0]


@pytest.mark.parametrize("build", [cnn2, resnet])
@pytest.mark.parametrize("count", [1, 17])
def test_a_last_batch_of_one_and_a_single_sample_train(data, context, build, count):
    (client,) = _train(data, context, [range(count)], build, epochs=1)
    assert client.samples == count


def test_a_client_with_a_single_class_trains(data, context):
    (client,) = _train(data, context, [range(0, 66, 3)])
    logits = client.upload.model.eval()(data.spec.to_input(data.train_images[:3]))
    assert logits.argmax(1).tolist()[0] == 0


def test_no_epochs_gives_the_common_initial_weights(data, context):
    assert _alike(*_train(data, context, [range(33), range(33, 66)], epochs=0))


@pytest.mark.parametrize("kind", [Classifier, Autoencoder])
def test_clients_may_begin_at_weights_of_their_own_which_their_number_decides(data, context, kind):
    build = recipe_of(cnn2, norm=True) if kind is Classifier else recipe_of(mlp, latent=2, hidden=4)
    plan = ClientPlan(Architecture(build), _training(epochs=0, initial_weights="own"), kind())
    index = torch.arange(33)
    pair = train_clients(data, [index, index], [plan, plan], context=context)
    (second,) = train_clients(data, [index], [plan], context=context, first=1)
    assert not _alike(pair[0], pair[1])
    assert _alike(pair[1], second)


def _alike(one, other):
    states = [client.upload.model.state_dict() for client in (one, other)]
    return all(torch.equal(states[0][name], states[1][name]) for name in states[0])


FLIPS = recipe_of(LabelFlip, clients=1)
PATCH = recipe_of(Backdoor, clients=1, target=2, side=0.2, share=0.25)


@pytest.mark.parametrize(("poison", "counts"), [(None, [4, 4, 0]), (FLIPS, [0, 4, 4]), (PATCH, [2, 4, 2])])
def test_a_hostile_client_counts_the_labels_that_it_trains_on(data, context, poison, counts):
    index = torch.tensor([k for k in range(12) if k % 3 != 2])  # labels 0 1 0 1 ..., of three classes
    plans = [
        replace(_plan(epochs=1), poison=poison),
        ClientPlan(Architecture(recipe_of(mlp, latent=2, hidden=4)), _training(epochs=1), Autoencoder(), poison=poison),
    ]
    clients = train_clients(data, [index, index], plans, context=context, label_counts=True)
    assert [client.upload.label_counts.tolist() for client in clients] == [counts, counts]


def test_results_do_not_depend_on_the_other_clients(data, context):
    alone = _train(data, context, [range(20)])
    together = _train(data, context, [range(20), range(20, 66)])
    assert alone[0].upload.key == together[0].upload.key


def test_a_clients_samples_and_what_poisons_them_are_in_its_key(data, context):
    def key(index=range(20), poison=None):
        plan = replace(_plan(epochs=1), poison=poison)
        (client,) = train_clients(data, [torch.tensor(list(index))], [plan], context=context)
        return client.upload.key

    keys = [key(), key(range(20, 40)), key(poison=FLIPS), key(poison=PATCH)]
    assert len(set(keys)) == 4
    assert key() == keys[0]


def test_an_option_that_is_off_leaves_the_key_as_it_was_and_one_that_is_on_does_not(data, context):
    keys = [
        _train(data, context, [range(20)], epochs=1, **options)[0].upload.key
        for options in (
            {},
            {"augmentation": "none", "sam": None, "initial_weights": "shared"},
            {"initial_weights": "own"},
            {"augmentation": "flip"},
            {"augmentation": "crop"},
            {"sam": 0.1},
        )
    ]
    assert keys[0] == keys[1]
    assert len(set(keys)) == 5


def test_the_code_that_trains_a_kind_is_part_of_the_key(data, context, monkeypatch):
    asked = []
    monkeypatch.setattr("oneshot_fl.recipe.digest", lambda modules: asked.append(list(modules)) or "code")
    _train(data, context, [range(20)])
    assert all("oneshot_fl.phases.clients.classifier" in modules for modules in asked)
    assert asked


def test_augmentation_changes_what_is_learned(data, context):
    plain, augmented = (
        _train(data, context, [range(20)], epochs=1, augmentation=name)[0].upload.model.state_dict()["0.weight"]
        for name in ("none", "crop")
    )
    assert not torch.equal(plain, augmented)


def test_a_learning_rate_is_part_of_the_key_and_the_name_of_its_key_is_not(data, context):
    def key(**plan):
        (client,) = train_clients(data, [torch.arange(20)], [_plan(epochs=1, **plan)], context=context)
        return client.upload.key

    assert key(lr=0.01) == key(lr=0.01, own_rate_key="clients.lr_of.cnn2") != key(lr=0.1)


@pytest.mark.parametrize("own", [None, "clients.lr_of.cnn2"])
def test_a_diverged_client_is_never_stored_and_the_line_names_client_and_learning_rate(data, context, own):
    plans = [_plan(), _plan(lr=1e30, own_rate_key=own)]
    line = rf"^client 1 \(.*\): training diverged, .*; lower {own or 'clients.optimizer.lr'}=1e\+30$"
    for _ in range(2):
        with pytest.raises(OneshotError, match=line):
            train_clients(data, [torch.arange(20), torch.arange(20, 60)], plans, context=context)
        assert len(list(context.store.root.glob("clients/*/manifest.json"))) == 1  # client 0's


def test_what_one_client_cannot_train_with_ends_before_another_trains(data, context):
    private = {"epsilon": 8.0, "delta": 0.03, "clip": 1.0}
    with pytest.raises(OneshotError, match=r"^clients\.delta=0\.03: a client has 40 samples"):
        _train(data, context, [range(20), range(20, 60)], cnn2_group, epochs=1, **private)
    assert not list(context.store.root.glob("clients/*/manifest.json"))


def test_what_is_reported_of_a_later_communication_round_has_the_earlier_ones_in_it(data, context):
    private = {"epsilon": 8.0, "delta": 0.01, "clip": 1.0, "communication_rounds": 2}
    plan, index = _plan(cnn2_group, epochs=1, **private), [torch.arange(20)]
    (first,) = train_clients(data, index, [plan], context=context)
    start = InitialModel(first.upload.model, first.upload.key, 1)
    (second,) = train_clients(data, index, [plan], context=context, start=start)
    assert 0 < first.epsilon < 7.5 < second.epsilon <= 8


def test_a_client_that_diverges_in_its_very_last_step_is_noticed_too(data, context):
    """One batch, one epoch: its loss is that at the initial weights, and finite."""
    with pytest.raises(OneshotError, match=r"^client 0 \(.*\): training diverged, .* not finite.*=1e\+38$"):
        _train(data, context, [range(16)], epochs=1, lr=1e38)
    assert not list(context.store.root.glob("clients/*/manifest.json"))


class OwnNorm(nn.Module):
    """Batch normalisation by hand, whose running mean is a plain tensor or, as it must be, a buffer."""

    def __init__(self, *, buffer):
        super().__init__()
        if buffer:
            self.register_buffer("mean", torch.zeros(4))
        else:
            self.mean = torch.zeros(4)

    def forward(self, x):
        mean = self.mean
        if self.training:
            mean = x.mean((0, 2, 3))
            self.mean = 0.5 * self.mean + 0.5 * mean.detach()
        return x - mean.view(1, 4, 1, 1)


def own_norm(spec, *, buffer):
    """A small network with it in the middle."""
    body = (nn.Conv2d(spec.channels, 4, 3), OwnNorm(buffer=buffer), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    return nn.Sequential(*body, nn.Linear(4, spec.classes))


@pytest.mark.parametrize("channels_last", [False, True])
def test_what_a_users_layer_learns_beside_its_state_is_not_lost_without_a_word(data, context, channels_last):
    context = replace(context, trainer=replace(context.trainer, channels_last=channels_last))
    good, bad = (
        ClientPlan(Architecture(recipe_of(own_norm, name="own", buffer=buffer)), _training(), Classifier())
        for buffer in (True, False)
    )
    assert train_clients(data, [torch.arange(33)], [good], context=context)
    with pytest.raises(
        OneshotError, match=r"^client 0 \(own\): training changed numbers .*self\.register_buffer\(NAME"
    ):
        train_clients(data, [torch.arange(33)], [bad], context=context)
    assert len(list(context.store.root.glob("clients/*/manifest.json"))) == 1


def test_a_diverged_decoder_is_the_decoders_learning_rate(data, context):
    adam = recipe_of(torch.optim.Adam, lr=1e30)
    architecture = Architecture(recipe_of(mlp, latent=2, hidden=16))
    plan = ClientPlan(architecture, replace(_training(), optimizer=adam), Autoencoder())
    with pytest.raises(OneshotError, match=r"^client 0 .*diverged, .*; lower clients\.cvae\.optimizer\.lr=1e\+30$"):
        train_clients(data, [torch.arange(44)], [plan], context=context)
    assert not list(context.store.root.glob("clients/*/manifest.json"))


def test_the_progress_says_what_came_from_the_store(data, context):
    def line(clients: int) -> str:
        text = io.StringIO()
        reported = replace(context, progress=Progress(Console(file=text)))
        _train(data, reported, [range(20), range(20, 40), range(40, 60)][:clients])
        return text.getvalue()

    assert line(1).startswith("local training: 3 client epochs in ")
    assert line(1) == "local training: 3 client epochs, from store\n"
    assert line(3).startswith("local training: 6 of 9 client epochs in ")
    assert line(3) == "local training: 9 client epochs, from store\n"
