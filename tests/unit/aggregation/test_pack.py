"""A client's model becomes an upload that the server reads; what does not fit is one line."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors import safe_open
from torch import nn

from oneshot_fl import cli
from oneshot_fl.aggregation.pack import pack, state_of
from oneshot_fl.config.described import build, load
from oneshot_fl.data.dataset import DataSpec
from oneshot_fl.data.decode import Tones
from oneshot_fl.errors import OneshotError
from oneshot_fl.models.bank import has_batch_norm
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.cvae import mlp
from oneshot_fl.models.model_file import read_model
from tests.parts import SMALL

TOLD = {
    "kind": "classifier",
    "data": {"channels": 1, "size": 8, "mean": [0.5], "std": [0.5]},
    "class_names": ["a", "b", "c"],
    "label_counts": [1, 2, 3],
}
RESNET = "torchvision.models.resnet18"
PACK = Path(__file__).parents[3] / "examples" / "pack.py"


@pytest.mark.parametrize("saved", ["state", "module", "checkpoint", "half"])
def test_what_torch_saves_becomes_an_upload(saved, tmp_path):
    model = cnn2(SMALL, norm=True).eval()
    state = model.state_dict()
    half = {name: each.half() if each.is_floating_point() else each for name, each in state.items()}
    content = {"state": state, "module": model, "checkpoint": {"state_dict": state, "epoch": 3}, "half": half}[saved]
    torch.save(content, tmp_path / "model.pt")
    out = tmp_path / "client.safetensors"
    sha256 = pack(tmp_path / "model.pt", TOLD, target="cnn2", arguments={}, out=out)
    file = read_model(out)
    assert file.sha256 == sha256
    assert file.description.samples == 6
    x = torch.randn(2, 1, 8, 8)
    tolerance = {"atol": 1e-2, "rtol": 1e-2} if saved == "half" else {"atol": 0, "rtol": 0}
    torch.testing.assert_close(load(file)(x), model(x), **tolerance)


def test_a_model_among_other_tensors_is_told_with_how_to_save_it_alone(tmp_path):
    state = {
        "criterion.weight": torch.ones(3),
        **{f"net.{k}": v for k, v in cnn2(SMALL, norm=True).state_dict().items()},
    }
    torch.save(state, tmp_path / "model.pt")
    says = r"^cnn2: the file has its tensors below net\., beside others as criterion\.weight; .*whole\.net\.state_dict"
    with pytest.raises(OneshotError, match=says):
        pack(tmp_path / "model.pt", TOLD, target="cnn2", arguments={}, out=tmp_path / "client.safetensors")


def test_a_tensor_too_many_behind_a_prefix_is_named(tmp_path):
    state = {f"net.{name}": each for name, each in cnn2(SMALL, norm=True).state_dict().items()}
    torch.save({**state, "net.more": torch.ones(3)}, tmp_path / "model.pt")
    with pytest.raises(OneshotError, match=r"not those of the file without net\. \(more: expected none"):
        pack(tmp_path / "model.pt", TOLD, target="cnn2", arguments={}, out=tmp_path / "client.safetensors")


def test_a_module_without_its_class_is_told_so(tmp_path):
    torch.save(cnn2(SMALL, norm=True).state_dict(), tmp_path / "model.pt")
    for target, given in (("json", r"json\.CLASS"), ("no_such", r"my_module\.no_such")):
        with pytest.raises(OneshotError, match=rf"is given with its module, --model {given}, "):
            pack(tmp_path / "model.pt", TOLD, target=target, arguments={}, out=tmp_path / "client.safetensors")


@pytest.mark.parametrize("prefix", ["module.", "model.", "_orig_mod.", "module._orig_mod."])
def test_what_a_wrapper_puts_before_all_names_is_left_out_and_said(prefix, tmp_path, capsys):
    state = cnn2(SMALL, norm=True).state_dict()
    torch.save({"state_dict": {prefix + name: each for name, each in state.items()}, "epoch": 3}, tmp_path / "model.pt")
    out = tmp_path / "client.safetensors"
    pack(tmp_path / "model.pt", TOLD, target="cnn2", arguments={}, out=out)
    tensors = read_model(out).tensors()
    assert tensors.keys() == state.keys()
    assert all(torch.equal(tensor, state[name]) for name, tensor in tensors.items())
    assert f"{tmp_path}/model.pt: all of its tensors' names begin with {prefix}, which" in capsys.readouterr().err


def test_a_prefix_that_the_model_has_itself_stays(tmp_path, monkeypatch, capsys):
    (tmp_path / "wrapped_for_pack.py").write_text(
        "from torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        self.model = nn.Sequential(nn.Flatten(), nn.Linear(64, 3))\n"
        "    def forward(self, x):\n"
        "        return self.model(x)\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    from wrapped_for_pack import Net

    torch.save(Net().state_dict(), tmp_path / "model.pt")
    out = tmp_path / "client.safetensors"
    pack(tmp_path / "model.pt", TOLD, target="wrapped_for_pack.Net", arguments={}, out=out)
    assert set(read_model(out).tensors()) == {"model.1.weight", "model.1.bias"}
    assert capsys.readouterr().err == ""


def test_a_prefix_does_not_hide_what_else_differs(tmp_path):
    state = _with_four_answers("cnn2").state_dict()
    torch.save({f"module.{name}": each for name, each in state.items()}, tmp_path / "model.pt")
    told = {**TOLD, "data": {**TOLD["data"], "channels": 3}}
    with pytest.raises(OneshotError, match=r"of the file without module\. \(\d.* the model answers 4$"):
        pack(tmp_path / "model.pt", told, target="cnn2", arguments={}, out=tmp_path / "a.safetensors")


def test_a_folder_that_is_not_there_yet_is_made(tmp_path):
    torch.save(cnn2(SMALL, norm=True).state_dict(), tmp_path / "model.pt")
    out = tmp_path / "new" / "up" / "north.safetensors"
    pack(tmp_path / "model.pt", TOLD, target="cnn2", arguments={}, out=out)
    assert read_model(out).description.samples == 6


def test_a_model_that_is_refused_leaves_the_file_that_was_there(tmp_path):
    model = cnn2(SMALL, norm=True)
    torch.save(model.state_dict(), tmp_path / "model.pt")
    out = tmp_path / "up" / "north.safetensors"
    sha256 = pack(tmp_path / "model.pt", TOLD, target="cnn2", arguments={}, out=out)
    torch.nn.init.constant_(model[-1].weight, float("nan"))
    torch.save(model.state_dict(), tmp_path / "model.pt")
    with pytest.raises(OneshotError, match=r"north\.safetensors: .*not finite"):
        pack(tmp_path / "model.pt", TOLD, target="cnn2", arguments={}, out=out)
    assert read_model(out).sha256 == sha256
    assert list(out.parent.iterdir()) == [out]


def test_a_model_that_would_fill_the_memory_of_servers_is_refused(tmp_path, monkeypatch):
    torch.save(cnn2(SMALL, norm=True).state_dict(), tmp_path / "model.pt")
    monkeypatch.setattr("oneshot_fl.config.tried.memory_here", lambda: 1000)
    with pytest.raises(OneshotError, match=r"north\.safetensors: its model needs .* for 2 images of 1x8x8"):
        pack(tmp_path / "model.pt", TOLD, target="cnn2", arguments={}, out=tmp_path / "north.safetensors")
    assert not (tmp_path / "north.safetensors").exists()


def test_nothing_is_made_where_a_file_lies_in_the_way(tmp_path):
    torch.save(cnn2(SMALL, norm=True).state_dict(), tmp_path / "model.pt")
    (tmp_path / "up").write_text("")
    with pytest.raises(OneshotError, match=r"up: cannot be written \(File exists\)"):
        pack(tmp_path / "model.pt", TOLD, target="cnn2", arguments={}, out=tmp_path / "up" / "north.safetensors")


def test_any_importable_class_can_be_packed_and_is_told_its_number_of_classes(tmp_path):
    from torchvision.models import resnet18

    torch.save(resnet18(num_classes=3).state_dict(), tmp_path / "model.pt")
    told = {**TOLD, "data": {"channels": 3, "size": 32, "mean": [0.5], "std": [0.5]}}
    pack(tmp_path / "model.pt", told, target=RESNET, arguments={}, out=tmp_path / "a.safetensors")
    description = read_model(tmp_path / "a.safetensors").description
    assert description.architectures == ({"_target_": RESNET, "num_classes": 3},)
    with pytest.raises(OneshotError, match="--allow torchvision"):
        build(description)


def _with_four_answers(target: str) -> nn.Module:
    from torchvision.models import resnet18

    four = DataSpec(3, 8, 4, (0.5,), (0.5,))
    return resnet18(num_classes=4) if target == RESNET else cnn2(four, norm=True)


@pytest.mark.parametrize(("target", "layer"), [(RESNET, r"fc\.weight"), ("cnn2", r"\d+\.weight")])
def test_other_classes_than_the_model_answers_are_told_with_the_option(target, layer, tmp_path):
    torch.save(_with_four_answers(target).state_dict(), tmp_path / "model.pt")
    told = {**TOLD, "data": {**TOLD["data"], "channels": 3}}
    says = rf"{layer}: expected \(3, (\d+)\), the file has \(4, \1\)\); --classes names 3, the model answers 4$"
    with pytest.raises(OneshotError, match=says):
        pack(tmp_path / "model.pt", told, target=target, arguments={}, out=tmp_path / "a.safetensors")


def test_another_layer_that_differs_is_not_put_down_to_the_classes(tmp_path):
    torch.save(cnn2(SMALL, norm=False).state_dict(), tmp_path / "model.pt")
    with pytest.raises(OneshotError, match=r"the file has none, but \S+\)$"):
        pack(tmp_path / "model.pt", TOLD, target="cnn2", arguments={}, out=tmp_path / "a.safetensors")


@pytest.mark.parametrize(
    ("changes", "target", "says"),
    [
        ({"class_names": ["a", "b"], "label_counts": None}, "cnn2", "its tensors are not those of the file"),
        ({"class_names": ["a", "a", "b"]}, "cnn2", "class_names"),
        ({"label_counts": [1]}, "cnn2", "label_counts"),
        ({"kind": "decoder", "label_counts": None}, "cvae", "--counts is missing"),
        ({"data": {**TOLD["data"], "mean": [float("nan")]}}, "cnn2", "a number that is not finite"),
        ({}, "lenet5", "its tensors are not those of the file"),
        ({}, "no_such", "no choice"),
        ({}, "no.such", "cannot be imported"),
    ],
)
def test_what_does_not_fit_is_one_line(changes, target, says, tmp_path):
    torch.save(cnn2(SMALL, norm=True).state_dict(), tmp_path / "model.pt")
    with pytest.raises(OneshotError, match=says):
        pack(tmp_path / "model.pt", {**TOLD, **changes}, target=target, arguments={}, out=tmp_path / "a.safetensors")
    assert not (tmp_path / "a.safetensors").exists()


def test_a_name_with_arguments_is_refused_with_the_builder_that_takes_them(tmp_path):
    torch.save(cnn2(SMALL, norm=False).state_dict(), tmp_path / "model.pt")
    out, arguments = tmp_path / "a.safetensors", {"norm": False}
    with pytest.raises(OneshotError, match=r"--arg norm: .*--model oneshot_fl\.models\.classifiers\.cnn2"):
        pack(tmp_path / "model.pt", TOLD, target="cnn2", arguments=arguments, out=out)
    pack(tmp_path / "model.pt", TOLD, target="oneshot_fl.models.classifiers.cnn2", arguments=arguments, out=out)
    assert not has_batch_norm(load(read_model(out)))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ({}, "architecture.norm: is missing, and cnn2 needs it; set --arg norm=..."),
        ({"nrom": False}, "architecture.nrom: there is no such key, did you mean --arg norm?; cnn2 takes norm"),
    ],
)
def test_an_argument_that_is_missing_or_mistyped_is_told_as_it_is_typed(arguments, says, tmp_path):
    torch.save(cnn2(SMALL, norm=False).state_dict(), tmp_path / "model.pt")
    target = "oneshot_fl.models.classifiers.cnn2"
    with pytest.raises(OneshotError, match=f"^{re.escape(f'{target}: {says}')}"):
        pack(tmp_path / "model.pt", TOLD, target=target, arguments=arguments, out=tmp_path / "a.safetensors")


def test_what_no_server_would_take_for_an_upload_is_not_written(tmp_path):
    torch.save(cnn2(SMALL, norm=True).state_dict(), tmp_path / "model.pt")
    with pytest.raises(OneshotError, match=r"a\.st: must end in \.safetensors"):
        pack(tmp_path / "model.pt", TOLD, target="cnn2", arguments={}, out=tmp_path / "a.st")
    assert not (tmp_path / "a.st").exists()


@pytest.mark.parametrize("content", [b"nothing", [1, 2], {"a": 3}, {}])
def test_what_holds_no_model_is_refused(content, tmp_path):
    if isinstance(content, bytes):
        (tmp_path / "model.pt").write_bytes(content)
    else:
        torch.save(content, tmp_path / "model.pt")
    with pytest.raises(OneshotError, match=r"model\.pt"):
        state_of(tmp_path / "model.pt")


REMEDY = "save the state dict alone: torch.save(model.state_dict(), FILE)"


def test_a_checkpoint_of_more_than_tensors_is_refused_by_its_keys(tmp_path):
    model = cnn2(SMALL, norm=True)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1).state_dict()
    torch.save({"model": model.state_dict(), "optimizer": optimizer, "epoch": 3}, tmp_path / "model.pt")
    line = f"model.pt: holds a dictionary of more than tensors (model, optimizer, epoch); {REMEDY}"
    with pytest.raises(OneshotError, match=re.escape(line)):
        state_of(tmp_path / "model.pt")
    torch.save(dict.fromkeys("abcdefghij", 1), tmp_path / "model.pt")
    with pytest.raises(OneshotError, match=r"\(a, b, c, d, e, f, g, h, \.\.\.\)"):
        state_of(tmp_path / "model.pt")


@pytest.mark.parametrize("gone", ["class", "module"])
def test_a_whole_module_whose_class_is_not_found_is_told_with_the_remedy(gone, tmp_path, monkeypatch):
    (tmp_path / "saved_by_pack.py").write_text("from torch import nn\nclass Net(nn.Linear): pass\n")
    monkeypatch.syspath_prepend(tmp_path)
    import saved_by_pack

    torch.save(saved_by_pack.Net(1, 1), tmp_path / "model.pt")
    monkeypatch.delitem(sys.modules, "saved_by_pack")
    if gone == "class":
        monkeypatch.setitem(sys.modules, "saved_by_pack", type(sys)("saved_by_pack"))
    else:
        (tmp_path / "saved_by_pack.py").unlink()
    with pytest.raises(OneshotError, match=r"model\.pt: holds an object whose code is not found here \(") as error:
        state_of(tmp_path / "model.pt")
    assert str(error.value).endswith(REMEDY)
    assert ("Can't get attribute 'Net'" in str(error.value)) == (gone == "class")


@pytest.mark.filterwarnings("ignore:`torch.jit:FutureWarning", "ignore:`torch.jit:DeprecationWarning")
def test_torchscript_is_told_without_a_warning_of_torchs(tmp_path, recwarn):
    torch.jit.script(nn.Linear(1, 1)).save(str(tmp_path / "model.pt"))
    recwarn.clear()
    with pytest.raises(OneshotError, match=re.escape(f"model.pt: is TorchScript, code and tensors in one; {REMEDY}")):
        state_of(tmp_path / "model.pt")
    assert not recwarn.list


def test_an_archive_that_is_broken_is_one_line(tmp_path):
    torch.save(cnn2(SMALL, norm=True).state_dict(), tmp_path / "model.pt")
    content = (tmp_path / "model.pt").read_bytes()
    (tmp_path / "model.pt").write_bytes(content[:100] + content[-22:])
    with pytest.raises(OneshotError, match=r"model\.pt: cannot be read as what torch\.save writes"):
        state_of(tmp_path / "model.pt")


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (lambda each: each.to_sparse(), "torch.sparse_coo"),
        (lambda each: each.to("meta"), "without numbers"),
        (lambda each: each.to(torch.complex64), "complex"),
        (lambda each: torch.quantize_per_tensor(each, 0.1, 0, torch.qint8), "quantized"),
        (lambda each: each.to(torch.int8), "torch.int8"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_weights_that_are_not_of_an_ordinary_kind_are_refused_by_name(change, what, tmp_path):
    state = cnn2(SMALL, norm=True).state_dict()
    name = next(name for name, each in state.items() if each.is_floating_point())
    torch.save({**state, name: change(state[name])}, tmp_path / "model.pt")
    with pytest.raises(OneshotError, match=rf"model\.pt: tensor {name} is {what}"):
        pack(tmp_path / "model.pt", TOLD, target="cnn2", arguments={}, out=tmp_path / "a.safetensors")
    assert not (tmp_path / "a.safetensors").exists()


SPELT_OTHERWISE = ("a", " caf\u00e9 ", "cafe\u0301 noir")
AS_THEY_SHOULD_BE = ("a", "caf\u00e9", "caf\u00e9 noir")


def test_the_command_writes_names_of_classes_as_everybody_does(tmp_path, monkeypatch):
    torch.save(cnn2(SMALL, norm=True).state_dict(), tmp_path / "model.pt")
    out, images = tmp_path / "client.safetensors", ("--channels", "1", "--size", "8", "--mean", "0.5", "--std", "0.5")
    named = ("--model", "cnn2", "--classes", ",".join(SPELT_OTHERWISE), "--out", str(out), "--max-value", "4095")
    monkeypatch.setattr(sys, "argv", ["oneshot-fl", "pack", str(tmp_path / "model.pt"), *images, *named])
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert not end.value.code
    told = read_model(out).description
    assert (told.class_names, told.tones) == (AS_THEY_SHOULD_BE, Tones(max_value=4095))


@pytest.mark.parametrize(
    ("option", "says"),
    [
        (("--mean", "NaN"), "--mean=NaN: NaN is no finite number"),
        (("--mean", "0.5,1e999"), "--mean=0.5,1e999: 1e999 is no finite number"),
        (("--std", "-Infinity"), "--std=-Infinity: -Infinity is no finite number"),
        (("--counts", "1,NaN,2"), "--counts=1,NaN,2: NaN is no finite number"),
        (("--max-value", "nan"), "--max-value=nan: must be a number above 0"),
        (("--max-value", "inf"), "--max-value=inf: must be a number above 0"),
        (("--arg", "width=NaN"), "--arg width=NaN: NaN is no finite number"),
        (("--arg", 'widths={"a": [1, 1e999]}'), '--arg widths={"a": [1, 1e999]}: 1e999 is no finite number'),
    ],
)
def test_a_number_that_is_not_finite_is_one_line_that_names_its_option(option, says, tmp_path, monkeypatch, capsys):
    torch.save(cnn2(SMALL, norm=True).state_dict(), tmp_path / "model.pt")
    images = ("--channels", "1", "--size", "8", "--mean", "0.5", "--std", "0.5", "--classes", "a,b,c")
    named = ("--model", "oneshot_fl.models.classifiers.cnn2", "--out", str(tmp_path / "client.safetensors"))
    words = ["oneshot-fl", "pack", str(tmp_path / "model.pt"), *images, *named, *option]
    monkeypatch.setattr(sys, "argv", words)
    with pytest.raises(SystemExit) as end:
        cli.main()
    assert (end.value.code, capsys.readouterr().err) == (2, f"oneshot_fl: {says}\n")
    assert not (tmp_path / "client.safetensors").exists()


def test_the_stand_alone_script_writes_names_of_classes_likewise(tmp_path):
    torch.save(nn.Linear(1, 1).state_dict(), tmp_path / "model.pt")
    own = re.sub(r"(?m)^CLASSES = .*$", f"CLASSES = {SPELT_OTHERWISE}", PACK.read_text())
    (tmp_path / "pack.py").write_text(own, encoding="utf-8")
    out = tmp_path / "client.safetensors"
    subprocess.run([sys.executable, tmp_path / "pack.py", tmp_path / "model.pt", out], check=True)
    assert read_model(out).description.class_names == AS_THEY_SHOULD_BE


def test_the_stand_alone_script_makes_a_file_that_we_read(tmp_path):
    model = nn.Sequential(nn.Flatten(), nn.Linear(192, 3)).half()
    torch.save({"state_dict": model.state_dict(), "epoch": 3}, tmp_path / "model.pt")
    out = tmp_path / "client.safetensors"
    subprocess.run([sys.executable, PACK, tmp_path / "model.pt", out], check=True)
    assert read_model(out).description.class_names == ("benign", "malignant", "unclear")
    with safe_open(out, "pt") as file:
        assert json.loads(file.metadata()["oneshot_fl"])["format"] == 1
        assert {file.get_tensor(name).dtype for name in file.keys()} == {torch.float32}  # noqa: SIM118
    assert len(PACK.read_text().splitlines()) <= 30
    assert "import oneshot_fl" not in PACK.read_text()


HOSPITAL = """
from torch import nn


