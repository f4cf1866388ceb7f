"""What a model file says is written and read as it is, and nothing that is not plain and small gets through."""

import json
from dataclasses import replace
from typing import Any

import pytest

from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.decode import Tones
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.described import KEY, ModelDescription, described_by

CNN2 = {"name": "cnn2", "_target_": "oneshot_fl.models.classifiers.cnn2", "norm": True}
TOLD = ModelDescription(
    kind="classifier",
    architectures=(CNN2,),
    spec=DataSpec(3, 28, 2, (0.5, 0.4, 0.3), (0.2, 0.2, 0.2)),
    class_names=("benign", "malignant"),
    number=3,
    samples=7,
    label_counts=(3, 4),
    versions={"torch": "2.11"},
    method="fedchorus",
    accuracy=0.75,
    temperature=1.5,
)


def _read(**changes: Any) -> ModelDescription:
    """A sound description with some of its JSON changed, as a reader takes it; `...` removes a key."""
    told = {**json.loads(TOLD.metadata()[KEY]), **changes}
    return described_by({KEY: json.dumps({k: v for k, v in told.items() if v is not ...})}, "a.safetensors")


def test_what_is_written_is_read():
    assert described_by(TOLD.metadata(), "a file") == TOLD
    without = dict.fromkeys(("number", "samples", "label_counts", "method", "accuracy", "temperature"))
    little = replace(TOLD, versions={}, **without)  # type: ignore[arg-type]  # None of each
    assert described_by(little.metadata(), "a file") == little
    assert described_by(replace(TOLD, tones=Tones(4095.0, 255)).metadata(), "a file").tones == Tones(4095.0, 255)


def test_tones_are_told_only_where_they_are_not_the_usual_ones():
    told = [json.loads(replace(TOLD, tones=tones).metadata()[KEY])["data"] for tones in (Tones(), Tones(background=0))]
    assert "max_value" not in told[0]
    assert "background" not in told[0]
    assert told[1]["background"] == 0
    assert "max_value" not in told[1]


def test_names_of_classes_are_written_as_a_reader_takes_them():
    spelt = replace(TOLD, class_names=(" dog ", "cafe\u0301"))
    assert described_by(spelt.metadata(), "a file").class_names == ("dog", "caf\u00e9")


def test_one_mean_is_for_all_channels_and_counts_make_up_samples():
    read = _read(data=IMAGES, samples=...)
    assert read.spec.mean == (0.5, 0.5, 0.5)
    assert read.spec.std == (0.25, 0.25, 0.25)
    assert read.samples == 7


def test_a_name_of_an_architecture_is_enough():
    assert _read(architectures=[{"name": "cnn2"}]).architectures == ({"name": "cnn2"},)


IMAGES = {"channels": 3, "size": 28, "mean": [0.5], "std": [0.25]}
WRONG: list[tuple[dict[str, Any], str]] = [
    ({"data": IMAGES | {"max_value": 0}}, "data.max_value=0"),
    ({"data": IMAGES | {"background": 256}}, "data.background=256"),
    ({"data": IMAGES | {"background": None}}, "data.background=None"),
    ({"format": 2}, "format=2"),
    ({"format": True}, "format=True"),
    ({"kind": "program"}, "kind=program"),
    ({"kind": ...}, "kind is missing"),
    ({"extra": 1}, "extra is no part"),
    ({"architectures": []}, "architectures"),
    ({"architectures": [{}]}, r"architectures\[0\] needs a name"),
    ({"architectures": [{"norm": True}]}, r"architectures\[0\] needs a name"),
    ({"architectures": [{"name": "cnn2", "norm": True}]}, "arguments but no _target_"),
    ({"architectures": [{"_target_": 3}]}, r"architectures\[0\] needs a name"),
    ({"architectures": [CNN2, CNN2], "kind": "decoder"}, "a decoder has one"),
    ({"architectures": [{**CNN2, "norm": {"_target_": "os.system"}}]}, "plain words"),
    ({"architectures": [{**CNN2, "_args_": [1]}]}, "plain words"),
    ({"architectures": [{**CNN2, "norm": [[[[1]]]]}]}, "nested at most"),
    ({"architectures": [{**CNN2, "norm": [1] * 500}]}, "at most 200 numbers"),
    ({"architectures": [{**CNN2, "norm": "x" * 201}]}, "short texts"),
    ({"architectures": [{**CNN2, "norm": "a\nb"}]}, "short texts"),
    ({"data": {"channels": 2, "size": 28, "mean": [0.5], "std": [0.5]}}, "data.channels=2"),
    ({"data": {"channels": 1, "size": 10**9, "mean": [0.5], "std": [0.5]}}, "data.size"),
    ({"data": {"channels": 1, "size": 28, "mean": [0.5], "std": [0]}}, "data.std"),
    ({"data": {"channels": 3, "size": 28, "mean": [0.5, 0.5], "std": [0.5]}}, "must be 1 or 3 numbers"),
    ({"data": {"channels": 1, "size": 28, "mean": [0.5, 0.5], "std": [0.5]}}, "must be 1 number"),
    ({"data": {"channels": 1, "size": 28, "mean": [0.5]}}, "data.std is missing"),
    ({"class_names": ["a", "a"]}, "class_names"),
    ({"class_names": []}, "class_names"),
    ({"class_names": ["a", "b\x1b[31m"]}, "class_names"),
    ({"class_names": ["a", " dog"]}, "class_names: ' dog' must be written 'dog', without white space"),
    ({"class_names": ["a", "cafe\u0301"]}, r"class_names: 'cafe\\u0301' must be written 'caf\\xe9', .*NFC"),
    ({"label_counts": [3]}, "label_counts"),
    ({"label_counts": [0, 0], "samples": ...}, "label_counts"),
    ({"label_counts": [3, 5]}, "make up samples=7"),
    ({"label_counts": [3, -4]}, "label_counts"),
    ({"number": -1}, "number=-1"),
    ({"samples": 0}, "samples=0"),
    ({"accuracy": 1.5}, "accuracy=1.5"),
    ({"temperature": 0}, "temperature=0"),
    ({"versions": {"torch": 2}}, "versions"),
]


@pytest.mark.parametrize(("changes", "says"), WRONG, ids=[says for _, says in WRONG])
def test_what_is_wrong_is_named_on_one_line(changes, says):
    with pytest.raises(OneshotError, match=says) as error:
        _read(**changes)
    assert str(error.value).startswith("a.safetensors: ")
    assert "\n" not in str(error.value)
    assert "\x1b" not in str(error.value)


@pytest.mark.parametrize(
    "text", ["", "[", "3", "null", '{"format": 1', "[" * 100_000, "x" * 2_000_000, '{"format": NaN}']
)
def test_what_is_no_description_is_refused(text):
    with pytest.raises(OneshotError, match=r"a\.safetensors: "):
        described_by({KEY: text}, "a.safetensors")


def test_a_file_that_says_nothing_is_refused():
    with pytest.raises(OneshotError, match="oneshot-fl pack"):
        described_by({}, "a.safetensors")
