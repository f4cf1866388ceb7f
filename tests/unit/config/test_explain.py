"""Whatever Hydra raises while it composes becomes one line that names the file, group or key."""

import shlex

import pytest
import yaml
from hydra import compose, initialize_config_dir
from hydra.errors import HydraException, MissingConfigException
from omegaconf import OmegaConf

from oneshot_fl.config.compose import architecture, choices, composed, config_dir, plain, reading_also
from oneshot_fl.config.explain import NOTHING, TABLES, _no_such_choice, explain, no_such_key
from oneshot_fl.config.group_types import tables
from oneshot_fl.config.keys import OF_OTHERS, all_keys, groups
from oneshot_fl.errors import OneshotError
from oneshot_fl.fits import problem

NO_NAME = ValueError("Config group override must be a string or a list. Got NoneType")


@pytest.mark.parametrize("argument", ["logger=null", "logger=5", "logger=true", "logger="])
def test_a_group_is_chosen_by_name(argument):
    line = explain(NO_NAME, ["seed=1", "method=dense", argument])
    known = "csv, mlflow, none, tensorboard, wandb"
    assert line == f"{argument}: logger is a group of settings; choose one by its name, of {known}"


def test_a_group_is_chosen_by_name_even_where_nobody_knows_which():
    assert "GROUP=NAME" in explain(NO_NAME, ["method=dense"])


@pytest.mark.parametrize("name", ["Nan", "inf", "True", "NULL"])
def test_a_choice_that_is_called_like_a_number_is_named_and_chosen_in_quotes(name, tmp_path):
    (tmp_path / "method" / "ensemble").mkdir(parents=True)
    (tmp_path / "method" / "ensemble" / f"{name}.yaml").write_text("name: mine\n")
    typed = f"method/ensemble={name}"
    with reading_also(tmp_path):
        with pytest.raises(Exception, match="must be a string or a list") as caught:
            composed("method=dense", typed)
        line = explain(caught.value, ["seed=1", "method=dense", typed])
        assert line.startswith(f"{typed}: reads as a number, true, false or null, and the name of a choice of method/e")
        (word,) = shlex.split(line.rpartition(" write ")[2])
        assert composed("method=dense", word).method.ensemble.name == "mine"


def test_of_several_choices_one_that_is_called_like_a_number_is_named():
    assert explain(NO_NAME, ["-m", "method/ensemble=uniform,nan"]).startswith("method/ensemble=uniform,nan: reads as")


def test_broken_yaml_is_named_with_its_line(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_text("a: 1\nb: [\n")
    with file.open() as stream, pytest.raises(yaml.YAMLError) as caught:
        yaml.safe_load(stream)
    assert explain(caught.value).startswith(f"{file}: line 3 is no YAML (")


def test_a_file_that_is_no_text_is_found(tmp_path):
    file = tmp_path / "mine.yaml"
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(UnicodeError) as caught:
        file.read_text(encoding="utf-8")
    assert explain(caught.value, [f"--config-dir={tmp_path}"]) == f"{file}: is no text in UTF-8"
    assert explain(caught.value, []) == "a configuration file: is no text in UTF-8"


def test_a_file_of_other_files_cannot_be_named_alone(tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "derived.yaml").write_text("defaults: [cnn2, _self_]\nwidth: 8\n")
    line = "^model: derived has defaults, other files that are read for model=derived alone; write its keys out$"
    with reading_also(tmp_path), pytest.raises(OneshotError, match=line):
        architecture("derived")


def test_a_sweeper_that_is_not_installed_names_its_extra():
    assert _no_such_choice("hydra/sweeper", "optuna", ["basic"]).endswith("pip install 'oneshot-fl[sweep]'")
    assert "did you mean basic?" in _no_such_choice("hydra/sweeper", "basik", ["basic"])


@pytest.mark.parametrize("content", [b"a: 1\na: 2\n", b"a:\n\tb: 1\n", "name: Zoë\n".encode("latin-1"), b"- 1\n"])
def test_a_broken_file_that_is_chosen_by_its_name_alone_is_named(content, tmp_path):
    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "broken.yaml").write_bytes(content)
    with (
        reading_also(tmp_path),
        pytest.raises(OneshotError, match=r"model/broken\.yaml: cannot be read as settings") as told,
    ):
        architecture("broken")
    assert "\n" not in str(told.value)


def test_a_file_that_lacks_is_named_with_the_one_that_asks_for_it(tmp_path):
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "mine.yaml").write_text("defaults:\n  - no_such\n  - _self_\nname: mine\n")
    with reading_also(tmp_path), pytest.raises(MissingConfigException) as caught:
        composed("method=mine")
    line = explain(caught.value, ["method=mine"])
    assert line.startswith("method/mine.yaml: its defaults name method/no_such, and there is no method/no_such.yaml")
    assert "\n" not in line


