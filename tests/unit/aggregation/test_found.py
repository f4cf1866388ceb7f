"""A folder or zip of uploads: nothing but model files is opened, nothing is unpacked, and a bomb does not go off."""

import errno
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
    for hidden in (".ipynb_checkpoints", "below/.git/refs"):
        (folder / hidden).mkdir(parents=True)
        (folder / hidden / "one-checkpoint.safetensors").write_bytes(b"")
        (folder / hidden / "model.pt").write_bytes(b"")
    files = [path for path in folder.rglob("*") if path.is_file()]
    _zip(tmp_path / "all.zip", {str(path.relative_to(folder)): path.read_bytes() for path in files})
    assert len(files) == 8
    assert _reasons(folder) == _reasons(tmp_path / "all.zip") == {"one.safetensors": "", "below/two.safetensors": ""}


def test_what_was_exported_of_an_upload_is_none_and_all_else_beside_it_is_looked_at(write, folder, tmp_path):
    names = ("export/a/model.onnx", "export/a/README.md", "export/model.pt2", "export/b.pt", "model.onnx")
    files = {"a.safetensors": write("a").read_bytes(), **dict.fromkeys(names, b"x")}
    for name, content in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(content)
    _zip(tmp_path / "all.zip", files)
    for place in (folder, tmp_path / "all.zip"):
        assert set(_reasons(place)) == {"a.safetensors", "export/b.pt", "model.onnx"}


def test_an_ending_in_large_letters_is_an_uploads_too(write, folder, tmp_path):
    content = write("one").rename(folder / "NORTH.SAFETENSORS").read_bytes()
    _zip(tmp_path / "all.zip", {"NORTH.SAFETENSORS": content, "weights/data.pkl": b"", "README.TXT": b""})
    assert _reasons(folder) == {"NORTH.SAFETENSORS": ""}
    assert _reasons(tmp_path / "all.zip")["NORTH.SAFETENSORS"] == ""
    found.check_name(tmp_path / "South.SafeTensors")


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


def test_a_folder_that_cannot_be_read_is_no_upload_less_but_one_that_is_told_of(write, folder, monkeypatch):
    write("one")
    (folder / "north").mkdir()
    real = os.scandir

    def scandir(path):
        if str(path).endswith("north"):
            raise PermissionError(errno.EACCES, "Permission denied", str(path))
        return real(path)

    monkeypatch.setattr("os.scandir", scandir)
    assert _reasons(folder) == {"north": "north: cannot be read (Permission denied)", "one.safetensors": ""}


def test_a_link_out_of_the_folder_is_not_followed(write, folder, tmp_path):
    write("one").rename(tmp_path / "outside.safetensors")
    (folder / "link.safetensors").symlink_to(tmp_path / "outside.safetensors")
    (folder / "linked").symlink_to(tmp_path)
    (folder / "below").mkdir()
    (folder / "below" / "linked").symlink_to(tmp_path)
    (folder / ".linked").symlink_to(tmp_path)
    assert "cannot be read" in _reasons(folder)["link.safetensors"]
    told = "is a link to a folder, and no link is followed; put the folder itself there"
    linked = {name: f"{name}: {told}" for name in ("linked", "below/linked")}
    assert _reasons(folder) == {**_reasons(folder), **linked}
    assert len(found_in(folder)) == 3  # no linked folder is entered


@pytest.mark.parametrize(
    "name",
    [
        *("../up.safetensors", "/etc/a.safetensors", "a/../../b.safetensors"),
        *("C:/a.safetensors", "C:\\a.safetensors", "a\\..\\..\\b.safetensors", "\\a.safetensors"),
    ],
)
def test_paths_that_lead_out_of_a_zip_are_refused(name, write, tmp_path):
    _zip(tmp_path / "all.zip", {name: write("one").read_bytes()})
    (reason,) = _reasons(tmp_path / "all.zip").values()
    assert "leads out of the zip" in reason


@pytest.mark.parametrize(
    ("name", "unlike"), [("up\\c0.safetensors", "\\"), ("2024-01-01T10:00:00 c0.safetensors", ":")]
)
def test_letters_that_mean_more_on_some_systems_are_refused_with_what_to_do(name, unlike, write, tmp_path):
    _zip(tmp_path / "all.zip", {name: write("one").read_bytes()})
    (reason,) = _reasons(tmp_path / "all.zip").values()
    assert reason.startswith(f"{name}: its path in the zip has a {unlike}, which")
    assert "rename it" in reason


