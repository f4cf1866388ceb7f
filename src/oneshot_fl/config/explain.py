"""Composing a configuration, with plain words for the errors of that."""

import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig
from omegaconf.errors import OmegaConfBaseException

from oneshot_fl.config.compose import PRIMARY, UNREADABLE, choices, config_dir, with_hydras
from oneshot_fl.config.keys import OF_OTHERS, all_keys, choices_with, groups
from oneshot_fl.config.rules import has_no_value
from oneshot_fl.config.shadowed import check_read
from oneshot_fl.config.words import folders_beside, key_of, reading, values_of
from oneshot_fl.errors import OneshotError, did_you_mean

TABLES = ("clients.lr_of",)
"""Keys that are null or a table whose entries have names that no file lists."""
NOTHING = ("attack", "gate", "hearing")
"""Groups of which nothing is chosen (`none`) unless a command, or an experiment, does."""
OTHERS = {"No trials are completed yet.": "no trial of the search has succeeded; the lines above say why"}
"""What others' errors mean, as Optuna's where it is asked for the best of none."""


def whole_of(chosen: Sequence[str], *ours: str) -> DictConfig:
    """The configuration of what was chosen, by which errors explain themselves, and of what was not; with Hydra's own.

    Raises:
        OneshotError: it cannot be composed, or a choice is what a file of the user's own is called too.
    """
    try:
        whole: DictConfig = with_hydras(*chosen, *ours)
    except Exception as error:  # Hydra raises many kinds over what it cannot compose
        raise OneshotError(explain(error, chosen)) from error
    check_read(whole.hydra)
    return whole


def explain(error: Exception, arguments: Sequence[str] = ()) -> str:
    """One plain line for an error while the configuration of `arguments` was composed, whoever raised it."""
    text = " ".join(str(error).split())
    if line := _of_a_word(error, text) or _of_a_choice(text) or _of_a_value(text, arguments) or OTHERS.get(text):
        return line
    if match := re.search(r"Could not override '([^']+)'", text):
        known = all_keys(folders_beside(arguments))
        line = _of_a_table(match[1], arguments) or _of_nothing(match[1], arguments)
        return line or _of_a_sweep(match[1], arguments, known) or no_such_key(match[1], known)
    if match := re.search(r"Could not find '([^']+)' Available options in '([^']+)': (.*?) Config search", text):
        return _no_such_choice(match[2], match[1].removeprefix(f"{match[2]}/"), match[3].split())
    if match := re.search(r"Missing mandatory value: (\S+)", text):
        return has_no_value(match[1])
    if "group override must be a string or a list" in text or isinstance(error, UNREADABLE):
        return _of_a_file(error, arguments) if isinstance(error, UNREADABLE) else _no_name_of_a_choice(arguments)
    kind = "" if isinstance(error, HydraException | OmegaConfBaseException) else f"{type(error).__name__}: "
    return re.sub(r" See https?://\S+.*", "", f"{kind}{text}") or "the configuration cannot be composed"


def _of_a_choice(text: str) -> str | None:
    """What is wrong with a choice that has a `+` too many or too few; None of another error.

    Hydra replaces what the chosen files name, and adds only what they do not.
    """
    if match := re.search(r"Could not override '([^']+)'.* To append to your default list use (\+\S+)", text):
        beside = f"; beside other sources, which have names, {_named_source(match[2])}" * (match[1] == "method/source")
        return f"{match[1]}: nothing that is chosen names one to be replaced; to add it write {match[2]}{beside}"
    if match := re.search(r"Multiple values for (\S+)\. |(\S+) appears more than once in the final defaults", text):
        group = match[1] or match[2]
        return f"{group}: one is chosen already; to replace it write {group}=NAME, without +"
    if match := re.search(r"force-add of config groups is not supported: '\+\+(.+)'", text):
        return f"++{match[1]}: a choice takes no ++; write {match[1]} to replace one, or +{match[1]} to add one"
    return None


def _named_source(word: str) -> str:
    """`+method/source=NAME` as the word that gives the source a name of its own in a method of several."""
    group, _, name = word.partition("=")
    return f"{group}@method.source.{name}={name}"


