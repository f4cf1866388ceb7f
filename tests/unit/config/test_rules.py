"""Values are held against the signatures that take them; every complaint is one line that says what would be right."""

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any, Literal

import pytest
import torch

from oneshot_fl.config.rules import (
    check_call,
    check_group,
    check_optimizer,
    check_table,
    check_takes_spec,
    check_value,
    parameters_of,
)
from oneshot_fl.errors import OneshotError
from oneshot_fl.fits import problem, shown
from oneshot_fl.values import (
    BatchSize,
    BelowOne,
    Channels,
    Clients,
    Count,
    Deviations,
    Fraction,
    LearningRate,
    Means,
    Name,
    Names,
    NotNegative,
    Positive,
    Rule,
    Seed,
    Share,
    Side,
    Widths,
)

EVEN = Rule("an even number", lambda value: value % 2 == 0)
HERE = "tests.unit.config.test_rules"


@dataclass(frozen=True)
class Term:
    """A part as a method's YAML names it."""

    weight: NotNegative
    temperature: Positive = 1.0


def generator(spec: Any, *, width: Count) -> None:
    raise AssertionError("checks call nothing")


class Server:
    def __init__(self, server: Any, *, steps: Count, keep: Literal["last", "best"], bound: Positive | None) -> None:
        raise AssertionError("checks build nothing")


def with_options(spec: Any, *, depth: Count, **options: Any) -> None:
    raise AssertionError("checks call nothing")


def nested(spec: Any, *, generator: Callable[..., Any]) -> None:
    raise AssertionError("checks call nothing")


def named(spec: Any, *, name: str) -> None:
    raise AssertionError("checks call nothing")


def of_unknown_types(*, a: "NotImportedHere", b: int) -> None:  # noqa: F821
    raise AssertionError("checks call nothing")


NOT_CALLABLE = 3


def _line(call: Callable[[], None]) -> str:
    with pytest.raises(OneshotError) as caught:
        call()
    line = str(caught.value)
    assert "\n" not in line
    return line


@pytest.mark.parametrize(
    ("value", "hint"),
    [
        (3, int),
        (3, float),
        (1e-8, float),
        (True, bool),
        ("x", str),
        (None, Count | None),
        (1, Count | None),
        ("auto", Count | Literal["auto"]),
        (7, Count | Literal["auto"]),
        ([1, 2], Widths),
        ([1, 2.5], list[float]),
        ((1, 2), list[int]),
        ([0.5, 0.999], tuple[BelowOne, BelowOne]),
        ([1, 2, 3], tuple[int, ...]),
        ({"a": 1.0}, dict[str, Positive]),
        ({}, Mapping[str, int]),
        ({"a": object()}, dict),
        (["a", "b"], Names),
        ("a/b", str),
        ("/tmp/x", Path),
        (object(), Any),
        (object(), "a hint that nothing resolves"),
        (None, Annotated[float | None, EVEN]),
        ({"_target_": "x.y"}, torch.nn.Module),
        ({"lr": 1}, Term),
        (1, Channels),
        (2**63 - 1, Seed),
        (0.0, NotNegative),
        (1, Share),
    ],
)
def test_values_that_fit(value, hint):
    assert problem(value, hint) is None