@pytest.mark.parametrize("mode", [0o120777, 0o020644, 0o010644])
def test_links_and_devices_in_a_zip_are_refused(mode, write, tmp_path):
    _zip(tmp_path / "all.zip", {"a.safetensors": write("one").read_bytes()}, mode=mode)
    assert "link or device" in _reasons(tmp_path / "all.zip")["a.safetensors"]


def test_a_model_of_torchs_in_the_place_of_uploads_is_told_in_one_line(tmp_path):
    torch.save({"weight": torch.ones(1)}, tmp_path / "model.pt")
    with pytest.raises(OneshotError, match=r"model\.pt: is a model as torch\.save writes it .*oneshot-fl pack"):
        found_in(tmp_path / "model.pt")


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


def test_too_many_members_are_refused_before_anything_is_done_with_them(tmp_path, monkeypatch):
    _zip(tmp_path / "all.zip", {f"{k}.safetensors": b"" for k in range(3)})
    monkeypatch.setattr(found, "MOST_FILES", 2)
    monkeypatch.setattr(found, "_short", None)
    with pytest.raises(OneshotError, match="holds 3 files, more than 2"):
        found_in(tmp_path / "all.zip")


def test_the_list_of_a_zip_is_read_once_and_not_for_every_member(write, tmp_path, monkeypatch):
    _zip(tmp_path / "all.zip", {f"{k}.safetensors": write("one").read_bytes() for k in range(20)})
    begin, opened = zipfile.ZipFile.__init__, []
    monkeypatch.setattr(zipfile.ZipFile, "__init__", lambda *given, **more: opened.append(1) or begin(*given, **more))
    assert set(_reasons(tmp_path / "all.zip").values()) == {""}
    assert len(opened) == 1


def test_a_zip_is_closed_once_nobody_can_read_out_of_it(write, tmp_path, recwarn):
    _zip(tmp_path / "all.zip", {f"{k}.safetensors": write("one").read_bytes() for k in range(2)})
    before = set(os.listdir("/proc/self/fd"))
    found = found_in(tmp_path / "all.zip")
    found[0].read()
    del found
    assert set(os.listdir("/proc/self/fd")) <= before
    assert not recwarn


def test_what_lies_beside_uploads_in_a_zip_is_counted_too(write, tmp_path, monkeypatch):
    one = write("one").read_bytes()
    _zip(tmp_path / "all.zip", {"one.safetensors": one, **{f"{k}.txt": b"" for k in range(3)}})
    assert len(found_in(tmp_path / "all.zip")) == 1
    monkeypatch.setattr(found, "MOST_MEMBERS", 3)
    with pytest.raises(OneshotError, match=r"all\.zip: holds 4 files and folders, more than 3"):
        found_in(tmp_path / "all.zip")


def test_a_list_of_members_that_is_too_long_is_not_taken_into_memory(tmp_path, monkeypatch):
    _zip(tmp_path / "all.zip", {f"{k}.safetensors": b"" for k in range(3)})
    monkeypatch.setattr(found, "AT_ONCE", 100)
    with pytest.raises(OneshotError, match=r"all\.zip: is no zip of uploads \(Truncated central directory\)"):
        found_in(tmp_path / "all.zip")


def test_a_member_that_is_longer_than_what_is_read_at_once_is_whole(write, tmp_path, monkeypatch):
    content = write("one").read_bytes()
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("one.safetensors", content)
    monkeypatch.setattr(found, "AT_ONCE", 1000)
    assert len(content) > 1000
    assert _reasons(tmp_path / "all.zip") == {"one.safetensors": ""}


def test_what_is_unpacked_of_damaged_members_counts_too(tmp_path, monkeypatch):
    _zip(tmp_path / "all.zip", {f"{k}.safetensors": bytes(10**6) for k in range(3)})
    monkeypatch.setattr(found, "LARGEST_ZIP", 15 * 10**5)
    files = found_in(tmp_path / "all.zip")
    monkeypatch.setattr(zipfile.ZipExtFile, "read", _broken)
    reasons = []
    for each in files:
        with pytest.raises(OneshotError) as told:
            each.read()
        reasons.append(str(told.value))
    assert ["would be larger" in each for each in reasons] == [False, True, True]


def _broken(*_):
    raise zipfile.BadZipFile("Bad CRC-32")