def test_another_main_file_that_there_is_not_is_named():
    with initialize_config_dir(str(config_dir()), version_base="1.3"), pytest.raises(MissingConfigException) as caught:
        compose("no_such")
    line = explain(caught.value, ["--config-name", "no_such"])
    assert line.startswith("--config-name=no_such: there is no no_such.yaml")
    assert "\n" not in line


@pytest.mark.parametrize("missing", ["config", None])  # Hydra tells no name where there is no folder
def test_a_folder_in_place_of_ours_that_was_meant_to_be_beside_them_is_named(missing):
    line = explain(MissingConfigException("Cannot find primary config", missing), ["-cp", "own", "method=mine"])
    assert line == (
        "--config-path=own: is read in place of all our files, and there is no config.yaml; for files of your own "
        "beside ours write --config-dir=own"
    )


def test_a_refusal_of_the_system_that_is_about_no_file_names_none():
    assert explain(OSError(24, "Too many open files")) == "the system says: Too many open files"


def test_a_folder_that_cannot_be_made_is_named():
    error = NotADirectoryError(20, "Not a directory", "/dev/null/x")
    assert explain(error) == "/dev/null/x: Not a directory; choose a folder that can be read and written"


def test_other_errors_keep_their_kind_and_their_words():
    assert explain(KeyError("defaults")) == "KeyError: 'defaults'"


def test_a_key_of_another_choice_is_told_apart_from_one_that_nothing_has():
    assert "no such key, proxy=holdout has; --cfg job" in no_such_key("proxy.fraction", all_keys())
    assert "no such key, logger=wandb has; --cfg job" in no_such_key("logger.wandb.project", all_keys())
    assert "partition=dirichlet or partition=dirichlet_" in no_such_key("partition.alpha", all_keys())
    assert "did you mean partition.alpha?" in no_such_key("partition.alhpa", all_keys())


@pytest.mark.parametrize("command", [["--config-dir", "{}"], ["hydra.searchpath=[file://{}]"]], ids=["dir", "path"])
def test_what_a_users_own_files_name_may_have_been_meant(command, tmp_path):
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "stripes.yaml").write_text("name: stripes\nnoise: 0.2\nsamples: 600\n")
    words = [each.format(tmp_path) for each in command]
    for typed, meant in {"nois": "noise", "sample": "samples", "moise": "noise"}.items():
        error = HydraException(f"Could not override 'data.{typed}'.")
        assert f"data.{typed}: there is no such key, did you mean data.{meant}?" in explain(
            error, [*words, "data=stripes"]
        )
    assert "data.noise" not in explain(HydraException("Could not override 'data.nois'."))


def test_a_name_that_is_near_counts_before_a_key_that_is_long_and_alike():
    known = ("method.objective.bn.weight", "method.objective.margin.weight", "method.objective.margin.wide")
    assert "did you mean method.objective.margin.weight?" in no_such_key("method.objective.margin.wieght", known)


@pytest.mark.parametrize(
    ("words", "swept"),
    [
        (["attack=zero,scale", "attack.clients=1"], True),
        (["partition=iid,dirichlet", "attack=zero", "attack.clients=1"], False),
        (["attack=none", "attack.clients=1"], False),
    ],
)
def test_a_key_of_what_a_sweep_chooses_is_told_with_the_word_that_sets_it_in_all_jobs(words, swept):
    line = explain(HydraException("Could not override 'attack.clients'."), words)
    assert ("write ++attack.clients=..., and sweep over none but choices that take it" in line) == swept
    assert ("attack=zero" in line) != swept


def test_a_key_of_a_group_of_which_nothing_is_chosen_is_told_with_the_word_that_chooses_one():
    optional = {group for group in groups() if "none" in choices(group)} - {*OF_OTHERS}
    assert set(NOTHING) == {group for group in optional if not composed()[group]}
    error = HydraException("Could not override 'attack.clients'.")
    line = explain(error, ["attack.clients=1"])
    assert line.startswith(
        "attack.clients: no attack is chosen, and so nothing has it; choose one beside it, attack=NAME"
    )
    assert "sign_flip" in line
    for chosen in ("attack=none", "experiment=attacks"):
        assert "no attack is chosen" not in explain(error, [chosen, "attack.clients=1"])


@pytest.mark.parametrize(
    ("chosen", "typed", "entries"),
    [
        ("clients=default", "clients.lr_of.cnn2=0.02", {"cnn2"}),
        ("clients=fedmho", "clients.lr_of.cnn2=0.02", {"cnn2", "cvae_large", "fedmho_cnn"}),
        ("clients=fedmho", "clients.lr_of={cnn2: 0.02}", {"cnn2", "cvae_large", "fedmho_cnn"}),
    ],
)
def test_an_entry_that_a_table_does_not_have_is_told_with_the_word_that_adds_it(chosen, typed, entries):
    with pytest.raises(HydraException) as caught:
        composed(chosen, typed)
    line = explain(caught.value, [chosen, typed])
    assert ": clients.lr_of has no such entry yet; to add it write " in line
    (word,) = shlex.split(line.rpartition(" write ")[2])
    assert word == f"+{typed}"
    rates = composed(chosen, word).clients.lr_of
    assert (set(rates), rates.cnn2) == (entries, 0.02)