class HospNet(nn.Sequential):
    def __init__(self, in_channels, n_classes=10, hidden=2):
        super().__init__(nn.Conv2d(in_channels, hidden, 8), nn.Flatten(), nn.Linear(hidden, n_classes))
"""


@pytest.fixture
def of_hospital(tmp_path, monkeypatch):
    """Packs the model of somebody's own class, which answers four classes."""
    (tmp_path / "net_for_pack.py").write_text(HOSPITAL)
    monkeypatch.syspath_prepend(tmp_path)
    from net_for_pack import HospNet

    torch.save(HospNet(1, 4).state_dict(), tmp_path / "model.pt")

    def refused(target="net_for_pack.HospNet", *, file="model.pt", **arguments) -> str:
        with pytest.raises(OneshotError) as error:
            pack(tmp_path / file, TOLD, target=target, arguments=arguments, out=tmp_path / "a.safetensors")
        return str(error.value)

    return refused


def test_a_class_that_answers_others_than_were_named_is_told_with_the_option(of_hospital):
    assert of_hospital(in_channels=1, n_classes=4).endswith(
        "answers two images with (2, 4), not (2, 3); --classes names 3, the model answers 4"
    )


def test_tensors_of_other_shapes_are_told_with_the_arguments_that_the_class_takes(of_hospital):
    assert of_hospital(in_channels=1).endswith(
        "the file has (4, 2)); --arg NAME=VALUE tells what it is built with: in_channels, n_classes, hidden; where it "
        "was changed after that, give a function of your own that does both, --model MODULE.NAME"
    )


