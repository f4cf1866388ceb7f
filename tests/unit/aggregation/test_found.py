"""A folder or zip of uploads: nothing but model files is opened, nothing is unpacked, and a bomb does not go off."""

import os
import zipfile

import pytest
import torch

from oneshot_fl.aggregation import found
from oneshot_fl.aggregation.found import found_in
from oneshot_fl.errors import OneshotError


def _reasons(path, **options) -> dict[str, str]:
    """What is wrong with each file, empty where nothing is."""
    reasons = {}
    for each in found_in(path, **options):
        try:
            each.read()
        except OneshotError as error:
            reasons[each.name] = str(error)
        else:
            reasons[each.name] = ""
    return reasons


def _zip(path, members: dict[str, bytes], *, mode: int = 0) -> None:
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            info = zipfile.ZipInfo(name)
            info.external_attr = mode << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)


def test_a_folder_and_its_zip_hold_the_same_uploads(write, folder, tmp_path):
    content = write("one").read_bytes()
    (folder / "below").mkdir()
    (folder / "below" / "two.safetensors").write_bytes(content)
    (folder / "notes.txt").write_text("read me")
    (folder / ".hidden.safetensors").write_bytes(b"")
    _zip(tmp_path / "all.zip", {"one.safetensors": content, "below/two.safetensors": content, "notes.txt": b"read me"})
    assert _reasons(folder) == _reasons(tmp_path / "all.zip") == {"one.safetensors": "", "below/two.safetensors": ""}


def test_pickles_are_never_read_whatever_they_are_called(folder):
    class Harm:
        def __reduce__(self):
            return os.mkdir, (str(folder / "harmed"),)

    for name in ("a.pt", "b.pkl", "c.safetensors"):
        torch.save(Harm(), folder / name)
    reasons = _reasons(folder)
    assert "nothing else is read" in reasons["a.pt"]
    assert "nothing else is read" in reasons["b.pkl"]
    assert "no safetensors file" in reasons["c.safetensors"]
    assert not (folder / "harmed").exists()


def test_a_link_out_of_the_folder_is_not_followed(write, folder, tmp_path):
    write("one").rename(tmp_path / "outside.safetensors")
    (folder / "link.safetensors").symlink_to(tmp_path / "outside.safetensors")
    (folder / "linked").symlink_to(tmp_path)
    assert "cannot be read" in _reasons(folder)["link.safetensors"]
    assert len(found_in(folder)) == 1  # the linked folder is not entered


@pytest.mark.parametrize(
    "name", ["../up.safetensors", "/etc/a.safetensors", "a/../../b.safetensors", "a\\b.safetensors", "C:/a.safetensors"]
)
def test_paths_that_lead_out_of_a_zip_are_refused(name, write, tmp_path):
    _zip(tmp_path / "all.zip", {name: write("one").read_bytes()})
    (reason,) = _reasons(tmp_path / "all.zip").values()
    assert "leads out of the zip" in reason


@pytest.mark.parametrize("mode", [0o120777, 0o020644, 0o010644])
def test_links_and_devices_in_a_zip_are_refused(mode, write, tmp_path):
    _zip(tmp_path / "all.zip", {"a.safetensors": write("one").read_bytes()}, mode=mode)
    assert "link or device" in _reasons(tmp_path / "all.zip")["a.safetensors"]


def test_a_bomb_is_not_unpacked(tmp_path, monkeypatch):
    """What a member says of its size is checked, what comes out of it is bounded, and so is the whole zip."""
    _zip(tmp_path / "all.zip", {f"{k}.safetensors": bytes(10**6) for k in range(3)})
    assert all("would be larger" in each for each in _reasons(tmp_path / "all.zip", largest=10**5).values())
    monkeypatch.setattr(found, "LARGEST_ZIP", 15 * 10**5)
    reasons = list(_reasons(tmp_path / "all.zip").values())
    assert ["would be larger" in each for each in reasons] == [False, True, True]


def test_a_member_that_lies_about_its_size_is_refused(write, tmp_path):
    content = write("one").read_bytes()
    _zip(tmp_path / "all.zip", {"a.safetensors": content})
    lie = (tmp_path / "all.zip").read_bytes().replace(len(content).to_bytes(4, "little"), (99).to_bytes(4, "little"))
    (tmp_path / "all.zip").write_bytes(lie)
    assert "cannot be read out of the zip" in _reasons(tmp_path / "all.zip")["a.safetensors"]


def test_a_zip_of_empty_and_repeated_names_is_read(write, tmp_path):
    content = write("one").read_bytes()
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("a.safetensors", content)
        archive.writestr(zipfile.ZipInfo(""), content)
        with pytest.warns(UserWarning, match="Duplicate"):
            archive.writestr("a.safetensors", content)
    assert len(_reasons(tmp_path / "all.zip")) == 3


@pytest.mark.parametrize("content", [b"", b"PK\x03\x04 but no zip"])
def test_what_is_no_zip_is_one_line(content, tmp_path):
    (tmp_path / "all.zip").write_bytes(content)
    with pytest.raises(OneshotError, match="no zip of uploads"):
        found_in(tmp_path / "all.zip")


def test_nothing_and_too_much_are_refused(folder, write, monkeypatch):
    with pytest.raises(OneshotError, match="holds no upload"):
        found_in(folder)
    with pytest.raises(OneshotError, match="neither a folder nor a zip"):
        found_in(folder / "absent")
    for name in ("one", "two"):
        write(name)
    monkeypatch.setattr(found, "MOST_FILES", 1)
    with pytest.raises(OneshotError, match="more than 1"):
        found_in(folder)
