"""Fetched assets: find one, or say which command fetches it."""

import os
from pathlib import Path


class AssetMissing(FileNotFoundError):  # noqa: N818 - it reads as what happened
    """An asset that was not fetched; the message holds the command that fetches it."""


def find_asset(name: str) -> Path:
    """Return the asset's folder: in ``NIPS_ASSETS`` if that is set, else in ``.assets`` here or in a folder above."""
    chosen, here = os.environ.get("NIPS_ASSETS"), Path.cwd()
    for root in [Path(chosen)] if chosen else [folder / ".assets" for folder in (here, *here.parents)]:
        if (root / name).is_dir() and any((root / name).iterdir()):
            return root / name
    searched = f"NIPS_ASSETS={chosen}" if chosen else f"any .assets in {here} or above (NIPS_ASSETS is not set)"
    raise AssetMissing(f"asset {name!r} is not in {searched}; fetch it with: python tools/fetch_assets.py {name}")
