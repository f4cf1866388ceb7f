"""Pages of all settings, from the YAML files and the comments in them."""

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import yaml

ASSEMBLY = ("defaults", "hydra", "_target_", "_partial_", "name")
"""Keys that say how a file is put together and not how a run is done."""


@dataclass(frozen=True)
class Setting:
    """One key of a file: its dotted name, its value as it is written, and the comment beside it."""

    key: str
    value: str
    comment: str


@dataclass(frozen=True)
class Choice:
    """One YAML file of a group."""

    word: str
    """What a user types: `data=mnist`, `method/ensemble=uniform`."""
    about: list[str]
    """The comment at its top."""
    based_on: list[str]
    part: str
    """What it builds: a dotted name, or nothing."""
    settings: list[Setting]
    text: str


def read_settings(text: str, prefix: str = "") -> list[Setting]:
    """Every key of a YAML file; nested keys are joined by dots, and the value of one that builds a part is its name.

    Lookup tables (`of`) are one key.
    """
    root = yaml.compose(text)
    return list(_settings(root, text, prefix)) if isinstance(root, yaml.MappingNode) else []


def _settings(node: yaml.MappingNode, text: str, prefix: str) -> Iterator[Setting]:
    for key, value in node.value:
        if key.value in ASSEMBLY:
            continue
        name, comment = f"{prefix}{key.value}", _comment(key, value, text)
        if not isinstance(value, yaml.MappingNode) or not value.value:
            yield Setting(name, text[value.start_mark.index : value.end_mark.index].strip(), comment)
            continue
        target = _target(value)
        if target or comment or key.value == "of":
            yield Setting(name, target, comment)
        if key.value != "of":
            yield from _settings(value, text, f"{name}.")


def _target(node: yaml.Node | None) -> str:
    pairs = node.value if isinstance(node, yaml.MappingNode) else []
    return next((str(value.value) for key, value in pairs if key.value == "_target_"), "")


def _comment(key: yaml.Node, value: yaml.Node, text: str) -> str:
    """What stands behind a `#` on the key's line, after the value where that ends there."""
    block = isinstance(value, yaml.MappingNode) and not value.flow_style
    mark = key.end_mark if block or value.end_mark.line > key.end_mark.line else value.end_mark
    rest = text[mark.index :].split("\n", 1)[0]
    return rest.split("#", 1)[1].strip() if "#" in rest else ""


def head_comment(text: str) -> list[str]:
    """The lines of the comment that a file begins with, without Hydra's own."""
    lines = text.splitlines()
    count = next((n for n, line in enumerate(lines) if not line.startswith("#")), len(lines))
    return [line.removeprefix("#").strip() for line in lines[:count] if not line.startswith("# @package")]


def read_choice(conf: Path, path: Path) -> Choice:
    """A choice of any group; experiments may lie in folders and set keys of all groups."""
    text, folder = path.read_text(), path.relative_to(conf).parent
    everywhere = folder.parts[0] == "experiment"
    name = str(path.relative_to(conf / "experiment").with_suffix("")) if everywhere else path.stem
    prefix = "" if everywhere else ".".join(folder.parts) + "."
    word = f"experiment={name}" if everywhere else f"{folder}={name}"
    part = _target(yaml.compose(text))
    return Choice(word, head_comment(text), _bases(text), part, read_settings(text, prefix), text)


def _bases(text: str) -> list[str]:
    defaults = (yaml.safe_load(text) or {}).get("defaults", [])
    words = [each if isinstance(each, str) else "{}={}".format(*next(iter(each.items()))) for each in defaults]
    return [word.removeprefix("override ").removeprefix("/") for word in words]


def groups_of(conf: Path) -> list[str]:
    """The groups that come with the program; `local` is a user's own."""
    return sorted(path.name for path in conf.iterdir() if path.is_dir() and path.name != "local")


def choices_of(conf: Path, group: str) -> list[Choice]:
    """All choices of a group, those of its subgroups last."""
    paths = sorted((conf / group).rglob("*.yaml"), key=lambda path: (len(path.parts), _by_number(str(path))))
    return [read_choice(conf, path) for path in paths]


