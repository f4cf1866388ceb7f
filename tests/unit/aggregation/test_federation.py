"""Files of strangers become one federation: what fits is aligned by the names of classes, what does not stays out."""

import re
import sys

import pytest
import torch

from oneshot_fl.aggregation import room
from oneshot_fl.aggregation.federation import federation_of
from oneshot_fl.aggregation.found import found_in
from oneshot_fl.config.described import build
from oneshot_fl.config.serving import Entrance, entrance_of
from oneshot_fl.config.tried import require_runs
from oneshot_fl.data.decode import Tones
from oneshot_fl.errors import NothingLeftError, OneshotError
from oneshot_fl.models.aligned import AlignedClassifier
from oneshot_fl.models.classifiers import cnn2
from oneshot_fl.models.described import ModelDescription
from oneshot_fl.models.model_file import read_model, write_model
from oneshot_fl.parts.uploads import Uploads
from tests.parts import SMALL, recipe_of


def _of(folder, **options):
    return federation_of(found_in(folder), **options)


def _reasons(federation) -> dict[str, str]:
    return {one.name: one.reason for one in federation.uploads.quarantined}


def test_uploads_of_one_kind_are_used_as_they_are(write, folder):
    for name in ("one", "two"):
        write(name, samples=3, label_counts=(1, 1, 1))
    federation = _of(folder)
    assert federation.class_names == ("a", "b", "c")
    assert federation.spec.classes == 3
    assert [one.name for one in federation.uploads.classifiers] == ["one.safetensors", "two.safetensors"]
    assert not any(isinstance(model, AlignedClassifier) for model in federation.uploads.models)
    assert federation.uploads.sizes == [3, 3]
    assert federation.uploads.label_counts.tolist() == [[1, 1, 1]] * 2


def test_class_lists_are_aligned_by_name(write, folder):
    write("one", classes="ab", label_counts=(5, 6))
    write("two", classes="cb", label_counts=(7, 8))
    federation = _of(folder)
    assert federation.class_names == ("a", "b", "c")
    first, second = federation.uploads.models
    x = torch.randn(4, 1, 8, 8)
    own, answer = second.model(x).softmax(dim=1).detach(), second(x).softmax(dim=1).detach()
    torch.testing.assert_close(answer[:, [2, 1]], own, atol=1e-3, rtol=0)
    assert float(answer[:, 0].max()) < 2e-4
    assert federation.uploads.label_counts.tolist() == [[5, 6, 0], [0, 8, 7]]
    assert [one.unknown for one in federation.uploads.classifiers] == [(2,), (0,)]
    assert first.positions.tolist() == [0, 1, 2]


def test_images_are_brought_to_the_clients_own_normalisation(write, folder):
    for name in ("one", "three"):
        write(name)
    write("two", mean=0.25)
    federation = _of(folder)
    assert federation.spec.mean == (0.5,)
    aligned = federation.uploads.models[2]
    pixels = torch.rand(2, 1, 8, 8)
    torch.testing.assert_close(aligned((pixels - 0.5) / 0.5), aligned.model((pixels - 0.25) / 0.5))


@pytest.mark.parametrize(
    ("uploaded", "common"),
    [
        ([Tones(4095.0), Tones(), Tones(4095.0)], Tones(4095.0)),
        ([Tones(4095.0), Tones(65535.0)], Tones(None)),
        ([Tones(background=0), Tones(background=255), Tones(background=255)], Tones(background=255)),
    ],
)
def test_white_is_what_nobody_contradicts_and_the_ground_what_most_have(uploaded, common, write, folder):
    for number, tones in enumerate(uploaded):
        write(f"client {number}", tones=tones)
    assert _of(folder).tones == common


def test_a_key_follows_the_content_of_the_file_and_the_federation_around_it(write, folder):
    write("one")
    alone = _of(folder).uploads.classifiers[0].key
    assert _of(folder).uploads.classifiers[0].key == alone
    write("two")
    assert _of(folder).uploads.classifiers[0].key == alone
    write("three", classes="abcd")
    assert _of(folder).uploads.classifiers[0].key != alone


def test_random_draws_go_by_the_clients_number_or_else_by_its_files_name(write, folder):
    write("renamed", number=4)
    write("without")
    assert [each.draws for each in _of(folder).uploads.classifiers] == [4, "without.safetensors"]


def test_clients_that_all_tell_the_number_that_nobody_gave_them_draw_by_their_files_names(write, folder):
    write("east", number=0)
    write("north", number=0)
    write("west", number=1)
    assert [each.draws for each in _of(folder).uploads.classifiers] == ["east.safetensors", "north.safetensors", 1]


