"""Decoding: RGB, upright, and errors that name the file."""

from __future__ import annotations

import sys
import warnings
from pathlib import Path

import numpy as np
import pytest
from PIL import Image

from dota_clip.data.images import UnreadableImage, load_image


def test_a_photograph_is_decoded_to_rgb(photo_folder: Path) -> None:
    image = load_image(photo_folder / "china.jpg")
    assert (image.mode, image.size) == ("RGB", (640, 427))
    with Image.open(photo_folder / "china.jpg") as expected:
        assert np.array_equal(np.asarray(image), np.asarray(expected))


def test_a_digit_in_grey_becomes_three_equal_channels(digit_image_folder: Path) -> None:
    pixels = np.asarray(load_image(digit_image_folder / "three" / "0.png"))
    assert pixels.shape == (8, 8, 3)
    assert np.array_equal(pixels[..., 0], pixels[..., 2])
    assert pixels.max() == 239  # 15 of 16, as the data set has it


def test_exif_orientation_turns_the_picture(tmp_path: Path) -> None:
    picture = Image.new("RGB", (4, 2), "black")
    picture.putpixel((0, 0), (255, 255, 255))
    exif = Image.Exif()
    exif[0x0112] = 6  # turn by 90 degrees clockwise to see it upright
    picture.save(tmp_path / "turned.png", exif=exif)
    upright = load_image(tmp_path / "turned.png")
    assert upright.size == (2, 4)
    assert upright.getpixel((1, 0)) == (255, 255, 255)


@pytest.mark.parametrize("mode", ["1", "L", "LA", "P", "RGBA", "CMYK"])
def test_every_8_bit_mode_becomes_rgb(tmp_path: Path, mode: str) -> None:
    file = tmp_path / ("picture.tif" if mode == "CMYK" else "picture.png")
    Image.new("RGB", (3, 3), "white").convert(mode).save(file)
    assert load_image(file).getpixel((1, 1)) == (255, 255, 255)


def test_a_palette_with_transparency_gives_no_warning(tmp_path: Path) -> None:
    picture = Image.new("P", (2, 2), 0)
    picture.putpalette([255, 0, 0, 0, 255, 0])
    picture.save(tmp_path / "palette.png", transparency=bytes([0, 255]))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert load_image(tmp_path / "palette.png").getpixel((0, 0)) == (255, 0, 0)


def test_16_bits_are_refused_instead_of_clipped_to_white(tmp_path: Path) -> None:
    Image.fromarray(np.full((4, 4), 40_000, dtype=np.uint16)).save(tmp_path / "scan.png")
    with pytest.raises(UnreadableImage, match=r"scan\.png: mode I;16\w* has more than 8 bits per channel"):
        load_image(tmp_path / "scan.png")


def test_bytes_are_read_like_a_file(photo_folder: Path) -> None:
    content = (photo_folder / "flower.jpg").read_bytes()
    assert np.array_equal(np.asarray(load_image(content)), np.asarray(load_image(photo_folder / "flower.jpg")))
    with pytest.raises(UnreadableImage, match="cannot read image row 7: "):
        load_image(content[:200], name="row 7")


def test_a_damaged_file_names_itself(photo_folder: Path, tmp_path: Path) -> None:
    content = (photo_folder / "china.jpg").read_bytes()
    for name, damaged in [("cut.jpg", content[: len(content) // 2]), ("text.jpg", b"not an image"), ("empty.png", b"")]:
        (tmp_path / name).write_bytes(damaged)
        with pytest.raises(UnreadableImage, match=f"cannot read image {tmp_path / name}: ") as caught:
            load_image(tmp_path / name)
        assert "\n" not in str(caught.value)


def test_a_png_with_a_broken_header_is_unreadable(tmp_path: Path, digit_image_folder: Path) -> None:
    content = bytearray((digit_image_folder / "one" / "0.png").read_bytes())
    content[12:16] = b"ABCD"  # the name of the first chunk
    (tmp_path / "broken.png").write_bytes(content)
    with pytest.raises(UnreadableImage, match=r"broken\.png"):
        load_image(tmp_path / "broken.png")


def test_a_missing_file_and_a_folder_are_unreadable(tmp_path: Path) -> None:
    with pytest.raises(UnreadableImage, match=r"gone\.png: no such file"):
        load_image(tmp_path / "gone.png")
    with pytest.raises(UnreadableImage, match=str(tmp_path)):
        load_image(tmp_path)


def test_a_picture_of_absurd_size_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Image.new("1", (100, 100)).save(tmp_path / "large.png")
    monkeypatch.setattr(Image, "MAX_IMAGE_PIXELS", 1000)  # pillow's own limit, lowered
    with pytest.raises(UnreadableImage, match=r"large\.png: .*exceeds limit"):
        load_image(tmp_path / "large.png")


def test_without_pillow_the_error_is_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)  # what Python does for a module that cannot be imported
    with pytest.raises(ImportError, match=r'pip install "dota-clip\[images\]"'):
        load_image("any.png")
