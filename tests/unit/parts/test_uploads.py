"""What the server receives, and what a step between clients and server changes of it."""

from dataclasses import replace

import pytest
import torch
from torch import nn

from oneshot_fl.code import _seen
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.cvae import mlp
from oneshot_fl.parts.uploads import ClassifierUpload, Uploads
from tests.parts import SMALL, decoder_of, server_of

BY = {"_target_": "oneshot_fl.parts.attacks.Backdoor", "strength": 3}


def _uploads() -> Uploads:
    vae = mlp(SMALL, latent=2, hidden=4)
    classifiers = [ClassifierUpload(nn.Linear(1, 1), 10 * (k + 1), f"client {k}") for k in range(3)]
    return Uploads(tuple(classifiers), (decoder_of(vae, [1, 2, 0], key="client 3"),))


def _named() -> Uploads:
    uploads = _uploads()
    return Uploads(
        tuple(replace(upload, name=upload.key) for upload in uploads.classifiers),
        tuple(replace(upload, name=upload.key) for upload in uploads.decoders),
    )


def _keys(uploads: Uploads) -> list[str]:
    return [upload.key for upload in (*uploads.classifiers, *uploads.decoders)]


def test_models_and_sizes_are_those_of_the_classifiers():
    uploads = _uploads()
    assert uploads.sizes == [10, 20, 30]
    assert uploads.models == [upload.model for upload in uploads.classifiers]


def test_the_key_depends_on_every_upload_on_its_order_and_on_its_kind():
    uploads = _uploads()
    first, second, third = uploads.classifiers
    others = [
        replace(uploads, classifiers=(first, second)),
        replace(uploads, classifiers=(second, first, third)),
        replace(uploads, decoders=()),
        replace(uploads, decoders=(replace(uploads.decoders[0], key="another"),)),
        Uploads((*uploads.classifiers, ClassifierUpload(nn.Linear(1, 1), 1, "client 3"))),
    ]
    assert _uploads().key == uploads.key
    assert len({uploads.key, *(other.key for other in others)}) == 6


def test_a_step_that_replaces_one_upload_changes_only_that_ones_key():
    uploads = _uploads()

    def flip(given: Uploads) -> Uploads:
        first, second, third = given.classifiers
        return replace(given, classifiers=(first, replace(second, model=nn.Linear(1, 1)), third))

    after = uploads.through(flip, BY)
    changed = [old != new for old, new in zip(_keys(uploads), _keys(after), strict=True)]
    assert changed == [False, True, False, False]
    assert after.key != uploads.key
    assert after.sizes == uploads.sizes


def test_a_replaced_key_says_by_what_and_of_what():
    uploads = _uploads()

    def retouch(given: Uploads) -> Uploads:
        return Uploads(
            tuple(replace(upload) for upload in given.classifiers), tuple(replace(each) for each in given.decoders)
        )

    one, again, other = (uploads.through(retouch, described) for described in (BY, dict(BY), BY | {"strength": 4}))
    assert _keys(one) == _keys(again)
    assert len({*_keys(uploads), *_keys(one), *_keys(other)}) == 12