def test_sizes_count_only_where_all_tell_them(write, folder):
    write("one", samples=9)
    write("two")
    assert _of(folder).uploads.sizes == [1, 1]


def test_what_cannot_be_used_is_quarantined_with_a_line(write, folder):
    for name in ("one", "two"):
        write(name)
    (folder / "again.safetensors").write_bytes((folder / "two.safetensors").read_bytes())
    write("large", size=16)
    write("decoder", kind="decoder", model="cvae_mlp")
    (folder / "broken.safetensors").write_bytes(b"x" * 100)
    reasons = _reasons(_of(folder))
    assert reasons == {
        "broken.safetensors": "is no safetensors file (files are never read as pickles)",
        "decoder.safetensors": "a decoder needs label_counts beside it",
        "large.safetensors": "takes 1x16x16 images, and most of the others 1x8x8",
        "two.safetensors": "is the same file as again.safetensors",
    }


@pytest.fixture
def tried(monkeypatch):
    """The names of the uploads that are tried, in order."""
    names = []

    def recorded(model, told, known, name, **options):
        names.append(name)
        require_runs(model, told, known, name, **options)

    monkeypatch.setattr("oneshot_fl.config.tried.require_runs", recorded)
    return names


def test_what_does_not_take_the_images_of_most_is_not_even_tried(write, folder, tried):
    write("0evil", size=16)
    for name in ("one", "two"):
        write(name)
    assert _reasons(_of(folder)) == {"0evil.safetensors": "takes 1x16x16 images, and most of the others 1x8x8"}
    assert tried == ["one.safetensors", "two.safetensors"]


def test_of_several_turns_of_the_gate_each_upload_is_tried_once(write, folder, tried):
    for name in ("one", "two", "three"):
        write(name, size=16, times=100.0)
    for name in ("four", "five"):
        write(name)
    _of(folder, entrance=entrance_of(()))
    names = ("one", "three", "two", "five", "four")  # the first three decide what images there are, until they are gone
    assert tried == [f"{name}.safetensors" for name in names]


def test_images_that_fill_the_memory_are_not_everybodys_however_many_claim_them(write, folder, monkeypatch):
    for name in ("0evil", "1evil", "2evil"):
        write(name, size=64)
    for name in ("one", "two"):
        write(name)
    monkeypatch.setattr("oneshot_fl.config.tried.memory_here", lambda: 10**6)
    found = _of(folder)
    assert found.spec.size == 8
    assert [one.name for one in found.members] == ["one.safetensors", "two.safetensors"]
    assert _reasons(found).keys() == {"0evil.safetensors", "1evil.safetensors", "2evil.safetensors"}
    assert all(reason.startswith("its model needs ") for reason in _reasons(found).values())


def test_a_single_upload_whose_images_fill_the_memory_is_told_before_it_is_tried(write, folder, tried, monkeypatch):
    write("one", size=64)
    monkeypatch.setattr("oneshot_fl.config.tried.memory_here", lambda: 10**6)
    with pytest.raises(NothingLeftError, match=r"one\.safetensors: its model needs .* for 2 images of 1x64x64"):
        _of(folder)
    assert tried == []


def test_an_upload_that_names_what_only_a_run_can_complete_leaves_the_others_alone(write, folder):
    write("one")
    told = ModelDescription("classifier", ({"name": "torchvision"},), SMALL, tuple("abc"))
    write_model(folder / "open.safetensors", cnn2(SMALL, norm=True).state_dict(), told)
    federation = _of(folder)
    assert [one.name for one in federation.members] == ["one.safetensors"]
    assert "says too little by its name alone" in _reasons(federation)["open.safetensors"]


def test_decoders_draw_the_federations_classes(write, folder):
    write("one", kind="decoder", model="cvae_mlp", classes="ab", label_counts=(1, 2))
    write("two", kind="decoder", model="cvae_mlp", classes="bc", label_counts=(3, 4))
    second = _of(folder).uploads.decoders[1]
    assert second.label_counts.tolist() == [0, 3, 4]
    z = torch.randn(2, second.latent)
    torch.testing.assert_close(second.model(z, torch.tensor([1, 2])), second.model.model(z, torch.tensor([0, 1])))
    assert second.build().decoder.classes == 3
    assert second.unknown == (0,)


