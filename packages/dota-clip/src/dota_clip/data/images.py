"""Decoding of single images: upright, RGB, and with an error that names the file."""

from __future__ import annotations

from io import BytesIO
from pathlib import Path
from typing import TYPE_CHECKING, NoReturn

from nips_common.runtime import require

if TYPE_CHECKING:
    from PIL import Image

IMAGE_SUFFIXES = (".jpg", ".jpeg", ".png", ".bmp", ".gif", ".webp", ".tif", ".tiff", ".ppm", ".pgm")
# 8 bits cannot hold these, and clipping them to white or black would go unseen.
_DEEP_MODES = ("I", "F", "I;16", "I;16B", "I;16L", "I;16N")


class UnreadableImage(ValueError):  # noqa: N818 - read as a state: "except UnreadableImage"
    """An image that cannot be decoded. The message names the file and the reason."""


def load_image(source: str | Path | bytes, *, name: str | None = None) -> Image.Image:
    """Decode an image to RGB, turned the way its EXIF orientation says.

    Args:
        source: a path, or the bytes of an image file.
        name: what to call it in errors; the path if not given.

    Returns:
        The fully decoded RGB image. Transparency is dropped, as the CLIP preprocessing does; of an animation the first
        frame is taken.

    Raises:
        UnreadableImage: missing, truncated, not an image, too large to be safe, or with more than 8 bits per channel.
        ImportError: pillow is not installed.
    """
    require("PIL", "dota-clip[images]")
    from PIL import Image, ImageOps

    label = name if name is not None else "image bytes" if isinstance(source, bytes) else str(source)
    try:
        with Image.open(BytesIO(source) if isinstance(source, bytes) else source) as opened:
            if opened.mode in _DEEP_MODES:
                _refuse(label, f"mode {opened.mode} has more than 8 bits per channel; convert it to 8 bits first")
            image = ImageOps.exif_transpose(opened)
            # Through RGBA, because pillow warns when it drops the transparency of a palette directly.
            return image.convert("RGBA").convert("RGB") if image.mode == "P" else image.convert("RGB")
    except UnreadableImage:
        raise
    except FileNotFoundError:
        _refuse(label, "no such file")
    # What pillow's decoders raise on damaged files; SyntaxError, for one, comes from a broken PNG header.
    except (OSError, SyntaxError, ValueError, EOFError, IndexError, TypeError, OverflowError) as error:
        _refuse(label, " ".join(str(error).split()) or type(error).__name__)
    except Image.DecompressionBombError as error:
        _refuse(label, str(error))


def _refuse(label: str, reason: str) -> NoReturn:
    raise UnreadableImage(f"cannot read image {label}: {reason}")
