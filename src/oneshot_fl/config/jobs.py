"""The configurations of a sweep's many jobs, composed without reading all files again for each."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from copy import deepcopy
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from oneshot_fl.config.compose import published_method
from oneshot_fl.config.shadowed import check_read


class Composer:
    """Hydra's loader of configurations, which merges the files of each combination of choices once.

    Hydra sets single values after it has merged the chosen files, which takes nearly all of its time (half a second; a
    copy takes 20 ms). Jobs that differ in seeds and numbers only share the merged files, and their values are set by
    the same step of Hydra's in a copy. That step is not public: `hydra-core` is held below 1.4, and a test compares the
    two ways.
    """

    def __init__(self, loader: Any) -> None:
        self._loader = loader
        self._merged: dict[tuple[str, ...], DictConfig] = {}
        self._published: dict[tuple[str, ...], dict[str, Any] | None] = {}
        """Of each combination, what its method's choice alone gives."""

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: Sequence[str]) -> DictConfig:
        """What Hydra's own method of this name gives.

        Raises:
            OneshotError: a choice is what a file of the user's own is called too.
        """
        parsed, chosen = self._parsed(sweep_overrides)
        values = [each for each in parsed if not self._chooses(each)]
        if chosen not in self._merged:
            self._merged[chosen] = self._loader.load_sweep_config(master_config, list(chosen))
            check_read(self._merged[chosen].hydra)
            self._published[chosen] = _published(deepcopy(self._merged[chosen]))  # Hydra locks what it knows
        config = deepcopy(self._merged[chosen])
        ConfigLoaderImpl._apply_overrides_to_config(values, config)
        config.hydra.overrides.task = list(sweep_overrides)
        told = config.hydra.job.config.override_dirname
        config.hydra.job.override_dirname = get_overrides_dirname(
            overrides=parsed, kv_sep=told.kv_sep, item_sep=told.item_sep, exclude_keys=told.exclude_keys
        )
        OmegaConf.copy_cache(from_config=master_config, to_config=config)
        return config

    def published(self, sweep_overrides: Sequence[str]) -> dict[str, Any] | None:
        """What the method's choice alone gave when the files of a job that was composed were read; None without one."""
        return self._published[self._parsed(sweep_overrides)[1]]

    def _parsed(self, sweep_overrides: Sequence[str]) -> tuple[list[Override], tuple[str, ...]]:
        """A job's overrides, and the words of those that choose its files."""
        parsed = OverridesParser.create().parse_overrides(list(sweep_overrides))
        return parsed, tuple(str(each.input_line) for each in parsed if self._chooses(each))

    def _chooses(self, override: Override) -> bool:
        """Whether it chooses a file of a group, or does what only the whole composition can."""
        if override.package is not None or override.is_delete():
            return True
        return bool(self._loader.get_group_options(str(override.key_or_group)))


def _published(config: DictConfig) -> dict[str, Any] | None:
    if "method" not in config.hydra.runtime.choices:  # of a primary file that names none, as its checks will say
        return None
    with known_to_hydra(config):
        return published_method(config)


@contextmanager
def known_to_hydra(config: DictConfig) -> Iterator[None]:
    """Inside the block Hydra answers for a job as it does in it."""
    hydra = HydraConfig.instance()
    before = hydra.cfg
    hydra.set_config(config)
    try:
        yield
    finally:
        hydra.cfg = before