def _of_a_value(text: str, arguments: Sequence[str]) -> str | None:
    """What is wrong with a list, a table or one value where the chosen files have another of the three."""
    if match := re.search(r"Error merging override (.+)", text):
        anew = shlex.join([f"~{key_of(match[1])}", f"+{match[1]}"])
        return (
            f"{match[1]}: a list cannot take the place of a table, nor a table that of a list or of one value; write "
            f"{anew} to leave out what the chosen files have there"
        )
    if match := re.search(r"invalid literal for int\(\) with base 10: '(.+)'", text):
        word = next((each for each in arguments if f".{match[1]}" in key_of(each)), match[1])
        return f"{word}: the chosen files have a list there, whose entries have numbers and no names; set it as a whole"
    return None


def _of_a_word(error: Exception, text: str) -> str | None:
    """What is wrong with an override that Hydra cannot read, or only as several; None of another error."""
    if override := getattr(error, "override", None):
        return f"{override}: cannot be read as key=value{_in_quotes(override)}"
    if match := re.search(r"Ambiguous value for argument '(.+?)' 1\. To use it", text):
        return (
            f"{match[1]}: one value is taken here; several are a sweep of runs, python -m oneshot_fl -m"
            f"{_in_quotes(match[1])}"
        )
    return None


def _in_quotes(override: str) -> str:
    """The word to type for an override whose value is meant as it stands: quotes for the shell, and inside Hydra's."""
    key, given, value = override.partition("=")
    if not given:
        return "; write KEY=VALUE"
    if value.startswith(("[", "{", "'", '"')):
        return "; look whether every bracket and quote has its other half"
    escaped = value.replace("'", r"\'")
    return "; for what stands there as one text write " + _shell_word(f"{key}='{escaped}'")


def _shell_word(word: str) -> str:
    """A word as a shell reads it, in double quotes where nothing in it has a meaning there."""
    return shlex.quote(word) if set(word) & set('"$`\\!') else f'"{word}"'


def _no_name_of_a_choice(arguments: Sequence[str]) -> str:
    """A number, a switch or null where the name of a choice belongs."""
    there = set(groups())
    for argument in arguments:
        group, _, value = argument.partition("=")
        options = ", ".join(choices(group)) if group in there else ""
        if (options and not re.match(r"[A-Za-z_\[]\w*", value)) or value in ("null", "true", "false"):
            return f"{argument}: {group} is a group of settings; choose one by its name, of {options}"
        if (line := _looks_like_none(argument)) is not None:
            return line
    return "a number, true, false or null stands where the name of a choice belongs (GROUP=NAME)"


def _looks_like_none(argument: str) -> str | None:
    """A file may be called `nan` or `True`, which Hydra reads as no text; None of a word with nothing like that."""
    group, values = values_of(argument) or ("", [])
    if group not in groups() or all(isinstance(value, str | list) for value in values):
        return None
    quoted = _in_quotes(argument) if len(values) == 1 else ""
    return (
        f"{argument}: reads as a number, true, false or null, and the name of a choice of {group} belongs there{quoted}"
    )


def _of_a_file(error: Exception, arguments: Sequence[str]) -> str:
    """What is wrong with a file or folder, by its name."""
    if isinstance(error, MissingConfigException):
        return _of_a_missing_choice(error, arguments)
    if isinstance(error, OSError) and error.filename is None:
        return f"the system says: {error.strerror or error}"
    if isinstance(error, OSError):
        return f"{error.filename}: {error.strerror or error}; choose a folder that can be read and written"
    mark = getattr(error, "problem_mark", None)
    if mark is not None:
        return f"{mark.name}: line {mark.line + 1} is no YAML ({getattr(error, 'problem', None) or 'cannot be read'})"
    folders = [path for each in arguments for path in [Path(each.partition("=")[2] or each)] if path.is_dir()]
    files = [path for folder in folders for path in sorted(folder.rglob("*.yaml")) if not _is_text(path)]
    return f"{files[0] if files else 'a configuration file'}: is no text in UTF-8"


