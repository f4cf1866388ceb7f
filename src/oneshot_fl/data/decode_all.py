"""All images of a data set as bytes: with `decode`, all the code that their cache depends on."""

import hashlib
from collections.abc import Mapping, Sequence
from io import BytesIO
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from oneshot_fl.data.decode import Decoding, Origin, decode
from oneshot_fl.errors import OneshotError


def decode_all(
    paths: Mapping[str, Sequence[Path]], digests: Mapping[str, Sequence[bytes]], how: Decoding, origin: Origin
) -> dict[str, NDArray[np.uint8]]:
    """Images uint8 `[n, C, side, side]` of every named part of `paths`.

    Args:
        paths: of image files, at least one.
        digests: the SHA-256 of each file, as it was when the key that the images are kept under was made.
        how: what they are turned into.
        origin: whose images they are.

    Raises:
        OneshotError: a file is no image, sizes differ, or a file is not what was hashed.
        OSError: a file cannot be read.
    """
    side = decode(next(path for found in paths.values() for path in found), how, origin).shape[1]
    decoded = {}
    for part, found in paths.items():
        images = np.empty((len(found), how.channels, side, side), dtype=np.uint8)  # filled in place: may be gigabytes
        for number, (path, digest) in enumerate(zip(found, digests[part], strict=True)):
            image = decode(path, how, origin, content=BytesIO(_as_hashed(path, digest, origin)))
            _check_size(path, image, side)
            images[number] = image
        decoded[part] = images
    return decoded


def _as_hashed(path: Path, digest: bytes, origin: Origin) -> bytes:
    """A file's content, read once, so that what is looked at is what is decoded."""
    content = path.read_bytes()
    if hashlib.sha256(content).digest() != digest:
        raise OneshotError(
            f"{origin.setting}: {path} was written while the images were read; start again once nothing writes there"
        )
    return content


def _check_size(path: Path, image: NDArray[np.uint8], side: int) -> None:
    if image.shape[1:] != (side, side):
        width, height = image.shape[2], image.shape[1]
        raise OneshotError(
            f"data.size: {path} is {width}x{height}, but images must be square and of one size: "
            f"set data.size, for instance data.size={side}, to resize them all"
        )
