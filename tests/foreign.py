"""Methods of somebody else, in a configuration folder of their own, which Hydra reads after ours."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

from hydra.core.config_search_path import ConfigSearchPath
from hydra.core.plugins import Plugins
from hydra.plugins.search_path_plugin import SearchPathPlugin

FOREIGN = Path(__file__).parent / "fixtures" / "conf"


class UserFolder(SearchPathPlugin):
    """A user's own folder of configuration."""

    folder: ClassVar[Path | None] = None

    def manipulate_search_path(self, search_path: ConfigSearchPath) -> None:
        if self.folder is not None:
            search_path.append("foreign", f"file://{self.folder}")


Plugins.instance().register(UserFolder)


@contextmanager
def foreign_methods() -> Iterator[None]:
    """Inside the block the methods of `FOREIGN` can be chosen."""
    before, UserFolder.folder = UserFolder.folder, FOREIGN
    try:
        yield
    finally:
        UserFolder.folder = before
