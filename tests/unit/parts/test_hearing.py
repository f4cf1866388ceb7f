"""The hearing: testimonies by hand, who is turned away, and who is not judged.

Content 0, 1 or 2 of an image is its brightness. An honest client gives the right class 0.8 and the others 0.1 each; a
liar gives the 0.8 to class 2 - y. All recite contents 0 and 2 and label them as they see them. Over all recitals both
contents are as frequent, so the lift of a right label is (log 0.8 - log 0.1) / 2 and that of a wrong one its negative.
"""

import math
from dataclasses import replace

import pytest
import torch
from torch import Tensor, nn

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.parts.hearing import Witnesses
from oneshot_fl.parts.uploads import Recital, Uploads
from tests.parts import uploads_of

SPEC = DataSpec(1, 8, 3, (0.5,), (0.5,))
LIFT = math.log(8) / 2
WITNESSES = Witnesses(SPEC, images=10, cut=4.0, least=-0.1, classes=2, least_of_few=-9.0, asked=1)


class Sees(nn.Module):
    """Log-probabilities by the content of an image."""

    def __init__(self, *, liar: bool) -> None:
        super().__init__()
        said = (torch.full((3, 3), 0.1) + 0.7 * torch.eye(3)).log()
        self.register_buffer("said", said.flip(1) if liar else said)

    def forward(self, x: Tensor) -> Tensor:
        return self.said[(x.mean(dim=(1, 2, 3)) + 1).round().long()]


def _images(*contents: int) -> Tensor:
    return (
        torch.tensor([[0, 128, 255][content] for content in contents], dtype=torch.uint8)
        .view(-1, 1, 1, 1)
        .expand(-1, 1, 8, 8)
    )


def _recital(labels: list[int], *, liar: bool) -> Recital:
    contents = [2 - label for label in labels] if liar else labels
    return Recital(_images(*contents), torch.tensor(labels), "key")


def _federation(honest: int, liars: int) -> tuple[Uploads, tuple[Recital, ...]]:
    kinds = [False] * honest + [True] * liars
    models = [Sees(liar=liar) for liar in kinds]
    return uploads_of(models, [1] * len(models)), tuple(_recital([0, 2], liar=liar) for liar in kinds)


def test_a_testimony_is_the_mean_lift_over_what_the_others_recite_and_theirs_over_its_own():
    uploads, recitals = _federation(3, 1)
    testimony, asked = WITNESSES.hear(uploads, recitals).testimonies(torch.ones(4, dtype=torch.bool))
    assert testimony.tolist() == pytest.approx([LIFT / 3] * 3 + [-LIFT], abs=1e-6)  # two agree with an honest client
    assert asked.tolist() == [2] * 4


def test_a_liar_is_turned_away_with_a_line_that_says_why():
    uploads, recitals = _federation(3, 1)
    after = WITNESSES(uploads, recitals)
    assert after.classifiers == uploads.classifiers[:3]
    (one,) = after.quarantined
    assert one.name == "client 3"
    assert "contradicts the others about the 2 classes" in one.reason
    assert f"by {-LIFT:.2f}, less than -0.1" in one.reason


def test_without_the_first_liars_recitals_the_honest_are_believed_and_the_second_is_found():
    uploads, recitals = _federation(3, 2)
    strict = replace(WITNESSES, least=0.1)
    testimony, _ = strict.hear(uploads, recitals).testimonies(torch.ones(5, dtype=torch.bool))
    assert testimony.tolist() == pytest.approx([0.0] * 3 + [-LIFT / 2] * 2, abs=1e-6)  # all below `least`
    assert [one.name for one in strict(uploads, recitals).quarantined] == ["client 3", "client 4"]


def test_who_lacks_most_goes_first_though_anothers_lower_testimony_is_allowed():
    """Client 4 recites two classes, where any testimony is believed; client 3 three, and its higher one is too low."""
    uploads, _ = _federation(3, 2)
    everything = [_recital([0, 1, 2], liar=liar) for liar in (False, False, False, True)]
    strict, recitals = replace(WITNESSES, classes=3, least=0.5), (*everything, _recital([0, 2], liar=True))
    testimony, _ = strict.hear(uploads, recitals).testimonies(torch.ones(5, dtype=torch.bool))
    assert testimony[4] < testimony[3] < strict.least < testimony[0]
    assert [one.name for one in strict(uploads, recitals).quarantined] == ["client 3"]


def test_of_few_classes_another_testimony_is_believed_and_of_one_any():
    uploads, recitals = _federation(3, 1)
    few = replace(WITNESSES, classes=3, least_of_few=-LIFT + 0.01)
    (one,) = few(uploads, recitals).quarantined
    assert (one.name, f"less than {-LIFT + 0.01:.3g}" in one.reason) == ("client 3", True)
    assert replace(few, least_of_few=-LIFT - 0.01)(uploads, recitals) == uploads
    of_one = tuple(_recital([0], liar=liar) for liar in (False, False, False, True))
    assert replace(few, least_of_few=9.0)(uploads, of_one) == uploads