def test_a_class_without_its_module_is_told_how_one_of_your_own_is_named(of_hospital):
    assert of_hospital("HospNet").startswith(
        "--model HospNet: is no choice of conf/model; a class of your own is given with its module, --model "
        "my_module.HospNet, other names are cnn1, "
    )


def test_a_misspelt_class_is_told_by_the_option(of_hospital):
    line = "--model net_for_pack.Hospnet: cannot be imported (net_for_pack has no Hospnet, did you mean HospNet?)"
    assert of_hospital("net_for_pack.Hospnet") == line


def test_a_file_that_is_not_there_is_told_so(of_hospital):
    assert of_hospital(file="modle.pt").endswith("modle.pt: there is no such file")


CHOSEN = """
from torch import nn


class Chosen(nn.Sequential):
    def __init__(self, n, act="relu"):
        super().__init__(nn.Flatten(), nn.Linear(64, n), {"relu": nn.ReLU(), "tanh": nn.Tanh()}[act], nn.Linear(n, 3))


class Asked(Chosen):
    def forward(self, x, *, site):
        return super().forward(x)


class Features(Chosen):
    def forward(self, x):
        return super().forward(x), x


class Doubled(Chosen):
    def forward(self, x):
        return 2 * super().forward(x)


class Doubling(nn.DataParallel):
    def forward(self, x):
        return 2 * super().forward(x)
"""


