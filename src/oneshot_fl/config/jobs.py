"""The configurations of a sweep's many jobs, composed without reading all files again for each."""

from collections.abc import Sequence
from copy import deepcopy
from typing import Any

from hydra._internal.config_loader_impl import ConfigLoaderImpl, get_overrides_dirname
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from oneshot_fl.config.unread import check_read


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

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    def load_sweep_config(self, master_config: DictConfig, sweep_overrides: Sequence[str]) -> DictConfig:
        """What Hydra's own method of this name gives.

        Raises:
            OneshotError: a choice is what a file of the user's own is called too.
        """
        parsed = OverridesParser.create().parse_overrides(list(sweep_overrides))
        values = [each for each in parsed if not self._chooses(each)]
        chosen = tuple(str(each.input_line) for each in parsed if self._chooses(each))
        if chosen not in self._merged:
            self._merged[chosen] = self._loader.load_sweep_config(master_config, list(chosen))
            check_read(self._merged[chosen].hydra)
        config = deepcopy(self._merged[chosen])
        ConfigLoaderImpl._apply_overrides_to_config(values, config)
        config.hydra.overrides.task = list(sweep_overrides)
        told = config.hydra.job.config.override_dirname
        config.hydra.job.override_dirname = get_overrides_dirname(
            overrides=parsed, kv_sep=told.kv_sep, item_sep=told.item_sep, exclude_keys=told.exclude_keys
        )
        OmegaConf.copy_cache(from_config=master_config, to_config=config)
        return config

    def _chooses(self, override: Override) -> bool:
        """Whether it chooses a file of a group, or does what only the whole composition can."""
        if override.package is not None or override.is_delete():
            return True
        return bool(self._loader.get_group_options(str(override.key_or_group)))
