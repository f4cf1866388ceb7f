"""Every kind of image file: read as a viewer would show it, or refused with a line that says what to do."""

import re
import struct

import numpy as np
import pytest
from PIL import Image

from oneshot_fl.data.decode import Decoding, Tones, UnsuitableImageError, decode, decoded_image
from oneshot_fl.errors import OneshotError
from tests.unit.data.image_files import DEEP, png_of_16_bit_colour, png_of_low_grey, tiff_of_planes

AS_IT_IS = Decoding(size=None, channels=3)
GREY = Decoding(size=None, channels=1)
LEFT_TO_RIGHT = np.array([[0, 100], [200, 250]], dtype=np.uint8)


def _decoded(path, picture, how=GREY, **save):
    picture.save(path, **save)
    return decode(path, how)


def _refusal(path):
    """The error's text; nothing where there is none."""
    try:
        decode(path, AS_IT_IS)
    except OneshotError as error:
        return str(error)
    return ""


def _of(mode, value, *, size=2):
    return Image.new(mode, (size, size), value)


def test_grey_of_8_bits_is_kept_and_becomes_three_equal_channels(tmp_path):
    picture = Image.fromarray(LEFT_TO_RIGHT)
    assert _decoded(tmp_path / "0.png", picture).tolist() == [LEFT_TO_RIGHT.tolist()]
    assert _decoded(tmp_path / "0.png", picture, AS_IT_IS).tolist() == [LEFT_TO_RIGHT.tolist()] * 3


def test_colour_is_kept(tmp_path):
    assert _decoded(tmp_path / "0.png", _of("RGB", (1, 2, 3)), AS_IT_IS)[:, 0, 0].tolist() == [1, 2, 3]


def test_one_bit_is_black_and_white(tmp_path):
    picture = Image.fromarray(np.array([[False, True]]))
    assert picture.mode == "1"
    assert _decoded(tmp_path / "0.png", picture).tolist() == [[[0, 255]]]


def test_a_palette_is_looked_up(tmp_path):
    picture = _of("RGB", (200, 30, 40)).quantize(4)
    assert picture.mode == "P"
    assert _decoded(tmp_path / "0.png", picture, AS_IT_IS)[:, 0, 0].tolist() == [200, 30, 40]


def test_cmyk_becomes_rgb(tmp_path):
    decoded = _decoded(tmp_path / "0.tif", _of("CMYK", (0, 255, 255, 0)), AS_IT_IS)
    assert decoded[:, 0, 0].tolist() == [255, 0, 0]


def test_lab_becomes_the_grey_of_its_colours(tmp_path):
    picture = _of("LAB", (150, 40, 200))
    colours = _decoded(tmp_path / "0.tif", picture, AS_IT_IS)
    assert Image.open(tmp_path / "0.tif").mode == "LAB"
    grey = Image.fromarray(colours.transpose(1, 2, 0)).convert("L")
    assert _decoded(tmp_path / "0.tif", picture, GREY).tolist() == [np.asarray(grey).tolist()]


def _white_figure(mode):
    """White left half on transparent white; a viewer shows nothing but the figure."""
    picture = _of("RGBA", (255, 255, 255, 0))
    picture.paste((255, 255, 255, 255), (0, 0, 1, 2))
    return picture.convert(mode)


@pytest.mark.parametrize("mode", ["RGBA", "LA"])
@pytest.mark.parametrize("background", [0, 128, 255])
def test_transparent_pixels_show_the_background(tmp_path, mode, background):
    how = Decoding(size=None, channels=1, tones=Tones(background=background))
    assert _decoded(tmp_path / "0.png", _white_figure(mode), how).tolist() == [[[255, background]] * 2]


def test_half_transparent_pixels_are_blended(tmp_path):
    how = Decoding(size=None, channels=1, tones=Tones(background=100))
    assert _decoded(tmp_path / "0.png", _of("LA", (200, 51)), how)[0, 0, 0] == 120  # a fifth of 200, the rest of 100