@pytest.fixture
def chosen(tmp_path, monkeypatch):
    """The module with classes of somebody's own, whose activation is in none of their tensors."""
    (tmp_path / "net_of_choice.py").write_text(CHOSEN)
    monkeypatch.syspath_prepend(tmp_path)
    import net_of_choice

    return net_of_choice


def _pack_chosen(module, tmp_path, **arguments):
    torch.save(module, tmp_path / "model.pt")
    out = tmp_path / "a.safetensors"
    return pack(tmp_path / "model.pt", TOLD, target="net_of_choice.Chosen", arguments=arguments, out=out)


def test_a_whole_module_that_answers_otherwise_is_told_with_the_arguments(chosen, tmp_path):
    sha256 = _pack_chosen(chosen.Chosen(4, "tanh"), tmp_path, n=4, act="tanh")
    with pytest.raises(OneshotError, match=r"its weights; --arg NAME=VALUE tells .*: n, act; .*save the state"):
        _pack_chosen(chosen.Chosen(4, "tanh"), tmp_path, n=4)
    assert read_model(tmp_path / "a.safetensors").sha256 == sha256
    with pytest.raises(OneshotError, match="answers two images otherwise"):
        _pack_chosen(nn.Sequential(chosen.Chosen(4, "tanh")), tmp_path, n=4)
    with pytest.raises(OneshotError, match="answers two images otherwise"):
        _pack_chosen(chosen.Doubled(4), tmp_path, n=4)


