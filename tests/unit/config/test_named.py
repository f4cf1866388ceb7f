"""Files that a configuration names without holding what they say."""

from oneshot_fl.config.compose import reading_also
from oneshot_fl.config.named import code_of, named, source_code_of
from oneshot_fl.recipe import sources_of


def _names(config):
    return {(file.group, file.name) for file in named(config)}


def test_every_key_may_name_one():
    assert ("model", "resnet18") in _names({"server_model": "resnet18"})
    assert ("model", "lenet5") in _names({"model": {"of": {"mnist": ["cnn2", "lenet5"]}}})
    assert ("model", "vgg9") in _names({"evaluate": {"privacy": {"model": "vgg9"}}})
    assert ("data", "mnist") in _names({"proxy": {"data": "mnist"}})
    assert named({"server_model": None, "seed": 0}) == []


def test_what_files_share_comes_along(tmp_path):
    folder = tmp_path / "model"
    folder.mkdir()
    (folder / "_base.yaml").write_text("_target_: oneshot_fl.models.zoo.resnet\n")
    (folder / "mine.yaml").write_text("defaults: [_base]\nname: mine\n# _target_: left.out\n")
    with reading_also(tmp_path):
        files = named({"server_model": "mine"})
    assert {("model", "mine"), ("model", "_base")} <= {(file.group, file.name) for file in files}
    assert {target for file in files for target in file.targets} == {"oneshot_fl.models.zoo.resnet"}


def test_the_code_that_they_name_is_code_of_the_run():
    config = {"server_model": "resnet18"}
    assert code_of(config, named(config)) != code_of(config, [])


def test_sources_are_code_without_what_is_installed_and_none_where_they_cannot_be_told():
    config = {"method": {"_target_": "oneshot_fl.parts.pools.Pool"}}
    assert source_code_of(config) == sources_of("oneshot_fl.pipeline", [config]) != code_of(config, [])
    assert source_code_of(None) is None
    assert source_code_of({"method": {"_target_": "no_such_module.Part"}}) is None