@pytest.mark.parametrize(
    ("value", "hint", "says"),
    [
        (True, int, "a whole number"),
        (1.0, int, "a whole number"),
        (2**63, int, "a whole number"),
        ("1", int, "a whole number"),
        (True, float, "a number"),
        (math.nan, float, "a number"),
        (math.inf, float, "a number"),
        (10**400, float, "a number"),
        ("true", bool, "true or false"),
        (1, bool, "true or false"),
        (0, bool, "true or false"),
        ("", str, "a text that is not empty"),
        (" ", str, "a text that is not empty"),
        (1, str, "a text that is not empty"),
        (None, str, "a text that is not empty"),
        (0, Count, "a whole number of at least 1"),
        (True, Count, "a whole number of at least 1"),
        (1e9, Count, "a whole number of at least 1"),
        (10**10, Count, "a whole number of at most 1,000,000,000"),
        (10**30, Count, "a whole number of at most 1,000,000,000"),
        (-(10**30), Count, "a whole number of at least 1"),
        (-1, Seed, "a whole number of at least 0"),
        (10**6, Clients, "a whole number of at most 10,000"),
        (10**7, BatchSize, "a whole number of at most 1,000,000"),
        (0, Count | None, "a whole number of at least 1, or null"),
        ("none", Count | Literal["auto"], "a whole number of at least 1, or auto"),
        (0, Positive, "a number above 0"),
        (math.nan, Positive, "a number above 0"),
        (1e-320, Positive, "a number of at least 1e-12"),
        (1e30, Positive, "a number of at most 1e9"),
        (1e30, LearningRate, "a number of at most 1000"),
        (1, Fraction, "a number between 0 and 1"),
        (0, Share, "a number above 0 and at most 1"),
        (1, BelowOne, "a number of at least 0 and below 1"),
        (-0.1, NotNegative, "a number of at least 0"),
        ("best", Literal["last"], "last"),
        ("worst", Literal["last", "best"], "one of last, best"),
        (True, Channels, "1 (grey) or 3 (colour)"),
        (2, Channels, "1 (grey) or 3 (colour)"),
        (4, Side, "a whole number between 8 and 1024"),
        (1, list[int], "a list, each entry a whole number"),
        ("ab", list[str], "a list, each entry a text that is not empty"),
        (["a", 1], list[str], "a list, each entry a text that is not empty"),
        ([], Widths, "a list with at least one entry"),
        ([8, 0], Widths, "a list, each entry a whole number of at least 1"),
        ([[1]], list[int], "a list, each entry a whole number"),
        ([0.5], tuple[BelowOne, BelowOne], "a list of 2, each entry a number of at least 0 and below 1"),
        ([0.5, 1], tuple[BelowOne, BelowOne], "a list of 2, each entry a number of at least 0 and below 1"),
        (0.5, tuple[BelowOne, BelowOne], "a list of 2, each entry a number of at least 0 and below 1"),
        ({"a": 0}, dict[str, Positive], "a dictionary, each value a number above 0"),
        ({1: 1.0}, dict[str, Positive], "a dictionary, each name a text that is not empty"),
        ([], dict[str, Positive], "a dictionary {name: value}"),
        (["a", "a"], Names, "a list of at least 2 different names"),
        ("a/b", Name, "a name without / and without control characters"),
        (3, Annotated[int, EVEN], "an even number"),
        ([-1.0], Deviations, "a list, each entry a number between 0.001 and 10"),
        ([], Means, "a list with at least one entry"),
        (3, torch.nn.Module, "a group of settings with a _target_"),
        (3, Callable[[int], int], "a group of settings with a _target_"),
        (3, Term, "a group of settings"),
        ("x", float | torch.Tensor, "a number"),
    ],
)
def test_values_that_do_not_fit_and_what_would(value, hint, says):
    assert problem(value, hint) == says


@pytest.mark.parametrize(
    ("value", "line"),
    [
        ({"a": {"b": 1, "c": 0}, "d": 0}, "k.a.c=0: must be a number above 0"),
        ({"a": 3}, "k.a=3: must be a dictionary {name: value}"),
        ({1: {}}, "k={1: {}}: must be a dictionary, each name a text that is not empty"),
    ],
)
def test_the_entry_of_a_dictionary_that_does_not_fit_is_named(value, line):
    assert _line(lambda: check_value("k", value, dict[str, dict[str, Positive]])) == line


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("1", "'1'"),
        ("true", "'true'"),
        ("", "''"),
        ("~", "'~'"),
        ("ten", "ten"),
        (True, "True"),
        (None, "None"),
        ("two\nlines", "two lines"),
        ("\x07bell", "?bell"),
        ("é中", "é中"),
        ("x" * 100, "x" * 77 + "..."),
    ],
)
def test_values_are_shown_on_one_short_line(value, text):
    assert shown(value) == text


