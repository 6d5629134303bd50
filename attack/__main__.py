"""``python -m attack [PART ...] [flags]``: all attacks, or those named; the flags are passed on to each."""

from __future__ import annotations

import sys
from importlib import import_module

PARTS = {
    "bad-inputs": "attack.bad_inputs",
    "kills": "attack.kills",
    "disk-full": "attack.disk_full",
    "two-writers": "attack.two_writers",
    "damages": "attack.damages",
    "loading": "attack.loading",
}
"""The attacks and the modules whose ``main`` runs them."""


def main(argv: list[str]) -> int:
    """How many attacks found a fault. Names come first; everything from the first flag on is passed to each attack."""
    first_flag = next((i for i, argument in enumerate(argv) if argument.startswith("-")), len(argv))
    parts, flags = argv[:first_flag] or list(PARTS), argv[first_flag:]
    unknown = [part for part in parts if part not in PARTS]
    if unknown:
        print(f"Unknown attack {unknown[0]!r}. There are: {', '.join(PARTS)}.", file=sys.stderr)
        return 2
    return sum(bool(import_module(PARTS[part]).main(flags)) for part in parts)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