def test_a_transparent_colour_of_a_palette_or_of_grey_shows_the_background(tmp_path):
    palette = Image.fromarray(np.array([[0, 1]], dtype=np.uint8), "P")
    palette.putpalette([255, 255, 255, 255, 255, 255])
    assert _decoded(tmp_path / "0.png", palette, transparency=1).tolist() == [[[255, 128]]]
    grey = Image.fromarray(np.array([[7, 255]], dtype=np.uint8))
    assert _decoded(tmp_path / "1.png", grey, transparency=255).tolist() == [[[7, 128]]]
    deep = Image.fromarray(np.array([[0, 65535]], np.uint16))
    white = Decoding(size=None, channels=1, tones=Tones(max_value=65535.0))
    assert _decoded(tmp_path / "2.png", deep, white, transparency=0).tolist() == [[[128, 255]]]


@pytest.mark.parametrize(
    ("orientation", "expected"),
    [(1, [[0, 100], [200, 250]]), (3, [[250, 200], [100, 0]]), (6, [[200, 0], [250, 100]])],
)
def test_a_picture_is_turned_as_its_exif_says(tmp_path, orientation, expected):
    exif = Image.Exif()
    exif[0x0112] = orientation
    assert _decoded(tmp_path / "0.png", Image.fromarray(LEFT_TO_RIGHT), exif=exif).tolist() == [expected]


@pytest.mark.parametrize(("name", "kind"), DEEP.values(), ids=DEEP)
def test_grey_of_more_than_8_bits_is_scaled_by_one_range_for_all_files(tmp_path, name, kind):
    """Two 12-bit values that both were white before."""
    how = Decoding(size=None, channels=1, tones=Tones(max_value=4095))
    values = [
        int(_decoded(tmp_path / name, Image.fromarray(np.full((2, 2), value, kind)), how)[0, 0, 0])
        for value in (0, 1200, 3000, 4095)
    ]
    assert values == [0, 75, 187, 255]  # 255 / 4095 of each, rounded


@pytest.mark.parametrize(("name", "kind"), DEEP.values(), ids=DEEP)
def test_grey_of_more_than_8_bits_is_refused_without_a_range(tmp_path, name, kind):
    says = rf"^data\.max_value=null: .*{re.escape(name)} has grey values of more than 8 bits, here up to 3000; set"
    with pytest.raises(OneshotError, match=says):
        _decoded(tmp_path / name, Image.fromarray(np.full((2, 2), 3000, kind)))


