"""A method's file may leave out what nothing in it trains by."""

from pathlib import Path

import pytest

from oneshot_fl.config import experiment_of
from oneshot_fl.config.compose import composed, reading_also
from oneshot_fl.errors import OneshotError

STUDENT = "student: {kl: {_target_: oneshot_fl.parts.terms.Distillation, weight: 1.0, temperature: 1.0}}\n"
OBJECTIVE = "objective: {ce: {_target_: oneshot_fl.parts.terms.CrossEntropy, weight: 1.0}}\n"


def _method(folder: Path, source: str, terms: str) -> Path:
    """A folder with `method=mine`, whose images are of a source."""
    (folder / "method").mkdir()
    slots = f"init: fresh, ensemble: uniform, {source}, pool: growing"
    defaults = "".join(f"  - {slot.strip()}\n" for slot in [*slots.split(","), "_self_"])
    (folder / "method" / "mine.yaml").write_text(f"defaults:\n{defaults}name: mine\n{terms}")
    return folder


@pytest.mark.parametrize("source", ["source: proxy", "source: recitals", "source@source.a: strokes"])
def test_sources_that_train_nothing_need_no_objective(source, tmp_path):
    with reading_also(_method(tmp_path, source, STUDENT)):
        assert not experiment_of(composed("method=mine")).method.objective


def test_a_slot_that_is_missing_is_told_with_the_words_that_add_it(tmp_path):
    own = _method(tmp_path, "source: generator", OBJECTIVE + STUDENT)
    file = own / "method" / "mine.yaml"
    file.write_text(file.read_text().replace("  - init: fresh\n", ""))
    says = r"^method\.init: method=mine needs one; add `- init: NAME` to the defaults .* \+method/init=NAME$"
    with reading_also(own):
        with pytest.raises(OneshotError, match=says):
            experiment_of(composed("method=mine"))
        assert experiment_of(composed("method=mine", "+method/init=fresh")).method.init
    with pytest.raises(OneshotError, match=r"^method\.init: method=dense needs one; choose it with method/init=NAME$"):
        experiment_of(composed("method=dense", "method.init=null"))


@pytest.mark.parametrize("source", ["source: generator", "source@source.a: generator"])
@pytest.mark.parametrize(("slot", "terms"), [("objective", STUDENT), ("student", OBJECTIVE)])
def test_a_loss_that_is_missing_is_told_with_what_to_write(source, slot, terms, tmp_path):
    line = rf"^method\.{slot}: is missing, and method=mine trains; .* {slot}: {{NAME: "
    with reading_also(_method(tmp_path, source, terms)), pytest.raises(OneshotError, match=line) as told:
        experiment_of(composed("method=mine"))
    assert ("objective: {}" in str(told.value)) == (slot == "objective")
