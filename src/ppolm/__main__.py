"""``python -m ppolm``: the same as the command ``ppolm``."""

import sys

from ppolm.cli.main import main

if __name__ == "__main__":
    main(sys.argv[1:])
