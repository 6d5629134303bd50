"""``python main.py``: PPO with the user's default configuration; any ``ppolm train`` flag can follow."""

import sys
from pathlib import Path

from ppolm.cli.main import main

DEFAULT = Path(__file__).parent / "configs" / "qwen3-0.6b-tldr.yaml"

if __name__ == "__main__":
    given = sys.argv[1:]
    chosen = any(flag.split("=")[0] in ("--config", "--resume") for flag in given)
    main(["train", *([] if chosen else ["--config", str(DEFAULT)]), *given])
