"""The small real experiment that ``ridgelora.reproduce`` runs."""
