"""The program's own configuration with overrides, composed once for each set of choices; tiny real runs of it."""

import pickle
from functools import cache
from pathlib import Path
from typing import Any

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.global_hydra import GlobalHydra
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from omegaconf import DictConfig, OmegaConf

from oneshot_fl.config import experiment_of
from oneshot_fl.config.compose import config_dir
from oneshot_fl.config.needs import source_needs
from tests.foreign import foreign_methods
from tests.quick_hydra import quicken

CLIENTS = 4
TINY = (
    f"partition.clients={CLIENTS}",
    "clients.epochs=2",
    "clients.batch_size=64",
    "clients.cvae.epochs=1",
    "recite.images=16",
    "recite.batch_size=8",
    "recite.steps=2",
    "stratify.steps=2",
    "stratify.batch_size=16",
    "distill.rounds=3",
    "distill.generator_steps=2",
    "distill.batch_size=32",
    "generator.width=4",
    "generator.noise=16",
    "trainer=cpu",
    "plots.format=none",  # drawing takes as long as the rest
)
"""Overrides that make a run on the digits take seconds."""


FEW = 64
"""Images that a source draws at once in a tiny run."""


@cache
def clients_of(method: str) -> tuple[str, ...]:
    """The clients that a method needs, where the default ones will not do: some with a VAE, if it works on decoders."""
    needs = source_needs(composed(f"method={method}"))
    return ("clients=half_cvae",) if "decoders" in needs else ()


@cache
def few_images(method: str) -> tuple[str, ...]:
    """Overrides that let a method's sources draw few images, where they have numbers of their own."""
    cfg = composed(f"method={method}")
    sources = OmegaConf.to_container(cfg.method).get("source") or {}
    lent = ["proxy.samples"] if "proxy" in source_needs(cfg) else []
    return tuple(f"{key}={FEW}" for key in (*_numbers_of_images(sources, "method.source"), *lent))


def _numbers_of_images(part: Any, key: str) -> list[str]:
    if not isinstance(part, dict):
        return [key] if key.endswith((".samples", ".taught")) else []
    return [found for name, each in part.items() for found in _numbers_of_images(each, f"{key}.{name}")]


def composed(*overrides: str) -> DictConfig:
    """A configuration, also of a foreign method."""
    with foreign_methods():
        return compose_config(*overrides)


quicken()


def compose_config(*overrides: str) -> DictConfig:
    """The program's own configuration with overrides.

    Hydra sets single values after it has merged the chosen files, which takes nearly all of its time. So the files are
    merged once for each set of choices, and the values are set by the same step of Hydra in a copy.
    """
    parsed = OverridesParser.create().parse_overrides(list(overrides))
    choices = tuple(str(each.input_line) for each in parsed if _is_choice(each))
    values = [each for each in parsed if not _is_choice(each)]
    with initialize_config_dir(str(config_dir()), version_base="1.3"):
        if any(str(each.key_or_group).startswith("hydra") for each in parsed):  # other folders to search
            return compose("config", overrides=list(overrides))
        folders = GlobalHydra.instance().config_loader().get_search_path().get_path()
        cfg = pickle.loads(_chosen(choices, tuple(str(folder.path) for folder in folders)))
        ConfigLoaderImpl._apply_overrides_to_config(values, cfg)
        return cfg


def _is_choice(override: Override) -> bool:
    """Whether it chooses a file of a group, or does what only the whole composition can."""
    of_a_group = (config_dir() / str(override.key_or_group)).is_dir()
    return of_a_group or override.is_sweep_override() or override.is_delete()


@cache
def _chosen(choices: tuple[str, ...], folders: tuple[str, ...]) -> bytes:
    """What Hydra merges of the files in `folders`, which it has just been told, pickled: so it is copied soonest."""
    return pickle.dumps(compose("config", overrides=list(choices)))


def run_config(cfg: DictConfig, folder: Path) -> dict[str, Any]:
    """What `python -m oneshot_fl` does with a composed configuration; the summary."""
    from oneshot_fl.pipeline import run

    return run(experiment_of(cfg), folder)