def test_decoders_have_no_say_in_how_classifiers_want_their_images(write, folder):
    for name in ("a", "b"):
        write(name, kind="decoder", model="cvae_mlp", label_counts=(1, 1, 1), mean=0.0)
    assert _of(folder).spec.mean == (0.0,)
    write("c")
    federation = _of(folder)
    assert federation.spec.mean == (0.5,)
    assert not isinstance(federation.uploads.models[0], AlignedClassifier)


@pytest.fixture
def write_vae(folder, tmp_path, monkeypatch):
    """Write an upload of a user's own decoder: what it draws of scores `x` and noise `z`, and its VAE's latent."""

    def write_vae(name: str, *, draws: str = "x.sigmoid()", latent: str = "self.latent = 2") -> str:
        (tmp_path / f"{name}_vae.py").write_text(
            "import torch\n"
            "class Decoder(torch.nn.Linear):\n"
            "    def forward(self, z, y):\n"
            "        self.y = y\n"
            "        return self.drawn(super().forward(z).view(-1, 1, 8, 8), z)\n"
            f"    def drawn(self, x, z): return {draws}\n"
            "class Own(torch.nn.Module):\n"
            f"    def __init__(self): super().__init__(); self.decoder = Decoder(2, 64); {latent}\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, f"{name}_vae", raising=False)
        target = f"{name}_vae.Own"
        told = ModelDescription("decoder", ({"_target_": target},), SMALL, tuple("abc"), label_counts=(1, 1, 1))
        weights = {"weight": torch.ones(64, 2), "bias": torch.zeros(64)}
        write_model(folder / f"{name}.safetensors", weights, told)
        return target

    return write_vae


@pytest.mark.parametrize(
    ("own", "reason"),
    [
        (
            {"draws": "-8 * x"},
            "draws pixels from -.* to .*, which are to be from 0 to 1; let its decoder end in a sigmoid",
        ),
        ({"draws": "255 * x.sigmoid()"}, "draws pixels from .* to .*, which are to be from 0 to 1"),
        ({"draws": "x.sigmoid() / (z.abs().sum() == 0)"}, "draws images whose pixels are not finite"),
        ({"draws": "x.sigmoid() / (self.y != 2).view(-1, 1, 1, 1)"}, "draws images whose pixels are not finite"),
        ({"draws": "[x.sigmoid()][self.y.max() // 2]"}, r"cannot be asked for every class \(IndexError: "),
        ({"latent": "self.z_dim = 2"}, r"makes a Own, which is no conditional VAE \(no latent, .*upload-format"),
        ({"latent": "self.latent = 2.0"}, r"makes a Own, which is no conditional VAE \(no latent, "),
        ({"latent": "self.latent = 2; self.decoder = None"}, r"makes a Own, .* \(no decoder\)"),
    ],
    ids=lambda value: " ".join(value.values()) if isinstance(value, dict) else "",
)
def test_a_decoder_that_draws_no_pixels_is_quarantined(own, reason, write, write_vae, folder):
    write("one", kind="decoder", model="cvae_mlp", label_counts=(1, 1, 1))
    target = write_vae("own", **own)
    assert re.search(reason, _reasons(_of(folder, allow=[target]))["own.safetensors"])


def test_somebody_elses_decoder_is_used_as_it_is(write_vae, folder):
    target = write_vae("own", latent="self.latent = 2 * int(self.decoder.weight.isfinite().all())")
    (upload,) = _of(folder, allow=[target]).uploads.decoders
    assert upload.latent == 2
    torch.testing.assert_close(upload.model(torch.ones(1, 2), torch.zeros(1))[0, 0, 0, 0], torch.tensor(2.0).sigmoid())


@pytest.fixture
def write_own(folder, tmp_path, monkeypatch):
    """Write an upload whose model is a user's own class: `width` scores of `images`, `then` done to them."""

    def write_own(name: str, *, width: int, images: str = "x", then: str = "") -> str:
        (tmp_path / f"{name}_net.py").write_text(
            "import torch\n"
            "class Own(torch.nn.Linear):\n"
            f"    def __init__(self): super().__init__(64, {width})\n"
            f"    def forward(self, x): return super().forward(({images}).flatten(1)){then}\n"
        )
        monkeypatch.syspath_prepend(str(tmp_path))
        monkeypatch.delitem(sys.modules, f"{name}_net", raising=False)
        target = f"{name}_net.Own"
        told = ModelDescription("classifier", ({"_target_": target},), SMALL, tuple("abc"))
        write_model(folder / f"{name}.safetensors", build(told, allow=[target]).state_dict(), told)
        return target

    return write_own


def test_a_model_that_answers_in_another_shape_is_quarantined(write, write_own, folder):
    write("one")
    target = write_own("odd", width=5)
    assert "--allow odd_net.Own" in _reasons(_of(folder))["odd.safetensors"]
    assert "answers two images with (2, 5), not (2, 3)" in _reasons(_of(folder, allow=[target]))["odd.safetensors"]


def test_a_model_that_drops_the_axis_of_a_single_image_is_quarantined(write, write_own, folder):
    write("one")
    found = _reasons(_of(folder, allow=[write_own("thin", width=3, then=".squeeze()")]))
    assert found == {"thin.safetensors": "its model answers one image with (3,), not (1, 3)"}


def test_a_model_that_changes_the_images_of_others_is_quarantined(write, write_own, folder):
    write("one")
    found = _reasons(_of(folder, allow=[write_own("own", width=3, images="x.sub_(0.5)")]))
    assert found["own.safetensors"].startswith("changes the images that it is given, which other models see too")


def test_a_model_that_no_server_could_invert_is_quarantined(write, write_own, folder):
    write("one")
    for name, settings in {"first": {"then": ".detach()"}, "second": {"images": "x.detach()"}}.items():
        found = _reasons(_of(folder, allow=[write_own(name, width=3, **settings)]))
        assert found[f"{name}.safetensors"].startswith("its answers have no gradient")


@pytest.mark.parametrize(
    ("method", "names", "reason"),
    [
        ("fedchorus", ("a", "b", "c"), "is a decoder, which method=fedchorus does not use; method=fedcvae_ens does"),
        ("fedcvae_kd", ("x", "y"), "is a classifier, which method=fedcvae_kd does not use; method=fedchorus does"),
        ("fedmho", ("a", "b", "c", "x", "y"), None),
    ],
)
def test_what_the_method_does_not_use_brings_no_classes(method, names, reason, write, folder):
    write("one")
    write("two", kind="decoder", model="cvae_mlp", classes="xy", label_counts=(1, 1))
    federation = _of(folder, entrance=entrance_of([f"method={method}"]))
    assert federation.class_names == names
    assert set(_reasons(federation).values()) == ({reason} if reason else set())


def test_a_model_that_answers_with_probabilities_is_quarantined(write, write_own, folder):
    write("one")
    found = _reasons(_of(folder, allow=[write_own("sure", width=3, then=".softmax(1)")]))
    assert found["sure.safetensors"].startswith("answers with probabilities instead of logits")


def test_a_key_follows_what_somebody_elses_model_reads_besides_its_file(write_own, folder, monkeypatch):
    target = write_own("reads", width=3, then=" * float(__import__('os').environ['GAIN'])")
    keys = []
    for gain in ("1", "1", "2"):
        monkeypatch.setenv("GAIN", gain)
        keys.append(_of(folder, allow=[target]).uploads.classifiers[0].key)
    assert keys[0] == keys[1] != keys[2]


def test_uploads_that_together_know_one_class_are_refused(write, folder):
    write("one", classes="a")
    write("two", classes="a")
    with pytest.raises(OneshotError, match=r"^uploads: all of them know one class, a; add some"):
        _of(folder)
    write("three", classes="b")
    assert _of(folder).class_names == ("a", "b")


def test_an_upload_whose_classes_no_model_has_place_for_is_quarantined(write, folder):
    write("a", classes=[f"class {number}" for number in range(9_998)])
    write("b")
    write("c", classes="cd")
    federation = _of(folder)
    assert federation.class_names == ("a", "b", "c", "d")
    assert _reasons(federation)["a.safetensors"].startswith("names 9,998 classes: with those")
    assert len(_of(folder, entrance=entrance_of(["gate=checks"])).uploads.quarantined) == 1


def test_where_no_upload_has_place_the_reason_is_told(write, folder, monkeypatch):
    monkeypatch.setattr(room, "MOST_CLASSES", 2)
    write("a")
    with pytest.raises(NothingLeftError, match=r"^no upload can be used \(a\.safetensors: names 3 classes"):
        _of(folder)


def test_of_many_reasons_why_no_upload_can_be_used_the_first_are_told(write_own, folder):
    for number in range(9):
        (folder / f"{number}.safetensors").write_bytes(b"nothing")
    alike = r"\(0\.safetensors, .*, 4\.safetensors and 4 more: is no safetensors file [^;]*\)$"
    with pytest.raises(NothingLeftError, match=alike):
        _of(folder)
    for number in range(9):
        (folder / f"{number}.safetensors").unlink()
        write_own(f"net{number}", width=3)
    with pytest.raises(NothingLeftError, match=r"net4\.safetensors: .*; and 4 more\)$") as error:
        _of(folder)
    assert "net5" not in str(error.value)


class LastOfMany:
    """A gate that turns the last upload away, as long as there is another."""

    def __call__(self, uploads: Uploads) -> Uploads:
        names = list(uploads.named())
        return uploads.without({names[-1]: f"the last of {len(names)}"} if len(names) > 1 else {})


def test_what_the_gate_turns_away_has_no_say_in_what_the_federation_is(write, folder):
    write("0evil", classes="zyxa", model="lenet5", mean=0.25, times=100.0)
    write("1evil", classes="w", mean=0.25, times=100.0)
    for name in ("one", "two"):
        write(name, samples=100)
    federation = _of(folder, entrance=entrance_of(()))
    assert _reasons(federation).keys() == {"0evil.safetensors", "1evil.safetensors"}
    assert (federation.class_names, federation.spec.classes, federation.spec.mean) == (("a", "b", "c"), 3, (0.5,))
    assert federation.uploads.sizes == [100, 100]
    assert [one.name for one in federation.members] == ["one.safetensors", "two.safetensors"]
    assert not any(isinstance(model, AlignedClassifier) for model in federation.uploads.models)
    (folder / "0evil.safetensors").unlink()
    (folder / "1evil.safetensors").unlink()
    assert [one.key for one in _of(folder).uploads.classifiers] == [one.key for one in federation.uploads.classifiers]


def test_classes_of_one_honest_client_alone_stay(write, folder):
    write("one")
    write("two", classes="d")
    assert _of(folder, entrance=entrance_of(())).class_names == ("a", "b", "c", "d")


def test_images_of_a_majority_that_the_gate_turns_away_are_not_everybodys(write, folder):
    for name in ("one", "two", "three"):
        write(name, size=16, times=100.0)
    for name in ("four", "five"):
        write(name)
    federation = _of(folder, entrance=entrance_of(()))
    assert federation.spec.size == 8
    assert [one.name for one in federation.members] == ["five.safetensors", "four.safetensors"]
    assert _reasons(federation).keys() == {"one.safetensors", "two.safetensors", "three.safetensors"}


def test_the_gate_judges_anew_until_it_turns_nobody_away(write, folder):
    for name in ("a", "b", "c"):
        write(name, classes=f"z{name}")
    (folder / "broken.safetensors").write_bytes(b"x" * 100)
    federation = _of(folder, entrance=Entrance(recipe_of(LastOfMany), {}))
    assert federation.class_names == ("z", "a")
    assert list(_reasons(federation).items())[1:] == [
        ("c.safetensors", "the last of 3"),
        ("b.safetensors", "the last of 2"),
    ]
    assert next(iter(_reasons(federation))) == "broken.safetensors"


def test_where_the_gate_leaves_nobody_the_reasons_are_told(write, folder):
    write("one", times=100.0)
    with pytest.raises(NothingLeftError, match=r"no upload can be used \(one\.safetensors: .*(explode|statistics)"):
        _of(folder, entrance=entrance_of(()))


def test_where_nothing_is_left_the_reasons_are_told(folder):
    (folder / "broken.safetensors").write_bytes(b"x" * 100)
    with pytest.raises(NothingLeftError, match=r"broken\.safetensors: is no safetensors file"):
        _of(folder)


def test_a_misspelt_name_that_was_allowed_is_told_and_reasons_that_are_alike_once(write_own, folder):
    target = write_own("own", width=3)
    same = read_model(folder / "own.safetensors")
    changed = {name: tensor + 1 for name, tensor in same.tensors().items()}
    write_model(folder / "too.safetensors", changed, same.description)
    with pytest.raises(NothingLeftError) as error:
        _of(folder, allow=["own_net.Onw"])
    line = str(error.value)
    assert line.startswith(f"--allow own_net.Onw: no upload names it, did you mean {target}?; no upload can be used (")
    assert f"(own.safetensors, too.safetensors: its architecture is {target}, which" in line
    assert line.count("not allowed here") == 1


def test_a_misspelt_name_is_a_note_where_other_uploads_are_used(write, write_own, folder):
    write("north")
    target = write_own("mine", width=3)  # a module that no other test imports: it stays in this process
    note = f"--allow mine_net.Onw: no upload names it, did you mean {target}?"
    assert _of(folder, allow=["mine_net.Onw"]).notes == (note,)
    assert _of(folder, allow=[target]).notes == ()