def _tiff(path, values, *, bits, order="<", photometric=1, orientation=1):
    """A grey TIFF of two times two values, whose bytes `order` says the order of."""
    tags = {256: 2, 257: 2, 258: bits, 259: 1, 262: photometric, 273: 8, 274: orientation, 278: 2, 279: bits // 2}
    pixels = struct.pack(f"{order}4{'B' if bits == 8 else 'H'}", *values).ljust(8, b"\0")
    entries = b"".join(struct.pack(f"{order}HHIHH", tag, 3, 1, value, 0) for tag, value in tags.items())
    header = (b"II*\0" if order == "<" else b"MM\0*") + struct.pack(f"{order}I", 16)
    path.write_bytes(header + pixels + struct.pack(f"{order}H", len(tags)) + entries + b"\0" * 4)


def test_big_endian_16_bits(tmp_path):
    path = tmp_path / "0.tif"
    _tiff(path, (0, 1200, 3000, 4095), bits=16, order=">")
    assert Image.open(path).mode == "I;16B"
    assert decode(path, Decoding(None, 1, tones=Tones(max_value=4095))).flatten().tolist() == [0, 75, 187, 255]


@pytest.mark.parametrize(("kind", "greys"), [(b"P5", b"\x0e\xd8\x00\x00"), (b"P2", b"3800 0\n")])
def test_a_pgm_has_the_values_that_it_is_written_with(tmp_path, kind, greys):
    file = tmp_path / "0.pgm"
    file.write_bytes(kind + b"\n2 1\n4095\n" + greys)
    assert "here up to 3800;" in _refusal(file)  # Pillow makes 60814 of it
    assert decode(file, Decoding(None, 1, Tones(4095.0))).tolist() == [[[237, 0]]]  # 3800 / 4095 of 255 is 236.6


def test_a_pgm_that_was_loaded_before_is_refused_where_its_header_counts(tmp_path):
    file = tmp_path / "0.pgm"
    file.write_bytes(b"P5\n1 1\n4095\n\x00\xc8")
    picture = Image.open(file)
    picture.load()  # Pillow makes 3203 of 200, and forgets 4095
    with pytest.raises(UnsuitableImageError, match="loaded before its header was read"):
        decoded_image(picture, Decoding(None, 1, Tones(4095.0)))
    assert decode(file, Decoding(None, 1, Tones(4095.0))).tolist() == [[[12]]]


@pytest.mark.parametrize(("bits", "white"), [(8, 255), (16, 4095)])
@pytest.mark.parametrize(("photometric", "expected"), [(1, [0, 51, 204, 255]), (0, [255, 204, 51, 0])])
@pytest.mark.parametrize("orientation", [1, 3])
def test_a_tiff_whose_0_is_white_is_turned_round_whatever_its_bits(
    tmp_path, bits, white, photometric, expected, orientation
):
    path, values = tmp_path / "0.tif", (0, white // 5, 4 * white // 5, white)
    _tiff(path, values, bits=bits, photometric=photometric, orientation=orientation)
    decoded = decode(path, Decoding(None, 1, tones=Tones(max_value=4095))).flatten().tolist()
    assert decoded == (expected if orientation == 1 else expected[::-1])


def test_floats_from_0_to_1(tmp_path):
    picture = Image.fromarray(np.array([[0, 0.5, 1]], np.float32))
    how = Decoding(None, 1, tones=Tones(max_value=1.0))
    assert _decoded(tmp_path / "0.tif", picture, how).tolist() == [[[0, 128, 255]]]


@pytest.mark.parametrize(
    ("value", "says"),
    [
        (5000.0, r"^data\.max_value=4095: .*has a value of 5000, more than 4095; set"),
        (-1.0, "below 0"),
        (float("nan"), "none at all"),
    ],
)
def test_values_out_of_range_are_refused(tmp_path, value, says):
    picture = Image.fromarray(np.array([[0, value]], np.float32))
    with pytest.raises(OneshotError, match=says):
        _decoded(tmp_path / "0.tif", picture, Decoding(None, 1, tones=Tones(max_value=4095)))


def test_8_bits_are_kept_whatever_the_range_of_deeper_images(tmp_path):
    assert _decoded(tmp_path / "0.png", _of("L", 77), Decoding(None, 1, tones=Tones(max_value=4095)))[0, 0, 0] == 77


def test_colour_of_16_bits_is_read_by_its_whole_range_or_refused(tmp_path):
    path = tmp_path / "0.png"
    png_of_16_bit_colour(path, 40000)
    assert decode(path, Decoding(None, 3, tones=Tones(max_value=65535))).flatten().tolist() == [40000 // 256] * 3
    for max_value, told in ((None, "null"), (4095, "4095")):
        with pytest.raises(OneshotError, match=rf"^data\.max_value={told}: .*16 bits of colour; set .*=65535"):
            decode(path, Decoding(None, 3, tones=Tones(max_value=max_value)))


@pytest.mark.parametrize("content", [b"P6\n1 1\n4095\n" + b"\x08\x00" * 3, b"P3\n1 1\n4095\n2048 2048 2048\n"])
def test_a_ppm_of_more_than_8_bits_is_read_by_the_range_in_its_header_or_refused(tmp_path, content):
    file = tmp_path / "0.ppm"
    file.write_bytes(content)
    assert decode(file, Decoding(None, 3, Tones(4095))).flatten().tolist() == [128] * 3  # 2048 / 4095 of 255 is 127.5
    for max_value in (None, 65535):
        with pytest.raises(OneshotError, match=r"16 bits of colour; set data\.max_value=4095 if"):
            decode(file, Decoding(None, 3, Tones(max_value)))
    file.write_bytes(b"P3\n1 1\n100\n50 50 50\n")
    assert decode(file, AS_IT_IS).flatten().tolist() == [128] * 3  # of 8 bits, whatever is white in it


@pytest.mark.parametrize("max_value", [None, 65535])
def test_deep_colours_that_pillow_cannot_read_are_refused(tmp_path, max_value):
    how = Decoding(None, 3, Tones(max_value))
    tiff_of_planes(tmp_path / "0.tif", 0x8001)  # Pillow reads 128 and 1 in turn
    with pytest.raises(OneshotError, match=r"^data\.root: .*one behind the other: save it with 8 bits"):
        decode(tmp_path / "0.tif", how)
    png_of_16_bit_colour(tmp_path / "0.png", 40000, transparent=156)  # the upper 8 bits of 40000
    with pytest.raises(OneshotError, match=r"^data\.root: .*one that is transparent: save it with 8 bits"):
        decode(tmp_path / "0.png", how)


@pytest.mark.parametrize(
    ("bits", "values", "greys"), [(2, (0, 1, 2, 3), [0, 85, 170]), (4, (0, 5, 10, 15), [0, 85, 170])]
)
def test_a_transparent_grey_of_few_bits_shows_the_background(tmp_path, bits, values, greys):
    png_of_low_grey(tmp_path / "0.png", bits, values, transparent=values[-1])
    assert decode(tmp_path / "0.png", GREY).flatten().tolist() == [*greys, 128]


def test_an_animation_is_refused(tmp_path):
    with pytest.raises(OneshotError, match=r"0\.gif holds 2 frames"):
        _decoded(tmp_path / "0.gif", _of("L", 1), save_all=True, append_images=[_of("L", 200)])


@pytest.mark.parametrize("name", ["0.png", "0.jpg", "0.bmp", "0.tif", "0.gif", "0.webp", "0.ppm"])
def test_a_file_cut_short_is_refused(tmp_path, name):
    pixels = np.random.default_rng(0).integers(256, size=(64, 64, 3), dtype=np.uint8)
    path = tmp_path / name
    Image.fromarray(pixels).save(path)
    whole = path.read_bytes()
    for length in (len(whole) // 2, 20, 0):
        path.write_bytes(whole[:length])
        with pytest.raises(OneshotError, match=r"^data\.root: .* is not a readable image: remove or replace it$"):
            decode(path, AS_IT_IS)


@pytest.mark.parametrize("name", ["0.png", "0.jpg", "0.bmp", "0.tif", "0.gif", "0.webp", "0.ppm"])
def test_damage_ends_in_an_image_or_a_plain_line(tmp_path, name):
    rng = np.random.default_rng(1)
    path = tmp_path / name
    Image.fromarray(rng.integers(256, size=(16, 16, 3), dtype=np.uint8)).save(path)
    whole = np.frombuffer(path.read_bytes(), dtype=np.uint8)
    for _ in range(200):
        damaged = whole.copy()
        damaged[rng.integers(min(len(whole), 100), size=3)] = rng.integers(256, size=3)
        path.write_bytes(damaged.tobytes())
        assert "\n" not in _refusal(path)


@pytest.mark.parametrize("times_the_limit", [1.5, 3])
def test_a_decompression_bomb_is_refused(tmp_path, monkeypatch, times_the_limit):
    """Pillow warns above its limit and raises above twice that."""
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", int(64 / times_the_limit))
    with pytest.raises(OneshotError, match=r"^data\.root: .*0\.png claims more than \d+ pixels"):
        _decoded(tmp_path / "0.png", _of("L", 0, size=8))


def test_a_size_is_reached_by_averaging(tmp_path):
    board = Image.fromarray(np.tile(np.array([[0, 200], [200, 0]], np.uint8), (4, 4)))
    resized = _decoded(tmp_path / "0.png", board, Decoding(size=2, channels=1))
    assert resized.shape == (1, 2, 2)
    assert abs(resized.astype(int) - 100).max() <= 15
