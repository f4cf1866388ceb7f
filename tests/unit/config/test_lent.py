"""A proxy's own data set: by name, in its own root, and what is wrong with it under the proxy's keys."""

from pathlib import Path

import pytest

from oneshot_fl.config import experiment_of
from oneshot_fl.config.compose import reading_also
from oneshot_fl.errors import OneshotError
from tests.composing import compose_config
from tests.folders import write_digits

LENT = ("trainer=cpu", "method=feddf", "proxy=dataset")


def _other(*overrides):
    return experiment_of(compose_config(*LENT, *overrides)).proxy.other()


def test_image_folders_lend_a_proxy_their_images(tmp_path):
    write_digits(tmp_path / "digits", every=10)
    store = f"store={tmp_path}/store"
    other = _other("proxy.data=image_folder", f"proxy.root={tmp_path}/digits", store)
    assert (len(other.class_names), other.spec.channels) == (10, 3)
    assert list((tmp_path / "store" / "images").glob("*/manifest.json"))  # the run's store


@pytest.mark.parametrize(
    ("words", "own"),
    [
        (["proxy.data=digits", "development=true"], "digits"),
        (
            ["proxy.data=image_folder", "proxy.root=mine", "data=image_folder", "data.name=ours", "data.root=mine"],
            "ours",
        ),
        (["proxy.data=digits", "data.mean=[0.4]", "development=true"], "digits"),
        (
            [
                "proxy.data=image_folder",
                "proxy.root=mine",
                "data=image_folder",
                "data.channels=1",
                "data.root=./x/../mine",
            ],
            "image_folder",
        ),
        (["proxy.data=mnist", "proxy.root=a", "data=mnist", "data.root=b"], "mnist"),
        (
            ["proxy.data=pacs", "proxy.root=a", "data=pacs", "data.root=a", "data.held_out=photo", "data.size=32"],
            "pacs",
        ),
    ],
)
def test_what_the_clients_have_is_not_lent_to_the_server(words, own):
    name = words[0].removeprefix("proxy.data=")
    with pytest.raises(OneshotError, match=rf"^proxy\.data={name}: .* \(data={own}\), .*proxy=holdout"):
        _other(*words)


def test_other_domains_of_the_same_folder_are_lent():
    own = ["data=pacs", "data.root=a", "data.held_out=photo"]
    with pytest.raises(OneshotError, match=r"proxy\.root: .*/a lacks mnist"):  # only where it is read
        _other(*own, "proxy.data=digit_domains", "proxy.root=a")


def no_data():
    return None


def test_what_a_users_code_lends_is_looked_at_too(tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "mine.yaml").write_text(f"name: mine\n_target_: {__name__}.no_data\n")
    with reading_also(tmp_path), pytest.raises(OneshotError, match=r"^proxy\.data=mine: what .* must be a Dataset"):
        _other("proxy.data=mine", f"hydra.searchpath=[file://{tmp_path}]")


def test_its_root_may_be_in_the_users_home(tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    write_digits(Path.home() / "digits", every=10)
    assert len(_other("proxy.data=image_folder", "proxy.root='~/digits'", f"store={tmp_path}/store").train_labels) > 0


@pytest.mark.parametrize(
    ("overrides", "says"),
    [
        (
            ["proxy.data=mnist"],
            r"^proxy\.data=mnist: proxy\.root: MNIST cannot be read from .*: set proxy\.root",
        ),
        (
            ["proxy.data=image_folder"],
            r"^proxy\.data=image_folder: proxy\.root: there is no folder .*/nowhere; set proxy\.root",
        ),
    ],
)
def test_a_root_without_images_is_the_proxys(overrides, says, tmp_path):
    with pytest.raises(OneshotError, match=says) as error:
        _other(*overrides, f"proxy.root={tmp_path}/nowhere", f"store={tmp_path}/store")
    assert "data.root" not in str(error.value)


@pytest.mark.parametrize("key", ["held_out", "size", "channels"])
def test_other_settings_of_it_are_no_keys_of_a_proxy(key):
    with pytest.raises(OneshotError, match=rf"^proxy\.{key}: there is no such key"):
        _other("proxy.data=pacs", f"+proxy.{key}=3")


def test_what_its_own_file_lacks_is_told_with_the_remedy(tmp_path):
    for domain in ("a", "b"):
        write_digits(tmp_path / "root" / domain, every=10)
    own = tmp_path / "own" / "data"
    own.mkdir(parents=True)
    settings = f"hydra.searchpath=[file://{tmp_path}/own]", f"proxy.root={tmp_path}/root", f"store={tmp_path}/store"
    with pytest.raises(OneshotError, match=r"^proxy\.data=image_domains: data\.held_out: .*name a file of your own"):
        _other("proxy.data=image_domains", *settings)
    with reading_also(tmp_path / "own"):
        (own / "mine.yaml").write_text("defaults: [image_domains]\nheld_out: b\nname: mine\n")
        assert _other("proxy.data=mine", *settings).domain_names == ("a",)
        (own / "mine.yaml").write_text("defaults: [image_domains]\nsize: 7\nname: mine\n")
        with pytest.raises(OneshotError, match=r"^proxy\.data=mine: data\.size=7: must be .*name a file of your own"):
            _other("proxy.data=mine", *settings)
        (own / "mine.yaml").write_text("name: mine\n_target_: oneshot_fl.data.datasets.digits\nmean: ???\nstd: [1]\n")
        with pytest.raises(OneshotError, match=r"^proxy\.data=mine: data\.mean: has no value; besides"):
            _other("proxy.data=mine", *settings)
