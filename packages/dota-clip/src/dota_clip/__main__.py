"""``python -m dota_clip``: the command `dota-clip`."""

from dota_clip.cli import main

main()
