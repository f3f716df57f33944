"""The parts of the small real experiment, `dota_clip.reproduce`."""