def test_a_call_that_fits():
    check_call("method.objective.adv", {"_target_": f"{HERE}.Term", "weight": 1.0})
    check_call(
        "method.source",
        {"_target_": f"{HERE}.Server", "name": "x", "steps": 3, "keep": "last", "bound": None},
        given={"server", "labels"},
    )
    check_call("s", {"_target_": f"{HERE}.Server", "steps": 3, "keep": "last", "bound": 2}, first=1)
    check_call("m", {"_target_": f"{HERE}.with_options", "depth": 1, "anything": "goes"}, given={"spec"})
    check_call("m", {"_target_": f"{HERE}.of_unknown_types", "a": [], "b": "not checked, the hints cannot be read"})


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"weight": 1, "temprature": 2}, "k.temprature: there is no such key, did you mean k.temperature?; Term takes"),
        ({"weight": -1}, "k.weight=-1: must be a number of at least 0"),
        ({"weight": "1"}, "k.weight='1': must be a number of at least 0"),
        ({"weight": 1, "temperature": None}, "k.temperature=None: must be a number above 0"),
        ({"weight": "???"}, "k.weight: has no value; set it on the command line, k.weight=..."),
        ({}, "k.weight: is missing, and Term needs it; set k.weight=..."),
        ({"weight": 1, 3: 1}, "k: 3 is no name of a key; names are text"),
        ({"weight": 1, "_args_": [1]}, "k._args_: there is no such key"),
        ({"weight": 1, "a\nb": 1}, "k.a b: there is no such key"),
    ],
)
def test_settings_that_a_part_does_not_take(settings, line):
    assert _line(lambda: check_call("k", {"_target_": f"{HERE}.Term", **settings})).startswith(line)


@pytest.mark.parametrize(
    ("target", "line"),
    [
        ("", "must be the dotted name"),
        (None, "must be the dotted name"),
        (5, "must be the dotted name"),
        ("Term", "must be the dotted name"),
        ("a b.c", "must be the dotted name"),
        (".x", "must be the dotted name"),
        ("no_such_package.x", "cannot be imported (No module named 'no_such_package')"),
        ("oneshot_fl.no_such.x", "cannot be imported"),
        (f"{HERE}.NoSuch", "cannot be imported"),
        (f"{HERE}.NOT_CALLABLE", "is no class or function, but int"),
        ("oneshot_fl.config", "is no class or function, but module"),
    ],
)
def test_a_target_that_cannot_be_called(target, line):
    assert line in _line(lambda: check_call("k", {"_target_": target}))


@pytest.mark.parametrize("body", ["raise RuntimeError('of mine')", "1 +", "import sys; sys.exit('of mine')"])
def test_a_users_module_that_fails_to_import_is_named(body, tmp_path, monkeypatch):
    (tmp_path / "their_module.py").write_text(body)
    monkeypatch.syspath_prepend(tmp_path)
    assert _line(lambda: check_call("k", {"_target_": "their_module.f"})).startswith(
        "k._target_=their_module.f: its module cannot be imported ("
    )


def test_what_the_program_passes_is_not_a_setting():
    settings = {"_target_": f"{HERE}.with_options", "depth": 1, "spec": 1}
    assert _line(lambda: check_call("k", settings, given={"spec"})).startswith("k.spec: the program itself passes this")


def test_a_name_is_a_label_and_no_setting_of_what_takes_one():
    settings = {"_target_": f"{HERE}.named", "name": "a"}
    line = _line(lambda: check_call("k", settings, given={"spec"}))
    assert line.startswith("k.name=a: is what it is called and goes no further, but ")
    check_call("k", settings, given={"spec"}, labelled=False)
    check_call("k", {"_target_": f"{HERE}.Term", "weight": 1, "name": "a label"})


@pytest.mark.parametrize(
    ("label", "says"),
    [
        ({"name": ["a"]}, "k.name=['a']: must be a text that is not empty"),
        ({"name": True}, "k.name=True: must be a name without /"),
        ({"_partial_": 5}, "k._partial_=5: must be true or false"),
    ],
)
def test_labels_have_types_too(label, says):
    settings = {"_target_": f"{HERE}.Term", "weight": 1, **label}
    assert _line(lambda: check_call("k", settings)).startswith(says)


def test_what_takes_nothing_is_no_part():
    assert "takes nothing" in _line(lambda: check_call("method.init", {"_target_": "os.getcwd"}, first=1))
    check_call("method.init", {"_target_": "os.getcwd"})


