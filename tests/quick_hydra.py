"""Hydra as it is, without the work that it repeats in every composition; a quarter of a composition's time."""

from copy import deepcopy
from pathlib import Path
from typing import Any

from hydra._internal import defaults_list
from hydra._internal.config_repository import ConfigRepository
from hydra.plugins.config_source import ConfigResult


def quicken() -> None:
    """From now on this process parses a file once, and looks for references in a list of defaults that has some."""
    ConfigRepository.load_config = _parsed_once(ConfigRepository.load_config)
    defaults_list._create_interpolation_map = _where_referred(defaults_list._create_interpolation_map)


def _parsed_once(load: Any) -> Any:
    known: dict[Any, ConfigResult] = {}

    def load_config(repository: ConfigRepository, config_path: str) -> ConfigResult | None:
        places = [
            Path(source.path, f"{config_path}.yaml") for source in repository.sources if source.scheme() == "file"
        ]
        files = tuple((file, file.stat().st_mtime_ns) for file in places if file.is_file())
        if not files:  # Hydra's own, or none
            return load(repository, config_path)
        if files not in known:
            known[files] = load(repository, config_path)
        return deepcopy(known[files])

    return load_config


def _where_referred(create: Any) -> Any:
    def create_interpolation_map(overrides: Any, defaults: list[Any], self_added: bool) -> Any:
        return create(overrides, defaults, self_added) if any(each.is_interpolation() for each in defaults) else None

    return create_interpolation_map
