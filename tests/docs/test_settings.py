"""The settings' pages: keys, values and comments as the files have them."""

from pathlib import Path

import pytest
import yaml

from docgen.settings import ASSEMBLY, choices_of, groups_of, read_settings, settings_pages

CONF = Path(__file__).parents[2] / "conf"
EXAMPLE = """\
# What it is.
name: example
_target_: package.Part
size: 3        # of a side
colour: "#fff" # not a comment inside
lookup: ${a.b,c}
inner:         # of two
  flow: {_target_: package.Term, weight: 1.0}  # a term
  items: [1, 2]
of: {a: 1}     # looked up
"""


def test_keys_values_and_comments_are_those_of_the_file():
    found = {s.key: (s.value, s.comment) for s in read_settings(EXAMPLE, "group.")}
    assert found == {
        "group.size": ("3", "of a side"),
        "group.colour": ('"#fff"', "not a comment inside"),
        "group.lookup": ("${a.b,c}", ""),
        "group.inner": ("", "of two"),
        "group.inner.flow": ("package.Term", "a term"),
        "group.inner.flow.weight": ("1.0", "a term"),
        "group.inner.items": ("[1, 2]", ""),
        "group.of": ("", "looked up"),
    }


def test_a_key_without_a_comment_has_that_of_another_file_and_parts_are_linked(tmp_path):
    folder = tmp_path / "group"
    folder.mkdir()
    (tmp_path / "config.yaml").write_text("seed: 0  # of all draws\n")
    (folder / "one.yaml").write_text("size: 1  # of a side\npart: {_target_: package.Part}\n")
    (folder / "two.yaml").write_text("defaults: [one]\nsize: 2\n")
    pages = settings_pages(tmp_path, {"package.Part": "code/parts.md#package.Part"})
    assert "| `group.size` | `2` | of a side |" in pages["settings/group.md"]
    assert "| `group.part` | [`Part`](../code/parts.md#package.Part) |  |" in pages["settings/group.md"]
    assert "Begins with `one`." in pages["settings/group.md"]
    assert "| `seed` | `0` | of all draws |" in pages["settings/index.md"]


def _leaves(node: object, prefix: str) -> list[str]:
    if not isinstance(node, dict) or not node:
        return [prefix.rstrip(".")]
    children = [(key, value) for key, value in node.items() if key not in ASSEMBLY]
    return [leaf for key, value in children for leaf in _leaves({} if key == "of" else value, f"{prefix}{key}.")]


@pytest.fixture(scope="module")
def pages() -> dict[str, str]:
    """All pages over our own files."""
    return settings_pages(CONF, {})


@pytest.mark.parametrize("group", groups_of(CONF))
def test_every_key_of_every_choice_is_on_its_groups_page(pages, group):
    page = pages[f"settings/{group}.md"]
    choices = choices_of(CONF, group)
    assert choices
    for choice in choices:
        assert f"## `{choice.word}`" in page
    if group != "experiment":  # shown as written
        for path in (CONF / group).rglob("*.yaml"):
            prefix = ".".join(path.relative_to(CONF).parent.parts) + "."
            for key in _leaves(yaml.safe_load(path.read_text()) or {}, prefix):
                assert f"| `{key}` |" in page or key == prefix.rstrip("."), key