def test_every_table_takes_a_mapping_and_is_null_by_itself():
    cfg = composed()
    for key in TABLES:
        group, _, name = key.rpartition(".")
        assert problem({"cnn2": 0.02}, tables()[group][name]) is None
        assert OmegaConf.select(cfg, key) is None


@pytest.mark.parametrize(
    ("typed", "says", "right"),
    [
        ("method/perturb=hard", "method/perturb: nothing that is chosen names one", "+method/perturb=hard"),
        (
            "method/source@method.source.more=strokes",
            "method/source@method.source.more: nothing that is chosen names one",
            "+method/source@method.source.more=strokes",
        ),
        ("+method/init=average", "method/init: one is chosen already", "method/init=average"),
        ("++method/perturb=hard", "++method/perturb=hard: a choice takes no ++", "+method/perturb=hard"),
        ("method.perturb=hard", "method.perturb: the chosen method names none", "+method/perturb=hard"),
        ("method.student_schedule=cosine", "the chosen method names none", "+method.student_schedule=cosine"),
        ("method.ensemble.trees=3", "method.ensemble.trees: there is no such key", "+method.ensemble.trees=3"),
        ("method.ensemble.step=3", "method.ensemble.step: the chosen method/ensemble has", "+method.ensemble.step=3"),
    ],
)
def test_what_the_chosen_method_does_not_name_is_told_with_the_word_that_adds_it(typed, says, right, tmp_path):
    with pytest.raises(HydraException) as caught:
        composed("method=dense", typed)
    line = explain(caught.value, ["method=dense", typed])
    assert says in line
    added, _, value = right.partition("=")
    assert f" {added}={value}" in line or f" {added}=NAME" in line or f" {added}=..." in line
    composed("method=dense", right)


def test_a_source_beside_others_is_told_with_a_name_of_its_own():
    with pytest.raises(HydraException) as caught:
        composed("method=fedchorus", "method/source=decoders")
    line = explain(caught.value, ["method=fedchorus", "method/source=decoders"])
    word = line.rpartition(" ")[2]
    assert word == "+method/source@method.source.decoders=decoders"
    assert "decoders" in composed("method=fedchorus", word).method.source


@pytest.mark.parametrize(
    "typed",
    [
        ("clients=half_cvae", "clients.kinds=[cvae,classifier]"),
        ("clients=all_cvae", "clients.kinds={classifier: 3, cvae: 7}"),
    ],
)
def test_a_list_in_place_of_a_table_is_told_with_the_words_that_put_it_there(typed):
    with pytest.raises(HydraException) as caught:
        composed(*typed)
    line = explain(caught.value, typed)
    assert line.startswith(f"{typed[1]}: a list cannot take the place of a table")
    words = shlex.split(line.partition("; write ")[2].partition(" to leave out")[0])
    assert plain(composed(typed[0], *words).clients.kinds) == yaml.safe_load(typed[1].partition("=")[2])


def test_a_name_in_a_list_is_told_with_the_word_that_has_it():
    with pytest.raises(ValueError, match="int") as caught:
        composed("clients=all_cvae", "clients.kinds.cvae=3")
    line = explain(caught.value, ["clients=all_cvae", "clients.kinds.cvae=3"])
    assert line.startswith("clients.kinds.cvae=3: the chosen files have a list there")


def test_a_search_without_a_trial_that_succeeded_is_told_so():
    line = explain(ValueError("No trials are completed yet."))
    assert line == "no trial of the search has succeeded; the lines above say why"


@pytest.mark.parametrize("value", ["~/mnist", "/tmp/a=b", "/tmp/my data (1)", "/tmp/a,b", "/tmp/o'neil,1", "/tmp/$a,b"])
def test_the_word_to_type_is_printed_and_means_what_was_typed(value):
    with pytest.raises(HydraException) as caught:
        composed(f"data_root={value}")
    line = explain(caught.value, [f"data_root={value}"])
    assert line.startswith(f"data_root={value}: ")
    (word,) = shlex.split(line.rpartition(" write ")[2])
    assert composed(word).data_root == value


def test_brackets_that_do_not_close_are_not_quoted():
    with pytest.raises(HydraException) as caught:
        composed("partition.clients=[1,2")
    assert explain(caught.value).endswith("look whether every bracket and quote has its other half")
