"""Folders that appear whole or not at all."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path

from ppolm.errors import RunFolderError

MANIFEST = "manifest.json"


def write_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Let ``fill`` write into a temporary folder, then put it at ``path`` in one move, replacing what was there.

    A manifest with size and SHA-256 of every file goes with it, so that a damaged copy is noticed. A crash at any
    moment leaves the old folder or the new one.
    """
    temporary = path.with_name(f".{path.name}.tmp")
    shutil.rmtree(temporary, ignore_errors=True)
    temporary.mkdir(parents=True)
    try:
        fill(temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise
    written = [file for file in sorted(temporary.rglob("*")) if file.is_file()]
    files = {str(file.relative_to(temporary)): describe(file) for file in written}
    (temporary / MANIFEST).write_text(json.dumps(files, indent=1))
    for file in temporary.rglob("*"):
        sync(file)
    sync(temporary)
    old = path.with_name(f".{path.name}.old")
    shutil.rmtree(old, ignore_errors=True)
    if path.exists():
        path.rename(old)
    temporary.rename(path)
    sync(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def write_into(folder: Path, fill: Callable[[Path], None], last: str) -> None:
    """Let ``fill`` write files and put them into ``folder`` beside what is there; ``last`` is the file that says: done.

    A crash before that file is there leaves an unfinished result, which is written again; other files stay untouched.
    """
    new = folder / ".new"
    write_folder(new, fill)
    (folder / last).unlink(missing_ok=True)
    for file in sorted(new.iterdir(), key=lambda file: file.name == last):
        file.replace(folder / file.name)
    new.rmdir()
    sync(folder)


def recover_folder(path: Path) -> None:
    """Put the old folder back if a crash fell between the two moves of ``write_folder``."""
    old = path.with_name(f".{path.name}.old")
    if old.exists() and not path.exists():
        old.rename(path)


def describe(file: Path) -> list[object]:
    """Size and SHA-256 of a file."""
    with file.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    return [file.stat().st_size, digest.hexdigest()]


def sync(path: Path) -> None:
    """Make sure a file or folder is on the disk, not only in its cache."""
    if path.is_dir() and os.name == "nt":
        return  # Windows cannot open folders for this
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def verify_folder(path: Path) -> None:
    """Raise unless every file is there as the manifest describes it."""
    try:
        files = json.loads((path / MANIFEST).read_text())
        problems = [name for name, description in files.items() if not _matches(path / name, description)]
    except (OSError, ValueError, AttributeError, LookupError, TypeError, RecursionError):
        problems = [MANIFEST]
    if problems:
        raise RunFolderError(f"{path} is damaged or cut off ({problems[0]} is not as it was written).")


def _matches(file: Path, description: list[object]) -> bool:
    return file.is_file() and file.stat().st_size == description[0] and describe(file) == description
