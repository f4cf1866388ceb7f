"""Of the programs that made a result."""

import platform
from importlib.metadata import version

from oneshot_fl.version import __version__

LIBRARIES = ("torch", "torchvision", "lightning")


def versions() -> dict[str, str]:
    """Ours, Python's, and those of the libraries that numbers depend on, by name."""
    return {
        "oneshot_fl": __version__,
        "python": platform.python_version(),
        **{name: version(name) for name in LIBRARIES},
    }