def _by_number(name: str) -> list[tuple[int, str]]:
    """A key that puts table2 before table10."""
    return [(int(part), "") if part.isdigit() else (0, part) for part in re.split(r"(\d+)", name)]


def settings_pages(conf: Path, anchors: Mapping[str, str]) -> dict[str, str]:
    """One page for each group, and an index with the keys of `config.yaml`.

    A key without a comment has that of the same key in another choice.

    Args:
        conf: the folder of YAML files.
        anchors: where the parts that they name are described, from the site's root.
    """
    groups = {group: choices_of(conf, group) for group in groups_of(conf)}
    root = read_settings((conf / "config.yaml").read_text())
    everything = [setting for choices in groups.values() for choice in choices for setting in choice.settings]
    comments = {setting.key: setting.comment for setting in reversed(everything + root) if setting.comment}
    show = Show(comments, anchors)
    pages = {f"settings/{group}.md": show.group(group, choices) for group, choices in groups.items()}
    return {"settings/index.md": index_page(groups, show.table(root)), **pages}


def index_page(groups: dict[str, list[Choice]], root: list[str]) -> str:
    """The groups with their choices, and the keys of `config.yaml`."""
    about = (
        "Written from the YAML files in `conf/` and the comments in them. A word on the command line chooses a file"
        " of a group (`data=mnist`), a dotted key sets a value (`clients.epochs=20`), and `--cfg job` prints everything"
        " that a run would be made of. [Configuration](../configuration.md) has the rest."
    )
    rows = [f"| [`{group}`]({group}.md) | {_words(group, choices)} |" for group, choices in groups.items()]
    table = ["| group | choices |", "|---|---|", *rows]
    return "\n".join(["# All settings", "", about, "", *table, "", "## Keys of no group", "", *root])


def _words(group: str, choices: list[Choice]) -> str:
    return ", ".join(f"`{name}`" for choice in choices for key, name in [choice.word.split("=")] if key == group)


@dataclass(frozen=True)
class Show:
    """How choices and keys are written down."""

    comments: Mapping[str, str]
    """Of keys, for files that have none."""
    anchors: Mapping[str, str]
    """Of parts."""

    def group(self, group: str, choices: list[Choice]) -> str:
        """What each file of a group says of itself, and its keys."""
        return "\n".join([f"# {group}", "", *[line for choice in choices for line in self.choice(choice)]])

    def choice(self, choice: Choice) -> list[str]:
        """One file."""
        based = [f"`{base}`" for base in choice.based_on if base != "_self_"]
        return [
            f"## `{choice.word}`",
            "",
            *[f"`{line}`  " if line.startswith("python -m ") else line for line in choice.about],
            "",
            *([f"Begins with {', '.join(based)}.", ""] if based else []),
            *([f"Builds {self.part(choice.part)}.", ""] if choice.part else []),
            *(_as_written(choice.text) if choice.word.startswith("experiment=") else self.table(choice.settings)),
            "",
        ]

    def table(self, settings: list[Setting]) -> list[str]:
        """Keys, values, comments."""
        rows = [f"| `{s.key}` | {self.value(s.value)} | {_cell(self.comment(s))} |" for s in settings]
        return ["| key | value | |", "|---|---|---|", *rows] if rows else []

    def comment(self, setting: Setting) -> str:
        """The key's own comment, else another file's."""
        return setting.comment or self.comments.get(setting.key, "")

    def value(self, value: str) -> str:
        """A value as it is written, or a part with a link to it."""
        known = value in self.anchors or value.startswith("torch.")
        return self.part(value) if known else _code(value)

    def part(self, name: str) -> str:
        """A part's last name, linked where the site describes it."""
        short = name.rsplit(".", 1)[-1]
        return f"[`{short}`](../{self.anchors[name]})" if name in self.anchors else f"`{name}`"


def _as_written(text: str) -> list[str]:
    return ["```yaml", *[line for line in text.splitlines() if not line.startswith("#")], "```"]


def _code(value: str) -> str:
    return f"`{_cell(' '.join(value.split()))}`" if value else ""


def _cell(text: str) -> str:
    return text.replace("|", "\\|")
