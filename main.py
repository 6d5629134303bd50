"""``python main.py``: the demo. PPO on the embedded model, in about two minutes; ``--help`` lists its flags."""

import sys

from ppolm.cli.main import main

if __name__ == "__main__":
    main(["demo", *sys.argv[1:]])
