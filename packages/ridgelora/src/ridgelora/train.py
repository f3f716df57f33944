"""Train a RidgeLoRA adapter: `ridgelora train`, `python -m ridgelora.train`, torchrun, accelerate launch.

The script itself is nips-finetune's, which the extra `train` brings; RidgeLoRA's flags are in `arguments.py`.
"""

from __future__ import annotations

from collections.abc import Sequence

from nips_common.cli import user_errors
from nips_common.runtime import require


def main(argv: Sequence[str] | None = None) -> None:
    """Train on ``argv`` (default: the process's); a user's mistake is one line and exit code 2."""
    with user_errors("ridgelora train"):
        require("nips_finetune", "ridgelora[train]")
        from nips_finetune import train_main
        from ridgelora.arguments import METHOD

        train_main(METHOD, argv)


if __name__ == "__main__":
    main()
