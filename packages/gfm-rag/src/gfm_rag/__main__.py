"""``python -m gfm_rag``: the command `gfm-rag`."""

from gfm_rag.cli import main

main()
