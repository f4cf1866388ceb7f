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


def png_of_16_bit_colour(path: Path, value: int, *, transparent: int | None = None) -> None:
    """One pixel; Pillow cannot write such a file."""
    clear = None if transparent is None else struct.pack(">3H", *[transparent] * 3)
    _write_png(path, 16, 2, struct.pack(">3H", value, value, value), clear)


def png_of_low_grey(path: Path, bits: int, values: tuple[int, ...], *, transparent: int) -> None:
    """A row of greys with 2 or 4 bits each; Pillow cannot write one with a transparent value."""
    row = int("".join(format(value, f"0{bits}b") for value in values), 2)
    _write_png(path, bits, 0, row.to_bytes(len(values) * bits // 8, "big"), struct.pack(">H", transparent), len(values))


def tiff_of_planes(path: Path, value: int) -> None:
    """One pixel of 16 bits of colour, with red, green and blue in planes of their own; Pillow cannot write it."""
    told = {256: 1, 257: 1, 259: 1, 262: 2, 277: 3, 278: 1, 284: 2}
    lists = {258: (16, 16, 16), 273: (8, 10, 12), 279: (2, 2, 2)}  # their values stand behind the pixels
    where = {tag: 14 + 6 * at for at, tag in enumerate(lists)}
    short = {tag: struct.pack("<HHII", tag, 3, 1, number) for tag, number in told.items()}
    entries = short | {tag: struct.pack("<HHII", tag, 3, 3, where[tag]) for tag in lists}
    values = b"".join(struct.pack("<3H", *numbers) for numbers in lists.values())
    directory = struct.pack("<H", len(entries)) + b"".join(entries[tag] for tag in sorted(entries)) + b"\0" * 4
    path.write_bytes(b"II*\0" + struct.pack("<I", 32) + struct.pack("<3H", value, value, value) + values + directory)


def _write_png(path: Path, bits: int, kind: int, row: bytes, clear: bytes | None, width: int = 1) -> None:
    """One row of pixels, and which value or colour is transparent."""

    def chunk(name: bytes, data: bytes) -> bytes:
        return struct.pack(">I", len(data)) + name + data + struct.pack(">I", zlib.crc32(name + data))

    header = chunk(b"IHDR", struct.pack(">IIBBBBB", width, 1, bits, kind, 0, 0, 0))
    transparency = b"" if clear is None else chunk(b"tRNS", clear)
    pixels = chunk(b"IDAT", zlib.compress(b"\0" + row))
    path.write_bytes(b"\x89PNG\r\n\x1a\n" + header + transparency + pixels + chunk(b"IEND", b""))