def test_parts_inside_parts_are_checked_too():
    settings = {"_target_": f"{HERE}.nested", "generator": {"_target_": f"{HERE}.generator", "width": 0}}
    assert _line(lambda: check_call("k", settings, given={"spec"})).startswith("k.generator.width=0: must be")
    other = {**settings, "generator": {"_target_": "os.getcwd"}}
    assert "does not take spec" in _line(lambda: check_call("k", other, given={"spec"}))
    assert _line(lambda: check_call("k", {**settings, "generator": 3}, given={"spec"})).startswith(
        "k.generator=3: must"
    )


@pytest.mark.parametrize("settings", [None, 5, "uniform", [1], True])
def test_a_value_where_a_group_belongs(settings):
    assert _line(lambda: check_call("method.ensemble", settings)).startswith(
        f"method.ensemble={settings}: method.ensemble is a group of settings, not a value; to choose another one write "
        "method/ensemble="
    )


def test_a_group_without_choices_names_its_keys():
    line = _line(lambda: check_group("plots", "none"))
    assert line == "plots=none: plots is a group of settings, not a value; set its keys: plots.format"


class Idle(torch.optim.SGD):
    """Steps nothing."""

    def step(self, closure=None):
        """Nothing."""


class OnlyTheFirst(torch.optim.SGD):
    """Steps the first parameter alone."""

    def __init__(self, params, lr):
        super().__init__([next(iter(params))], lr)


class OtherWord(torch.optim.Optimizer):
    """Calls its rate otherwise."""

    def __init__(self, params, lr):
        super().__init__(params, {"rate": lr})

    @torch.no_grad()
    def step(self, closure=None):
        """Plain gradient descent."""
        for group in self.param_groups:
            for parameter in group["params"]:
                parameter.sub_(group["rate"] * parameter.grad)


@pytest.mark.parametrize(
    "settings",
    [
        {"_target_": "torch.optim.SGD", "lr": 0.1, "momentum": 0.9, "nesterov": True},
        {"_target_": "torch.optim.Adam", "_partial_": True, "lr": 1, "betas": [0.5, 0.999]},
        {"_target_": "torch.optim.AdamW", "lr": 0.1, "weight_decay": 0},
        {"_target_": "torch.optim.RMSprop"},
        {"_target_": "pytorch_optimizer.Lion", "lr": 0.1},
        {"_target_": "pytorch_optimizer.AdaShift", "lr": 0.1},  # moves nothing in its first ten steps
    ],
)
def test_optimisers_that_step(settings):
    check_optimizer("distill.student_optimizer", settings)


def test_an_optimiser_of_clients_which_no_schedule_moves_may_call_its_rate_otherwise():
    check_optimizer("clients.optimizer", {"_target_": f"{__name__}.OtherWord", "lr": 0.1})


@pytest.mark.parametrize(
    ("settings", "line"),
    [
        ({"lr": 0}, "o.lr=0: must be a number above 0"),
        ({"lr": 1e30}, "o.lr=1e+30: must be a number of at most 1000"),
        ({"lr": "0.1"}, "o.lr='0.1': must be a number above 0"),
        ({"momentum": -1}, "o.momentum=-1: must be a number of at least 0 and below 1"),
        ({"foo": 1}, "o.foo: there is no such key; SGD takes lr, momentum, "),
        ({"params": [1]}, "o.params: there is no such key"),
        ({"maximize": True}, "o.maximize=True: must be False"),
        ({"nesterov": True}, "o: SGD does not work with these settings (Nesterov"),
        ({"nesterov": "true"}, "o.nesterov='true': must be true or false"),
        ({"fused": True, "foreach": True}, "o: SGD does not work with these settings ("),
        ({"_target_": "torch.optim.Adam", "betas": [0.9]}, "o.betas=[0.9]: must be a list of 2, each entry a number"),
        ({"_target_": "torch.optim.Adam", "betas": [0.9, 1]}, "o.betas=[0.9, 1]: must be a list of 2, each entry"),
        ({"_target_": "torch.optim.Adam", "eps": -1}, "o.eps=-1: must be a number of at least 0"),
        ({"_target_": "torch.optim.LBFGS"}, "o: LBFGS does not work with these settings ("),
        ({"_target_": "torch.optim.Adma"}, "o._target_=torch.optim.Adma: cannot be imported ("),
        ({"_target_": "builtins.len"}, "o: len does not work with these settings ("),
        ({"_target_": "builtins.list"}, "o: list does not work with these settings ("),
        ({"_target_": "pytorch_optimizer.Lion", "betas": [0.9, 2]}, "o.betas=[0.9, 2]: must be a list of 2"),
        ({"_target_": f"{__name__}.Idle"}, "o: Idle leaves a parameter as it is, step by step"),
        ({"_target_": f"{__name__}.OnlyTheFirst"}, "o: OnlyTheFirst leaves a parameter as it is"),
        ({"_target_": f"{__name__}.OtherWord"}, "o: OtherWord keeps no `lr`, which schedules multiply"),
    ],
)
def test_optimisers_that_do_not(settings, line):
    settings = {"_target_": "torch.optim.SGD", "lr": 0.1, **settings}
    if "Lion" not in line and settings["_target_"].startswith("builtins"):
        del settings["lr"]
    assert _line(lambda: check_optimizer("o", settings)).startswith(line)