def _of_a_missing_choice(error: MissingConfigException, arguments: Sequence[str]) -> str:
    """Hydra's error over a file is an `OSError` without a file name."""
    name, asking = error.missing_cfg_file, re.search(r"In '([^']+)': Could not load", str(error))
    if asking:
        return f"{asking[1]}.yaml: its defaults name {name}, and there is no {name}.yaml; correct it"
    if (whole := reading(arguments)) and whole[0].startswith("--config-path="):
        return (
            f"{whole[0]}: is read in place of all our files, and there is no {name or PRIMARY}.yaml; for files of your "
            f"own beside ours write --config-dir={whole[0].partition('=')[2]}"
        )
    return f"--config-name={name}: there is no {name}.yaml where configuration is read from; leave it out"


def _of_a_table(key: str, arguments: Sequence[str]) -> str | None:
    """What to say about entries that a table, or null in its place, does not have; None of another key."""
    table = next((each for each in TABLES if f"{key}.".startswith(f"{each}.")), None)
    if table is None:
        return None
    word = next((each for each in reversed(arguments) if key_of(each) == key), f"{key}=...")
    return f"{key}: {table} has no such entry yet; to add it write {shlex.quote(f'+{word}')}"


def _of_nothing(key: str, arguments: Sequence[str]) -> str | None:
    """What to say about a key of a group of which nothing is chosen; None of another key."""
    group = key.partition(".")[0]
    chosen = {key_of(word) for word in arguments}
    if group not in NOTHING or chosen & {group, *OF_OTHERS}:
        return None
    names = ", ".join(name for name in choices(group) if name != "none")
    return f"{key}: no {group} is chosen, and so nothing has it; choose one beside it, {group}=NAME, of {names}"


def _of_a_sweep(key: str, arguments: Sequence[str], known: tuple[str, ...]) -> str | None:
    """What to say about a key of a group that a sweep chooses, as it is set before that; None of another key."""
    group = _group_of(key, known)
    found = [values_of(word) for word in arguments if key_of(word) == group]
    if key not in known or group == "method" or all(each is None or len(each[1]) < 2 for each in found):
        return None
    return (
        f"{key}: a sweep chooses each job's {group} after this is set; write ++{key}=..., and sweep over none but "
        "choices that take it"
    )


def _group_of(key: str, known: tuple[str, ...]) -> str:
    """The innermost group whose choices have the key."""
    parts = key.split(".")
    above = ["/".join(parts[:depth]) for depth in range(len(parts) - 1, 0, -1)]
    return next((path for path in above if path in known), parts[0])


def _is_text(path: Path) -> bool:
    try:
        path.read_text(encoding="utf-8")
    except UnicodeError:
        return False
    return True


def _no_such_choice(group: str, name: str, options: list[str]) -> str:
    if group == "experiment":  # the only group whose choices also lie in folders: experiment=fedhydra/table1
        folders = {path.name: path for path in sorted((config_dir() / group).iterdir()) if path.is_dir()}
        folder = name.partition("/")[0]
        if folder in folders:
            options = sorted(f"{folder}/{path.stem}" for path in folders[folder].glob("*.yaml"))
        else:
            options += [f"{other}/..." for other in folders]
    if (group, name) == ("hydra/sweeper", "optuna"):
        return f"{group}={name}: its plugin is not installed; pip install 'oneshot-fl[sweep]'"
    options = [option for option in options if not option.startswith("_")]
    return f"{group}={name}: there is no such choice{did_you_mean(name, options)}; choose from {', '.join(options)}"


def no_such_key(key: str, known: tuple[str, ...]) -> str:
    """What to say about a key that nothing has, or only another choice of its group."""
    around, _, name = key.rpartition(".")
    part = f", and +{key}=... sets what its part takes and no file names" if f"{around}._target_" in known else ""
    if key in known and around == "method":
        slot = f"+method/{name}=NAME, of {', '.join(choices(f'method/{name}'))}" if f"method/{name}" in known else ""
        return f"{key}: the chosen method names none, as others do; write {slot or f'+{key}=...'}"
    if key in known:
        group = _group_of(key, known)
        having = " or ".join(f"{group}={name}" for name in choices_with(group, key)) or "another one"
        return (
            f"{key}: the chosen {group} has no such key, {having} has; --cfg job prints what there is"
            f"{part * (around.startswith('method'))} (if a sweep chooses the {group}, write ++{key}=...)"
        )
    return (
        f"{key}: there is no such key{did_you_mean(key, known)}; python -m oneshot_fl --cfg job prints all keys{part}"
    )