def test_a_whole_module_is_compared_without_its_wrapper_and_in_single_precision(chosen, tmp_path):
    for module in (chosen.Doubling(chosen.Chosen(4)), chosen.Chosen(4).half(), chosen.Chosen(4).double()):
        assert _pack_chosen(module, tmp_path, n=4)


def test_what_cannot_be_asked_or_compared_is_taken_at_its_word(chosen, tmp_path):
    for saved in (chosen.Asked(4, "tanh"), chosen.Features(4, "tanh"), chosen.Chosen(4, "tanh").state_dict()):
        assert _pack_chosen(saved, tmp_path, n=4)


def test_a_whole_decoder_is_compared_by_the_images_that_it_makes(tmp_path):
    decoder = mlp(SMALL, latent=2, hidden=256).decoder
    out, told = tmp_path / "a.safetensors", {**TOLD, "kind": "decoder"}
    torch.save(decoder, tmp_path / "model.pt")
    assert pack(tmp_path / "model.pt", told, target="cvae_mlp", arguments={}, out=out)
    decoder.layers[1] = nn.Tanh()
    torch.save(decoder, tmp_path / "model.pt")
    with pytest.raises(OneshotError, match="than what cvae_mlp makes of its weights; if another"):
        pack(tmp_path / "model.pt", told, target="cvae_mlp", arguments={}, out=out)