def _with_own_words(*shifts: int) -> tuple[Uploads, tuple[Recital, ...]]:
    """Clients that call content j class j + shift, modulo 3, and recite two classes so."""
    models = []
    for shift in shifts:
        models.append(Sees(liar=False))
        models[-1].said = models[-1].said.roll(shift, dims=1)
    contents = ([(label - shift) % 3 for label in (0, 2)] for shift in shifts)
    return uploads_of(models, [1] * len(shifts)), tuple(
        Recital(_images(*own), torch.tensor([0, 2]), "key") for own in contents
    )


def test_those_who_do_not_believe_each_other_turn_nobody_away():
    """All contradict all, as where recitals show nothing to others: whoever goes leaves the rest as it was."""
    uploads, recitals = _with_own_words(0, 1, 2)
    strict = replace(WITNESSES, least=0.5, least_of_few=0.5)
    assert (strict.hear(uploads, recitals).testimonies(torch.ones(3, dtype=torch.bool))[0] < 0).all()
    after = strict(uploads, recitals)
    assert after == uploads
    (said,) = after.notes
    assert said.startswith(
        "the hearing judges nobody: it would turn away 1, but the others recognise what they recite as little"
    )
    assert "less than 0.5; " in said
    agreeing, heard = _with_own_words(0, 0, 1)
    after = replace(strict, least=0.1)(agreeing, heard)
    assert ([one.name for one in after.quarantined], after.notes) == (["client 2"], ())


@pytest.mark.parametrize("shared", [[0], [0, 2]])
def test_those_who_share_less_than_two_classes_cannot_say_whether_they_would_believe_each_other(shared):
    """A liar shares a class or two with each of two clients, who share none or one."""
    uploads, _ = _federation(2, 1)
    recitals = (_recital(shared, liar=False), _recital([2], liar=False), _recital([0, 2], liar=True))
    after = replace(WITNESSES, least_of_few=0.1, least=0.1)(uploads, recitals)
    assert after == uploads
    assert after.notes[0].endswith("it would turn away 1, but the others share too few classes to be asked about")


class AtALoss(Sees):
    """Honest, but what it says of content 2 is no number, `nan` or infinite."""

    def __init__(self, number: float) -> None:
        super().__init__(liar=False)
        self.said[2, 1] = number


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize("honest", [1, 4])
def test_who_answers_others_with_no_number_is_the_one_that_is_turned_away(honest, number):
    uploads, recitals = _federation(honest, 0)
    models = [*uploads.models, AtALoss(number)]
    uploads = uploads_of(models, [1] * len(models))
    after = WITNESSES(uploads, (*recitals, _recital([0, 0], liar=False)))
    assert after.classifiers == uploads.classifiers[:honest]
    (one,) = after.quarantined
    assert (one.name, one.reason) == (f"client {honest}", "answers what is recited with numbers that are not finite")


def test_the_others_are_heard_without_who_answers_with_no_number():
    uploads, recitals = _federation(3, 1)
    uploads = uploads_of([*uploads.models, AtALoss(math.nan)], [1] * 5)
    after = WITNESSES(uploads, (*recitals, _recital([0, 0], liar=False)))
    assert [one.name for one in after.quarantined] == ["client 4", "client 3"]
    assert f"by {-LIFT:.2f}, less than -0.1" in after.quarantined[1].reason


@pytest.mark.parametrize(
    ("honest", "liars", "changed"),
    [(4, 0, {}), (1, 1, {}), (3, 1, {"classes": 3}), (3, 1, {"asked": 7})],
    ids=["honest", "two", "few classes", "few images"],
)
def test_nobody_is_turned_away(honest, liars, changed):
    uploads, recitals = _federation(honest, liars)
    assert replace(WITNESSES, **changed)(uploads, recitals) == uploads


@pytest.mark.parametrize(
    ("clients", "changed", "why"),
    [
        (2, {}, "3 clients must recite for that, and 2 did"),
        (3, {"asked": 5}, "nobody is asked about more than 4 images, of which hearing.asked=5 are needed"),
        (4, {"images": 1, "asked": 4}, "nobody is asked about more than 3 images, of which hearing.asked=4 are needed"),
        (3, {"asked": 4}, None),
    ],
)
def test_recitals_that_nobody_can_be_judged_by(clients, changed, why):
    _, recitals = _federation(clients, 0)
    assert replace(WITNESSES, **changed).judges_nobody(recitals) == why


