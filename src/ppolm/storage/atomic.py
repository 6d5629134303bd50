"""Writing folders and files atomically."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from safetensors import SafetensorError

from ppolm.errors import RunFolderError

MANIFEST = "manifest.json"
LOCK = ".lock"
"""Who writes into a folder. A program that is killed leaves it behind; it is no part of what was written."""
WINDOWS = os.name == "nt"
LEFTOVER = re.compile(r"\.(?P<name>.+)\.\d+-[0-9a-f]{8}\.(?P<kind>tmp|old)")
"""Temporary names with process id and random number: being written (tmp), or being replaced (old)."""
NOT_OURS = re.compile(r"\.DS_Store|\._.*|Thumbs\.db|desktop\.ini|\.nfs.*")
"""Files added by file managers and network file systems."""


def passing_name(path: Path, kind: str) -> Path:
    """A temporary name next to ``path`` that no other process uses."""
    return path.with_name(f".{path.name}.{os.getpid()}-{uuid.uuid4().hex[:8]}.{kind}")


def write_folder(path: Path, fill: Callable[[Path], None]) -> None:
    """Let ``fill`` write into a temporary folder, then rename it to ``path``, replacing what was there.

    A manifest with size and SHA-256 of every file is added, so that a damaged copy is noticed. A crash at any moment
    leaves the old folder or the new one. The parent folder must exist: if it was removed, it is not created again.
    """
    temporary = passing_name(path, "tmp")
    _fill(temporary, fill)
    old = passing_name(path, "old")
    if path.exists():
        path.rename(old)
    temporary.rename(path)
    sync(path.parent)
    shutil.rmtree(old, ignore_errors=True)


def _fill(temporary: Path, fill: Callable[[Path], None]) -> None:
    """Fill a new folder, add a manifest and sync it to disk; remove it if anything fails."""
    temporary.mkdir()
    try:
        fill(temporary)
        files = {name: describe(temporary / name) for name in sorted(_files(temporary))}
        (temporary / MANIFEST).write_bytes(_manifest(files))
        for name in files:  # safetensors gives its files to their owner alone: who may read one may read all
            shutil.copymode(temporary / MANIFEST, temporary / name)
        for file in temporary.rglob("*"):
            sync(file)
        sync(temporary)
    except BaseException:
        shutil.rmtree(temporary, ignore_errors=True)
        raise


def write_into(folder: Path, fill: Callable[[Path], None], last: str) -> None:
    """Let ``fill`` write files and move them into ``folder``; the file ``last`` comes last and marks it as complete.

    A crash before that leaves an unfinished result, which is written again; other files of the folder stay untouched.
    """
    new = passing_name(folder / "new", "tmp")
    _fill(new, fill)
    (folder / last).unlink(missing_ok=True)
    for file in sorted(new.iterdir(), key=lambda file: file.name == last):
        file.replace(folder / file.name)
    new.rmdir()
    sync(folder)


def write_file(path: Path, write: Callable[[Path], object]) -> None:
    """Let ``write`` write a temporary file, then rename it to ``path``."""
    temporary = passing_name(path, "tmp")
    try:
        write(temporary)
        sync(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    sync(path.parent)


@contextmanager
def explained(path: Path, then: str) -> Iterator[None]:
    """Turn errors from a full disk, a lost folder or missing permissions into one message ending in ``then``."""
    try:
        yield
    except (OSError, SafetensorError) as error:
        raise RunFolderError(
            f"{path} could not be written: {' '.join(str(error).split())}. What was saved before is untouched. Make "
            f"sure that there is room and that the folder is there and may be written to; then {then}"
        ) from error


def standing_folder(path: Path) -> Path:
    """Where the contents of a folder are now: a reader may come between the two renames of ``write_folder``."""
    return path if path.exists() else next(iter(_olds(path)[::-1]), path)


def standing_names(folder: Path) -> set[str]:
    """Names of what is in a folder, including what is just being replaced."""
    names = {path.name for path in folder.iterdir()} if folder.is_dir() else set()
    return {match["name"] if (match := LEFTOVER.fullmatch(name)) and match["kind"] == "old" else name for name in names}


def _olds(path: Path) -> list[Path]:
    """Replaced versions of ``path``, newest last; earlier versions of ppolm named them without a number."""
    found = [path.with_name(f".{path.name}.old"), *path.parent.glob(f".{path.name}.*-*.old")]
    return sorted((old for old in found if old.is_dir()), key=lambda old: old.stat().st_mtime)


def recover_folder(path: Path) -> None:
    """Restore the old folder after a crash between the two renames of ``write_folder``. Only for the folder's owner."""
    if (standing := standing_folder(path)) != path:
        standing.rename(path)


