"""Whatever is written as the server's model can be read, and what could not be is refused while nothing is made yet."""

import re
from dataclasses import replace

import pytest

from oneshot_fl.data.decode import Tones
from oneshot_fl.errors import OneshotError
from oneshot_fl.models import described
from oneshot_fl.models.architecture import Architecture
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.model_file import read_model
from oneshot_fl.phases.global_model import StudentPlan
from oneshot_fl.reporting.server_file import server_description, write_server
from tests.parts import SMALL, recipe_of

CNN2 = Architecture(recipe_of(cnn2, norm=True))
TONES = Tones(4095.0, 0)


def _described(class_names=("a", "b", "c"), architectures=(CNN2,), method="fedavg"):
    spec = replace(SMALL, classes=len(class_names))
    return server_description(StudentPlan(architectures, 0), spec, class_names, method=method, tones=TONES)


@pytest.mark.parametrize("figures", [(None, None), (1 / 3, 100 / 3)])
@pytest.mark.parametrize("architectures", [(CNN2,), (CNN2,) * 20])
def test_what_is_written_is_read(architectures, figures, tmp_path):
    told, (accuracy, temperature) = _described(architectures=architectures), figures
    write_server(tmp_path, cnn2(SMALL, norm=True), told, accuracy=accuracy, temperature=temperature)
    read = read_model(tmp_path / "server.safetensors").description
    assert read == replace(told, accuracy=accuracy, temperature=temperature)
    assert (len(read.architectures), read.tones) == (len(architectures), TONES)


LONG = tuple(f"{number:0200}" for number in range(5_000))


@pytest.mark.parametrize(
    ("told", "says"),
    [
        (
            {"architectures": (CNN2,) * 21},
            "method=fedavg: the server's model would be 21 architectures that vote, and a model file holds 20; choose",
        ),
        (
            {"class_names": tuple(map(str, range(10_001)))},
            "server.safetensors: class_names=['0', '1', '2', '3', '4', ",
        ),
        ({"class_names": LONG}, "server.safetensors: what it says of its model has 1,020,"),
        (
            {"architectures": (Architecture(recipe_of(cnn2, widths=list(range(201)))),)},
            "server.safetensors: architectures[0]: arguments must be at most 200 numbers",
        ),
        ({"method": "m" * 201}, "server.safetensors: method="),
    ],
    ids=["architectures", "classes", "letters", "arguments", "method"],
)
def test_what_nothing_could_read_is_told_with_how_much_it_is(told, says):
    with pytest.raises(OneshotError, match=rf"^{re.escape(says)}"):
        _described(**told)


def test_there_is_room_for_figures_that_are_not_known_yet(monkeypatch):
    """A description that is as long as it may be without them: nobody knows the accuracy before all is made."""
    told = _described()
    monkeypatch.setattr(described, "LONGEST", len(told.metadata()[described.KEY]))
    with pytest.raises(OneshotError, match="what it says of its model has"):
        _described()
