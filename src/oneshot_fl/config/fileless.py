"""Parts whose code lies in no file, as a notebook's cells: no key can hold it."""

from collections.abc import Mapping
from typing import Any

from oneshot_fl.code import FILELESS, is_fileless
from oneshot_fl.errors import OneshotError
from oneshot_fl.recipe import targets_at

OF_NO_RESULT = ("logger",)
"""Groups whose parts cannot change a number, so that no key holds them."""


def check_files(settings: Mapping[str, Any]) -> None:
    """Whether the code of every part that a result depends on can be read.

    Raises:
        OneshotError: a part's cannot, or not by the workers; naming its key.
    """
    for key, target in targets_at(settings):
        if key.startswith(OF_NO_RESULT):
            continue
        if is_fileless(target):
            raise OneshotError(f"{key}._target_={target}: {FILELESS}")
        if target.startswith("__main__.") and settings.get("workers", 1) > 1:
            raise OneshotError(
                f"{key}._target_={target}: workers={settings['workers']} are programs of their own, where __main__ is "
                "another; put it into a module, or set workers=1"
            )
