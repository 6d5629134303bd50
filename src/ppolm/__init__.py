"""ppolm: PPO fine-tuning of language models with human feedback, where every number can be traced to its token."""

import os

__version__ = "0.1.0"

# Threads that wait for each other spin. By default for so long that one busy program beside us slows a step several
# times; a shorter while helps there, and a very short one loses time on a quiet machine. This is a compromise between
# the two; bench/neighbour.py measures both. The library that reads this is loaded with torch, so it has to be said
# before; whoever has said something else is left alone.
if "OMP_WAIT_POLICY" not in os.environ:
    os.environ.setdefault("GOMP_SPINCOUNT", "1500")
