"""The keys of a federation: made once, and kept when more clients come."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.pipeline.flower import APP

pytestmark = pytest.mark.skipif(
    not (shutil.which("openssl") and shutil.which("ssh-keygen")), reason="needs openssl and ssh-keygen"
)
HERE, THERE = "IP:127.0.0.1", "DNS:server.example"


def _make(folder: Path, *words: str) -> subprocess.CompletedProcess[str]:
    command = ["sh", APP / "keys.sh", folder, *words]
    return subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)


def _files(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.iterdir()}


def _openssl(folder: Path, *words: str) -> str:
    return subprocess.run(["openssl", *words], cwd=folder, capture_output=True, text=True, check=True).stdout


@pytest.fixture
def keys(tmp_path):
    folder = tmp_path / "keys"
    assert _make(folder, HERE, "client-0").returncode == 0
    return folder


def test_a_second_call_adds_clients_and_changes_nothing_else(keys):
    before = _files(keys)
    done = _make(keys, HERE, "client-0", "client-1")
    assert (done.returncode, done.stderr) == (0, "")
    after = _files(keys)
    assert after.keys() - before.keys() == {"client-1", "client-1.pub"}
    assert {name: after[name] for name in before} == before


def test_another_address_gets_a_certificate_of_the_same_authority(keys):
    before = _files(keys)
    assert _make(keys, THERE, "client-0").returncode == 0
    after = _files(keys)
    assert [name for name in ("ca.key", "ca.crt", "client-0") if after[name] != before[name]] == []
    _openssl(keys, "verify", "-CAfile", "ca.crt", "server.pem")
    told = _openssl(keys, "x509", "-in", "server.pem", "-noout", "-ext", "subjectAltName", "-pubkey")
    assert "DNS:server.example" in told
    assert _openssl(keys, "pkey", "-in", "server.key", "-pubout") in told


def test_clients_are_added_where_keys_were_handed_over(keys):
    """The authority's is locked away, a client's is on the client's machine."""
    for name in ("ca.key", "client-0"):
        (keys / name).unlink()
    assert _make(keys, HERE, "client-0", "client-1").returncode == 0
    assert (keys / "client-1").exists()
    assert not (keys / "client-0").exists()


@pytest.mark.parametrize("missing", ["ca.key", "ca.crt"])
def test_half_an_authority_is_not_replaced(missing, keys):
    (keys / missing).unlink()
    before = _files(keys)
    done = _make(keys, THERE, "client-1")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert done.stderr.startswith(f"keys.sh: {keys}/{missing} is missing: ")
    assert _files(keys) == before


def test_an_authority_that_has_expired_certifies_nothing(keys):
    _openssl(keys, "x509", "-in", "ca.crt", "-signkey", "ca.key", "-days", "-1", "-out", "old.crt")
    (keys / "old.crt").replace(keys / "ca.crt")
    before = _files(keys)
    done = _make(keys, HERE, "client-1")
    assert (done.returncode, done.stderr) == (2, f"keys.sh: {keys}/ca.crt has expired: make all keys in a new folder\n")
    assert _files(keys) == before