def test_a_replaced_key_says_by_which_code_beside_which_others_and_where(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(str(tmp_path))
    uploads, by = _uploads(), {"_target_": "some_attack.Attack"}
    others = replace(uploads, classifiers=(uploads.classifiers[0], replace(uploads.classifiers[1], key="other")))

    def first(given):
        return replace(given, classifiers=(replace(given.classifiers[0]), *given.classifiers[1:]))

    keys = []
    for strength in (3, 4):
        (tmp_path / "some_attack.py").write_text(f"STRENGTH = {strength}\nclass Attack: ...\n")
        _seen.clear()
        keys.append(uploads.through(first, by).classifiers[0].key)
    keys.append(others.through(first, by).classifiers[0].key)
    assert len(set(keys)) == 3
    alike = replace(uploads, classifiers=tuple(replace(each, key="same") for each in uploads.classifiers))
    after = alike.through(lambda given: replace(given, classifiers=tuple(map(replace, given.classifiers))), by)
    assert len({each.key for each in after.classifiers}) == 3


def test_a_step_that_drops_uploads_leaves_the_keys_of_those_that_stay_and_says_whom():
    uploads = _named().without({"client 2": "late"})
    after = uploads.through(lambda given: Uploads(given.classifiers[1:], given.decoders), BY, who="gate=first")
    assert _keys(after) == _keys(uploads)[1:]
    assert after.key != uploads.key
    assert [one.told for one in after.quarantined] == [
        "quarantined client 2: late",
        "quarantined client 0: left out by gate=first",
    ]


def test_the_key_of_what_a_step_drew_tells_one_draw_from_another():
    drawn = iter((1.0, 1.0, 2.0))

    def draw(given: Uploads) -> Uploads:
        model = nn.Linear(1, 1)
        nn.init.constant_(model.weight, next(drawn))
        nn.init.zeros_(model.bias)
        return replace(given, classifiers=(replace(given.classifiers[0], model=model), *given.classifiers[1:]))

    uploads = _uploads()
    one, again, other = (uploads.through(draw, BY).key for _ in range(3))
    assert one == again != other


def test_what_a_step_says_of_samples_is_in_the_key():
    uploads, said = _uploads(), iter((5, 6))

    def lie(given: Uploads) -> Uploads:
        return replace(given, classifiers=(replace(given.classifiers[0], samples=next(said)), *given.classifiers[1:]))

    assert uploads.through(lie, BY).key != uploads.through(lie, BY).key


def test_a_step_that_seeds_nothing_draws_the_same_in_every_run():
    def noisy(given: Uploads) -> Uploads:
        model = nn.Linear(1, 1)
        return replace(given, classifiers=(replace(given.classifiers[0], model=model), *given.classifiers[1:]))

    uploads = _uploads()
    assert uploads.through(noisy, BY).key == uploads.through(noisy, BY).key


@pytest.mark.parametrize(
    ("step", "says"),
    [
        (lambda given: None, "gate=odd: gives a NoneType instead of the uploads that are left; let it return"),
        (lambda given: given.classifiers, "gate=odd: gives a tuple instead"),
        (lambda given: given.without({"client 9": "odd"}), "turns away client 9, but there are client 0, client 1"),
    ],
)
def test_a_step_that_gives_no_uploads_or_turns_away_nobody_is_told(step, says):
    with pytest.raises(OneshotError, match=says):
        _named().left_by(step, "gate=odd")


def test_a_reason_is_one_line_of_text_whatever_a_gate_gives():
    told = _uploads().without({"client 0": 3, "client 1": "not\nfinite"}).quarantined
    assert [one.reason for one in told] == ["3", "not finite"]


def test_a_method_that_needs_label_counts_says_whose_are_missing():
    counts = torch.tensor([1, 2, 0])
    first, *others = _named().classifiers
    uploads = Uploads((replace(first, label_counts=counts), *others))
    with pytest.raises(OneshotError, match=r"^method=dfdg: needs label counts .* none of client 1 \(and 1 more\)$"):
        uploads.require(frozenset({"classifiers", "label_counts"}), "dfdg")
    replace(uploads, classifiers=uploads.classifiers[:1]).require(frozenset({"label_counts"}), "dfdg")


def test_a_step_that_leaves_all_as_they_are_leaves_the_key():
    uploads = _uploads()
    assert uploads.through(lambda given: given, BY).key == uploads.key


@torch.no_grad()
def _negate(model: nn.Module) -> None:
    for parameter in model.parameters():
        parameter.neg_()


def _negate_past_versions(model: nn.Module) -> None:
    """Autograd does not see this one."""
    for parameter in model.parameters():
        parameter.data.neg_()


def _pass_on_nothing(model: nn.Module) -> None:
    model.register_buffer("silent", torch.zeros(1), persistent=False)


@pytest.mark.parametrize("change", [_negate, _negate_past_versions, _pass_on_nothing])
@pytest.mark.parametrize("place", [1, 3])
def test_a_step_that_writes_into_a_model_does_not_leave_it_its_honest_key(change, place):
    uploads = _uploads()
    before = _keys(uploads)

    def flip(given: Uploads) -> Uploads:
        change((*given.classifiers, *given.decoders)[place].model)
        return given

    after = uploads.through(flip, BY)
    assert [k for k, key in enumerate(_keys(after)) if key != before[k]] == [place]
    assert after.key != uploads.key


def test_a_step_that_writes_into_label_counts_does_not_leave_the_honest_key():
    uploads = _uploads()

    def inflate(given: Uploads) -> Uploads:
        given.decoders[0].label_counts.mul_(10)
        return given

    assert uploads.through(inflate, BY).key != uploads.key


def test_label_counts_are_there_only_if_every_client_sent_its_own():
    counts = torch.tensor([[1, 2, 0], [0, 0, 4]])
    server = server_of([nn.Identity(), nn.Identity()], label_counts=counts)
    assert torch.equal(server.uploads.label_counts, counts)
    silent = replace(server.uploads.classifiers[0], label_counts=None)
    assert replace(server.uploads, classifiers=(silent, server.uploads.classifiers[1])).label_counts is None
    assert server_of().uploads.label_counts is None


def test_a_server_knows_what_it_lacks_of_what_is_made_on_demand():
    needs = frozenset({"classifiers", "guidance", "recitals", "label_counts", "student"})
    assert server_of([nn.Identity()]).lacks(needs) == needs - {"classifiers"}
    whole = server_of(
        [nn.Identity()],
        guidance=torch.ones(3, 1),
        recitals=[torch.zeros(1, 1, 8, 8, dtype=torch.uint8)],
        label_counts=torch.ones(1, 3),
        student=nn.Identity(),
    )
    assert whole.lacks(needs) == frozenset()


def test_uploads_of_one_name_are_refused():
    """Of one kind or two: gates and reports know them by their names alone."""
    uploads = _uploads()
    first, second, third = uploads.classifiers
    with pytest.raises(ValueError, match="several uploads are called client 3"):
        replace(uploads, classifiers=(replace(first, name="client 3"), second, third))
    with pytest.raises(ValueError, match="several uploads are called a"):
        Uploads((replace(first, name="a"), replace(second, name="a")))
