"""A sweep's configurations, composed quickly, are those that Hydra composes."""

import pytest
from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from omegaconf import OmegaConf

from oneshot_fl.config.compose import changed, config_dir, having_published
from oneshot_fl.config.jobs import Composer, _published, known_to_hydra


@pytest.fixture(scope="module")
def loaders():
    """Hydra's loader, ours, and a sweep's own configuration."""
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        master = compose("config", return_hydra_config=True)
        loader = GlobalHydra.instance().config_loader()
        yield loader, Composer(loader), master


@pytest.mark.parametrize(
    "overrides",
    [
        [],
        ["method=dense", "seed=3", "partition.alpha=0.3"],
        ["protocol=fedhydra", "data=mnist", "+data.anything=7", "++clients.batch_size=9", "trainer=cpu"],
        ["seed=4", "experiment=fedhydra/table1", "store=elsewhere", "~method.objective.adv"],
        ["model=mixed", "model.names=[cnn2,lenet5]", "study='a, b'"],
    ],
)
def test_they_are_the_same(loaders, overrides):
    loader, ours, master = loaders
    expected = loader.load_sweep_config(master, overrides)
    for _ in range(2):  # also with the merged files at hand
        config = ours.load_sweep_config(master, overrides)
        assert OmegaConf.to_container(config) == OmegaConf.to_container(expected)


def test_files_are_merged_once_for_each_combination_of_choices(loaders, monkeypatch):
    loader, _, master = loaders
    ours, merged = Composer(loader), []
    load = loader.load_sweep_config
    monkeypatch.setattr(loader, "load_sweep_config", lambda *given: merged.append(given[1]) or load(*given))
    for method in ("dense", "fedavg"):
        seeds = [ours.load_sweep_config(master, [f"method={method}", f"seed={seed}"]).seed for seed in range(4)]
        assert seeds == [0, 1, 2, 3]
    assert merged == [["method=dense"], ["method=fedavg"]]


def test_a_method_that_is_edited_during_a_sweep_is_held_against_what_the_jobs_were_composed_of(loaders, tmp_path):
    (tmp_path / "method").mkdir()
    file = tmp_path / "method" / "mine.yaml"
    ours, own = Composer(loaders[0]), f"hydra.searchpath=[file://{tmp_path}]"
    master = compose("config", [own], return_hydra_config=True)
    for seed, temperature in enumerate((20.0, 5.0)):
        file.write_text(f"defaults: [dense, _self_]\nstudent: {{kl: {{temperature: {temperature}}}}}\n")
        config = ours.load_sweep_config(master, words := ["method=mine", f"seed={seed}"])
        with known_to_hydra(config), having_published(ours.published(words)):
            assert (config.method.student.kl.temperature, changed(config)) == (20.0, {})


def test_a_primary_file_without_a_method_publishes_none():
    assert _published(OmegaConf.create({"hydra": {"runtime": {"choices": {}}}})) is None
