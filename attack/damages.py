"""Random damage to a checkpoint: is every case of it detected?

python -m attack.damages                         1,500 damages
python -m attack.damages --count 100 --seed 1
"""

from __future__ import annotations

import os
import random
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from attack import table
from attack.kills import undisturbed
from attack.trainings import trainings
from ppolm.errors import RunFolderError
from ppolm.storage.atomic import verify_folder


def flip(file: Path, draw: random.Random) -> None:
    """Change one bit."""
    content = bytearray(file.read_bytes())
    content[draw.randrange(len(content))] ^= 1 << draw.randrange(8)
    file.write_bytes(content)


def cut(file: Path, draw: random.Random) -> None:
    """Cut off the end."""
    file.write_bytes(file.read_bytes()[: draw.randrange(file.stat().st_size)])


def remove(file: Path, draw: random.Random) -> None:  # noqa: ARG001
    """Remove a file."""
    file.unlink()


def lengthen(file: Path, draw: random.Random) -> None:
    """Append zeros, spaces or random bytes, as a file system that fills up blocks does."""
    more = draw.choice((b"\0", b" ", b"\n", draw.randbytes(1))) * draw.randint(1, 512)
    file.write_bytes(file.read_bytes() + more)


def empty(file: Path, draw: random.Random) -> None:
    """Overwrite with something short that is valid JSON."""
    file.write_bytes(draw.choice((b"{}", b"[]", b"null", b'{"a": 1}', b'""', b"0")))


def add(file: Path, draw: random.Random) -> None:
    """Add an unexpected file beside it."""
    file.with_name(f"strange-{draw.randrange(10**6)}").write_bytes(draw.randbytes(64))


def blank(file: Path, draw: random.Random) -> None:
    """Overwrite a part with zeros, as after a power failure."""
    content = bytearray(file.read_bytes())
    start = draw.randrange(len(content))
    part = content[start : start + 4096]
    content[start : start + 4096] = bytes(len(part)) if any(part) else b"\1" * len(part)
    file.write_bytes(content)


DAMAGES: tuple[Callable[[Path, random.Random], None], ...] = (flip, cut, remove, lengthen, empty, add, blank)


def run(checkpoint: Path, count: int, seed: int, place: Path) -> tuple[Counter[str], list[str]]:
    """Damages detected, by kind, and those missed. The manifest is hit as often as all other files together."""
    draw, noticed, missed = random.Random(seed), Counter[str](), []
    files = sorted(path.relative_to(checkpoint) for path in checkpoint.rglob("*") if path.is_file())
    for number in range(count):
        copy = place / f"damaged-{number}"
        shutil.copytree(checkpoint, copy, copy_function=os.link)
        file = copy / (Path("manifest.json") if draw.random() < 0.5 else draw.choice(files))
        own = file.read_bytes()
        file.unlink()  # all files are hard links to the undamaged checkpoint
        file.write_bytes(own)
        damage = draw.choice(DAMAGES)
        damage(file, draw)
        try:
            verify_folder(copy)
            missed.append(f"{damage.__name__} of {file.relative_to(copy)}")
        except RunFolderError:
            noticed[damage.__name__] += 1
        shutil.rmtree(copy)
    return noticed, missed


def main(argv: list[str] | None = None) -> int:
    """Attack, print a table, and fail if any damage was not detected."""
    arguments = table.flags(__doc__, 1500, "damages").parse_args(argv)
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder)
        whole, _ = undisturbed(trainings(place)["train"], place)
        noticed, missed = run(max(whole.glob("checkpoints/step-*")), arguments.count, arguments.seed, place)
    print("| damage | noticed |\n|---|---:|")
    for name, times in sorted(noticed.items()):
        print(f"| {name} | {times} |")
    print(f"| all of {arguments.count} | {noticed.total()} |", *missed, sep="\n")
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