@dataclass(frozen=True)
class Training:
    epochs: Count
    optimizer: Callable[..., Any]
    inner: Term | None = None
    names: list[str] = field(default_factory=list)
    derived: int = field(default=0, init=False)


SGD = {"_target_": "torch.optim.SGD", "lr": 0.1}


def test_settings_of_a_dataclass():
    check_table("clients", {"epochs": 1, "optimizer": SGD}, parameters_of(Training))
    check_table("", {"epochs": 1, "optimizer": SGD, "names": [], "inner": {"weight": 1}}, parameters_of(Training))


@pytest.mark.parametrize(
    ("key", "change", "line"),
    [
        ("clients", {"epochs": 0}, "clients.epochs=0: must be a whole number of at least 1"),
        ("", {"epochs": 0}, "epochs=0: must be a whole number of at least 1"),
        ("clients", {"epoch": 1}, "clients.epoch: there is no such key, did you mean clients.epochs?; clients takes"),
        ("", {"epoch": 1}, "epoch: there is no such key, did you mean epochs?; the configuration takes epochs"),
        ("clients", {"derived": 1}, "clients.derived: there is no such key"),
        ("clients", {"inner": {"weight": -1}}, "clients.inner.weight=-1: must be a number of at least 0"),
        ("clients", {"inner": 1}, "clients.inner=1: must be a group of settings, or null"),
        ("clients", {"optimizer": {**SGD, "momentum": -1}}, "clients.optimizer.momentum=-1: must be"),
        ("clients", {"optimizer": 3}, "clients.optimizer=3: must be a group of settings with a _target_"),
        (
            "clients",
            {"optimizer": {"lr": 3}},
            "clients.optimizer={'lr': 3}: must be a group of settings with a _target_",
        ),
    ],
)
def test_settings_that_a_dataclass_does_not_take(key, change, line):
    settings = {"epochs": 1, "optimizer": SGD, **change}
    assert _line(lambda: check_table(key, settings, parameters_of(Training))).startswith(line)


def test_a_missing_setting_is_named():
    assert _line(lambda: check_table("clients", {"optimizer": SGD}, parameters_of(Training))).startswith(
        "clients.epochs: is missing, and clients needs it; set clients.epochs=..."
    )
    assert _line(lambda: check_table("clients", 5, parameters_of(Training))).startswith(
        "clients=5: clients is a group of settings"
    )


def test_a_table_of_hints_does_as_well():
    check_table("evaluate", {"batch_size": 3}, {"batch_size": Count})
    assert _line(lambda: check_table("evaluate", {}, {"batch_size": Count})).startswith(
        "evaluate.batch_size: is missing"
    )


def test_an_architecture_that_takes_no_spec_is_told_with_what_to_write():
    line = _line(lambda: check_takes_spec("model", {"_target_": f"{HERE}.Term", "weight": 1}))
    assert line.startswith(f"model._target_={HERE}.Term: does not take `spec`, ")
    assert "write a function build(spec)" in line
    check_takes_spec("model", {"_target_": "oneshot_fl.models.classifiers.cnn2", "norm": True})