@pytest.mark.parametrize("alike", [False, True])
def test_each_of_thousands_of_members_is_looked_at_a_few_times(alike, tmp_path, monkeypatch):
    """A comparison of every two of them would take minutes."""
    _zip(tmp_path / "all.zip", {f"{' ' * k if alike else k}x.safetensors": b"" for k in range(2000)})
    short, looked = found._short, []
    monkeypatch.setattr(found, "_short", lambda path: looked.append(path) or short(path))
    assert len({each.name for each in found_in(tmp_path / "all.zip")}) == 2000
    assert len(looked) <= 3 * 2000


@pytest.mark.parametrize("packing", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED, zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA])
def test_a_damaged_member_does_not_cost_the_others(packing, write, tmp_path):
    """Whichever of its bytes is another; of many that are not packed some are tried."""
    sound = write("one").read_bytes()
    with zipfile.ZipFile(tmp_path / "all.zip", "w") as archive:
        archive.writestr("bad.safetensors", bytes(range(256)) * 4, packing)
        archive.writestr("one.safetensors", sound)
        first, end = archive.infolist()[0], archive.infolist()[1].header_offset
    content = (tmp_path / "all.zip").read_bytes()
    for place in range(30 + len(first.filename), end, 50 if packing == zipfile.ZIP_STORED else 5):
        (tmp_path / "all.zip").write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        reasons = _reasons(tmp_path / "all.zip")
        assert reasons["one.safetensors"] == ""
        assert reasons["bad.safetensors"].startswith("bad.safetensors: ")


@pytest.mark.parametrize("error", [MemoryError(), EOFError()])
def test_an_error_that_says_nothing_is_named(error, write, tmp_path, monkeypatch):
    """Of a dictionary of 4 GB, which LZMA asks for in a few bytes, and of a member that is cut off."""
    _zip(tmp_path / "all.zip", {"a.safetensors": write("one").read_bytes()})

    def read(*_):
        raise error

    monkeypatch.setattr(zipfile.ZipExtFile, "read", read)
    (reason,) = _reasons(tmp_path / "all.zip").values()
    assert reason == f"a.safetensors: cannot be read out of the zip ({type(error).__name__})"


ALIKE = ("client  1.safetensors", "client 1.safetensors", "client\t1.safetensors", "client 1.safetensors (2)")
"""Files that a reader of a report would take for one, and what one of them would be called if numbers were not looked
at."""


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_names_that_are_printed_alike_are_told_apart(kind, folder, tmp_path):
    """Whoever has an honest name keeps it, so nobody rides on it."""
    for name in ALIKE:
        (folder / name).write_bytes(b"")
    _zip(tmp_path / "all.zip", dict.fromkeys(ALIKE, b""))
    names = [each.name for each in found_in(folder if kind == "folder" else tmp_path / "all.zip")]
    assert names == ["client 1.safetensors", *(f"client 1.safetensors ({number})" for number in (2, 3, 4))]


def test_an_upload_is_read_from_its_own_file_whatever_it_is_called(write, folder):
    honest, hostile = write("client 1").read_bytes(), write("client  1").read_bytes()
    files = {each.name: each.read() for each in found_in(folder)}
    assert files["client 1.safetensors"].content == honest
    assert files["client 1.safetensors (2)"].content == hostile


@pytest.mark.parametrize("kind", ["folder", "zip"])
def test_a_long_path_is_read_and_its_name_keeps_both_ends(kind, write, folder, tmp_path):
    content = write("one").read_bytes()
    paths = [f"{'below' * 20}/{'x' * 100}{middle}{'y' * 100}.safetensors" for middle in "ab"]
    (folder / "one.safetensors").unlink()
    (folder / paths[0]).parent.mkdir()
    for path in paths:
        (folder / path).write_bytes(content)
    _zip(tmp_path / "all.zip", dict.fromkeys(paths, content))
    reasons = _reasons(folder if kind == "folder" else tmp_path / "all.zip")
    first, second = sorted(reasons)
    assert second == f"{first} (2)"
    assert (first.startswith("belowbelow"), first.endswith("yyy.safetensors"), len(first) < 200) == (True, True, True)
    assert set(reasons.values()) == {""}


def test_only_the_file_itself_says_what_it_is(folder):
    """Not its name once white space is gone."""
    (folder / "a.safetensors\n").write_bytes(b"")
    assert "nothing else is read" in _reasons(folder)["a.safetensors"]