def test_who_knows_what_the_others_recite_may_still_recite_what_they_do_not_know():
    uploads, recitals = _federation(4, 0)
    mistaken = Sees(liar=False)
    mistaken.said[1] = mistaken.said[2]  # takes content 1 for class 2, and recites it as that
    uploads = uploads_of([*uploads.models[:3], mistaken], [1] * 4)
    recitals = (*recitals[:3], Recital(_images(0, 1), torch.tensor([0, 2]), "key"))
    testimony, _ = WITNESSES.hear(uploads, recitals).testimonies(torch.ones(4, dtype=torch.bool))
    # it hears LIFT for both classes; the others LIFT for its class 0 and, of eight images three of which are class 2 to
    # them, -3/8 log 8 for its class 2
    assert float(testimony[3]) == pytest.approx((LIFT + (LIFT - 3 / 4 * LIFT) / 2) / 2, abs=1e-6)


def test_who_always_says_the_same_says_nothing():
    uploads, recitals = _federation(4, 0)
    constant = Sees(liar=False)
    constant.said.copy_(torch.tensor([0.9, 0.05, 0.05]).log().expand(3, 3))
    uploads = uploads_of([*uploads.models[:3], constant], [1] * 4)
    testimony, _ = WITNESSES.hear(uploads, recitals).testimonies(torch.ones(4, dtype=torch.bool))
    assert float(testimony[3]) == pytest.approx(LIFT / 2)  # nothing by what it hears; the others believe what it shows


def test_images_that_do_not_show_their_class_to_whoever_recites_them_are_not_asked_about():
    uploads, recitals = _federation(4, 0)
    blurred = Recital(_images(1, 2), torch.tensor([0, 2]), "key")  # content 1 for class 0
    heard = WITNESSES.hear(uploads, (blurred, *recitals[1:]))
    assert heard.counts.tolist() == [[0, 0, 1], *[[1, 0, 1]] * 3]
    assert heard.recites[0].tolist() == [True, False, True]


def test_a_client_that_shows_nothing_is_judged_by_what_it_hears_alone():
    """Three of eight images are content 0, three content 2, and its own two content 1, which it knows as class 1."""
    uploads, recitals = _federation(4, 0)
    failed = Recital(_images(1, 1), torch.tensor([0, 2]), "key")  # content 1 for both classes
    recitals = (*recitals[:3], failed)
    testimony, asked = WITNESSES.hear(uploads, recitals).testimonies(torch.ones(4, dtype=torch.bool))
    # to each client three of eight images are class 0: log 0.8 of a right label is 5/8 log 8 above the usual
    assert testimony.tolist() == pytest.approx([5 / 8 * math.log(8)] * 4, abs=1e-6)
    assert asked.tolist() == [2] * 4
    assert replace(WITNESSES, least=0.4 * math.log(8))(uploads, recitals) == uploads  # half of it would be too little


def test_a_liar_that_shows_nothing_is_turned_away_all_the_same():
    uploads, recitals = _federation(3, 1)
    failed = Recital(_images(1, 1), torch.tensor([0, 2]), "key")
    (one,) = WITNESSES(uploads, (*recitals[:3], failed)).quarantined
    assert one.name == "client 3"
    assert (
        f"by {-3 / 8 * math.log(8):.2f}, less than -0.1" in one.reason
    )  # a wrong label: usual in three of eight images


def test_a_lift_is_cut_and_only_the_first_images_are_heard():
    uploads, recitals = _federation(3, 1)
    present = torch.ones(4, dtype=torch.bool)
    testimony, _ = replace(WITNESSES, cut=0.5).hear(uploads, recitals).testimonies(present)
    assert testimony.tolist() == pytest.approx([0.5 / 3] * 3 + [-0.5], abs=1e-6)
    _, asked = replace(WITNESSES, images=1).hear(uploads, recitals).testimonies(present)
    assert asked.tolist() == [1] * 4


def test_a_client_is_judged_once_it_was_asked_about_enough_images():
    uploads, recitals = _federation(3, 1)
    present = torch.ones(4, dtype=torch.bool)
    assert WITNESSES.hear(uploads, recitals).questions(present).tolist() == [[3, 0, 3]] * 4  # one of each other client
    assert len(replace(WITNESSES, asked=6)(uploads, recitals).quarantined) == 1


def test_whoever_recites_least_is_asked_most():
    def of(count: int) -> Recital:
        return Recital(_images(*[0] * count), torch.zeros(count).long(), "key")

    recitals = (of(2), of(9), of(8))  # the first is asked about 17, the others about 10 and 11
    assert replace(WITNESSES, asked=17).judges_nobody(recitals) is None
    assert "more than 17 images" in replace(WITNESSES, asked=18).judges_nobody(recitals)
