"""The README is short, and what it points to is there."""

import re
from pathlib import Path

import pytest
import yaml

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text()


def test_it_is_short():
    assert len(README.splitlines()) <= 120


def test_every_link_leads_to_a_file():
    links = [link for link in re.findall(r"\]\(([^)#]+)", README) if not link.startswith("http")]
    assert len(links) >= 15
    assert [link for link in links if not (ROOT / link).exists()] == []


OF_CI = ["lint", "test", "type", "docs"]


def test_its_own_commands_are_targets_and_what_ci_calls():
    targets = set(re.findall(r"^([a-z-]+):.*##", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = {target for words in re.findall(r"`?make ((?:[a-z-]+ ?)+)", README) for target in words.split()}
    assert {"demo", "test", "check", "docs", "lint", "type"} <= named & targets
    called = re.findall(r"^make (.+)$", (ROOT / ".ci/run").read_text(), re.MULTILINE)
    assert [word for line in called for word in line.split() if not word.startswith("--")] == OF_CI
    assert f"`make {' '.join(OF_CI)}` is what CI runs" in README


@pytest.mark.parametrize("path", [".github/workflows/ci.yml", ".pre-commit-config.yaml", "CITATION.cff"])
def test_files_for_other_programs_can_be_read(path):
    assert yaml.safe_load((ROOT / path).read_text())


def test_the_tested_versions_are_pinned_but_not_the_torch_pair():
    lines = [line for line in (ROOT / "constraints.txt").read_text().splitlines() if not line.startswith("#")]
    names = {line.split("==")[0] for line in lines}
    assert all(re.fullmatch(r"[a-z0-9-]+==[\w.]+", line) for line in lines)
    assert {"numpy", "lightning", "hydra-core", "pytest", "ruff", "mypy", "mkdocs-material"} <= names
    assert not names & {"torch", "torchvision", "triton"}
    assert "setuptools" not in names  # torch 2.11 and 2.12 want one below 82, and were exchanged for another torch