def tidy(folder: Path) -> None:
    """Restore or remove what killed processes left half written in a folder. Only for its owner."""
    for name in {*standing_names(folder), "best", "checkpoint"}:  # these two had other names in earlier versions
        recover_folder(folder / name)
    for path in list(folder.iterdir()) if folder.is_dir() else ():
        if LEFTOVER.fullmatch(path.name) is None:
            continue
        if path.is_dir():
            shutil.rmtree(path, ignore_errors=True)
        else:
            path.unlink(missing_ok=True)


def describe(file: Path) -> list[object]:
    """Size and SHA-256 of a file."""
    with file.open("rb") as stream:
        digest = hashlib.sha256()
        while block := stream.read(1 << 20):
            digest.update(block)
    return [file.stat().st_size, digest.hexdigest()]


def sync(path: Path) -> None:
    """Flush a file or folder from the cache to disk."""
    if path.is_dir() and WINDOWS:
        return  # it cannot open folders for this
    handle = os.open(path, os.O_RDWR if WINDOWS else os.O_RDONLY)  # there, only what is open for writing is flushed
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def verify_folder(path: Path) -> None:
    """Raise unless the manifest names exactly the files that exist, and each is unchanged.

    The manifest needs no checksum of its own: it must be byte for byte what we would write, so any change to it
    changes a name, a size or a checksum, which then no longer matches a file.
    """
    try:
        text = (path / MANIFEST).read_bytes()
        files = json.loads(text)
        problem = None if isinstance(files, dict) and files and text == _manifest(files) else MANIFEST
    except (OSError, ValueError, RecursionError):
        problem = MANIFEST
    if problem is None:
        named = {Path(name).as_posix(): description for name, description in files.items()}
        strange = sorted(named.keys() ^ _files(path))
        wrong = (name for name, description in named.items() if not _matches(path / name, description))
        problem = strange[0] if strange else next(wrong, None)
    if problem is not None:
        raise RunFolderError(f"{path} is damaged or cut off ({problem} is not as it was written).")


def verify_named_files(path: Path) -> None:
    """Raise unless every file that the manifest names is as it was written; a result may have other files beside it.

    A folder without a manifest, from elsewhere or from an earlier version, is taken as it is.
    """
    try:
        files = json.loads((path / MANIFEST).read_bytes())
    except FileNotFoundError:
        return
    except (OSError, ValueError, RecursionError):
        files = None
    named = files.items() if isinstance(files, dict) else [(MANIFEST, None)]
    wrong = next((name for name, description in named if not _matches(path / name, description)), None)
    if wrong is not None:
        raise RunFolderError(f"{path} is damaged or cut off ({wrong} is not as it was written). Copy it again.")


def _matches(file: Path, description: object) -> bool:
    try:
        return describe(file) == description
    except OSError:
        return False


def _manifest(files: dict[str, list[object]]) -> bytes:
    return json.dumps(files, indent=1).encode()


def _files(folder: Path) -> set[str]:
    """The files of a folder except its manifest and lock, by relative path."""
    found = {file.relative_to(folder).as_posix() for file in folder.rglob("*") if not file.is_dir()}
    return {name for name in found if name not in (MANIFEST, LOCK) and not NOT_OURS.fullmatch(name.rpartition("/")[2])}
