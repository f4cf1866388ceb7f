"""A file of one's own that has the name of one of ours is refused where it would be chosen, as ours is read."""

import shutil

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig

from oneshot_fl.config import from_overrides
from oneshot_fl.config.compose import config_dir, reading_also, search_path
from oneshot_fl.config.jobs import Composer
from oneshot_fl.config.serving import entrance_of
from oneshot_fl.errors import OneshotError


@pytest.fixture
def own(tmp_path):
    """A folder of one's own with a copy of one of our files; a function that changes or makes one there."""
    (tmp_path / "model").mkdir()
    shutil.copy(config_dir() / "model" / "cnn2.yaml", tmp_path / "model")

    def change(file: str) -> str:
        path = tmp_path / file
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((config_dir() / file).read_text() + "\n# mine\n")
        return f"{path} is not read, as {config_dir() / file} has that name and comes first; give it another name"

    with reading_also(tmp_path):
        yield change


@pytest.mark.parametrize(
    ("file", "words", "key"),
    [
        ("model/cnn2.yaml", [], "model=cnn2"),
        ("method/ensemble/uniform.yaml", ["method=dense"], "method/ensemble=uniform"),
        ("config.yaml", [], "config.yaml"),
    ],
)
def test_a_choice_that_a_file_of_ones_own_is_called_too_is_one_line(own, file, words, key):
    from_overrides(*words)
    says = own(file)
    with pytest.raises(OneshotError) as caught:
        from_overrides(*words)
    assert str(caught.value) == f"{key}: {says}"


@pytest.mark.parametrize(
    ("file", "mine", "words", "key"),
    [
        ("clients/default.yaml", None, ["clients=dp"], "clients=default"),
        (
            "method/dense.yaml",
            "method/mine.yaml: {defaults: [dense, _self_], name: mine}",
            ["method=mine"],
            "method=dense",
        ),
        (
            "method/dense.yaml",
            "method/mine.yaml: {defaults: [/method/dense@_here_], name: mine}",
            ["method=mine"],
            "method=dense",
        ),
        ("logger/csv.yaml", None, ["logger=[csv,tensorboard]"], "logger=csv"),
        (
            "logger/wandb.yaml",
            "experiment/mine.yaml: {defaults: [override /logger: [csv, wandb]]}",
            ["experiment=mine"],
            "logger=wandb",
        ),
    ],
)
def test_so_is_what_only_another_file_or_a_list_takes_it_from(own, tmp_path, file, mine, words, key):
    if mine:
        name, text = mine.split(": ", 1)
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text(("# @package _global_\n" if name.startswith("experiment") else "") + text)
    from_overrides(*words)
    says = own(file)
    with pytest.raises(OneshotError) as caught:
        from_overrides(*words)
    assert str(caught.value) == f"{key}: {says}"


def test_what_is_not_chosen_may_be_called_so(own):
    own("model/cnn2.yaml")
    from_overrides("model=cnn3")


@pytest.mark.parametrize(
    ("file", "words", "key"),
    [
        ("model/cnn2.yaml", ["model=mixed", "model.names=[cnn3,cnn2]", "partition.clients=2"], "model.names=cnn2"),
        ("model/lenet5.yaml", ["server_model=lenet5"], "server_model=lenet5"),
        ("data/mnist.yaml", ["method=feddf", "proxy=dataset", "proxy.data=mnist"], "data=mnist"),
    ],
)
def test_so_is_what_a_value_names(own, file, words, key):
    says = own(file)
    with pytest.raises(OneshotError) as caught:
        from_overrides("trainer=cpu", *words)[0]()
    assert str(caught.value).startswith(f"{key}: ")
    assert str(caught.value).endswith(says)


def test_an_aggregation_asks_as_well(own):
    says = own("method/dense.yaml")
    with pytest.raises(OneshotError, match=r"^method=dense: ") as caught:
        entrance_of(["method=dense"])
    assert str(caught.value).endswith(says)


def test_a_sweep_ends_before_its_first_job(own, tmp_path):
    own("method/dense.yaml")
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        master = compose("config", [f"hydra.searchpath=[file://{tmp_path}]"], return_hydra_config=True)
        composer = Composer(GlobalHydra.instance().config_loader())
        composer.load_sweep_config(master, ["method=fedavg"])
        with pytest.raises(OneshotError, match=r"^method=dense: "):
            composer.load_sweep_config(master, ["method=dense"])


def test_a_folder_that_is_named_from_where_the_program_began_is_found_from_a_jobs(tmp_path, monkeypatch):
    shutil.copytree(config_dir() / "model", tmp_path / "own" / "model")
    (tmp_path / "own" / "model" / "cnn2.yaml").rename(tmp_path / "own" / "model" / "small.yaml")
    monkeypatch.chdir(tmp_path)
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        words = ["hydra.searchpath=[file://own]", "model=mixed", "model.names=[small,cnn3]", "partition.clients=2"]
        whole = compose("config", ["hydra.job.num=0", "trainer=cpu", *words], return_hydra_config=True)
        monkeypatch.setattr(HydraConfig.instance(), "cfg", whole)
        (tmp_path / "job").mkdir()
        monkeypatch.chdir(tmp_path / "job")  # hydra.job.chdir=true
        assert str(tmp_path / "own") in search_path()
