"""Tiny image files for the tests of folders of images."""

import struct
import zlib
from pathlib import Path

import numpy as np
from PIL import Image

DEEP = {
    "16-bit png": ("0.png", np.uint16),
    "16-bit tiff": ("0.tif", np.uint16),
    "32-bit tiff": ("0.tif", np.int32),
    "float tiff": ("0.tif", np.float32),
}
"""Names of files whose greys have more than 8 bits, and the types of their values."""


def write_image(path: Path, value: int, size: int = 8) -> None:
    """One square image whose pixels all have the same value."""
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((size, size, 3), value, dtype=np.uint8)).save(path)


def png_of_16_bit_colour(path: Path, value: int) -> None:
    """One pixel; Pillow cannot write such a file."""

    def chunk(kind: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))

    header = struct.pack(">IIBBBBB", 1, 1, 16, 2, 0, 0, 0)
    pixels = zlib.compress(b"\0" + struct.pack(">3H", value, value, value))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", header) + chunk(b"IDAT", pixels) + chunk(b"IEND", b""))
