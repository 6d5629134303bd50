"""One writer per folder: an exclusive claim through an operating-system lock, released when its owner ends."""

from __future__ import annotations

import json
import logging
import os
import socket
import sys
import time
import weakref
from collections.abc import Callable
from contextlib import suppress
from datetime import datetime
from functools import partial
from itertools import count
from pathlib import Path
from types import TracebackType

from ppolm.errors import RunFolderError
from ppolm.ranks import Ranks
from ppolm.storage.atomic import LOCK

log = logging.getLogger(__name__)
TRIES = 20
"""Attempts to claim a folder, which may vanish in between when its owner ends and cleans up."""


class Claim:
    """The exclusive right to write into a folder while the ``with`` block runs.

    The lock belongs to the open file, so the system releases it when the process ends, however it ends.
    """

    def __init__(self, folder: Path, advice: str, new: bool = False) -> None:
        """``advice`` tells a user what to do if the folder is claimed. ``new``: it must not exist yet."""
        self.folder, self.advice = folder, advice
        self._made: list[Path] = []
        """Folders created for this claim, outermost first."""
        self._was_mine = False
        """Whether the folder was still this claim's when it was given up."""
        self._handle = self._take(new)
        # A forked child that outlives this process (such as a worker pool in a reward) must not hold the lock.
        if hasattr(os, "register_at_fork"):
            os.register_at_fork(after_in_child=partial(_forget, weakref.ref(self)))

    def _take(self, new: bool) -> int:
        for _ in range(TRIES):
            try:
                self._make(exist_ok=not new)
                handle = os.open(self.folder / LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_BINARY", 0), 0o644)
            except FileExistsError:
                if new:
                    raise
                raise RunFolderError(f"{self.folder} is a file. Choose another folder.") from None
            except FileNotFoundError:
                continue  # its last owner has just removed it
            except OSError as error:
                raise RunFolderError(
                    f"{self.folder} cannot be written: {error}. Choose another output folder."
                ) from error
            if not _lock(handle, self.folder):
                os.close(handle)
                raise RunFolderError(in_use(self.folder, self.advice))
            if self._is_mine(handle):
                with suppress(OSError):  # only informative, and the disk may be full
                    os.ftruncate(handle, 0)
                    os.write(handle, _owner())
                return handle
            os.close(handle)
        raise RunFolderError(f"{self.folder} cannot be locked: it keeps being removed. Choose another folder.")

    def _make(self, exist_ok: bool) -> None:
        missing = [parent for parent in self.folder.parents if not parent.exists()][::-1]
        self._made = [folder for folder in self._made if folder.exists()]
        for folder in missing:
            try:
                folder.mkdir()
                self._made.append(folder)
            except FileExistsError:
                pass  # another process was faster
        try:
            self.folder.mkdir()
            self._made.append(self.folder)
        except FileExistsError:
            if not (exist_ok and self.folder.is_dir()):
                raise

    def _is_mine(self, handle: int) -> bool:
        """Whether the locked file is still the one at this path."""
        try:
            return os.path.samestat(os.stat(self.folder / LOCK), os.fstat(handle))
        except FileNotFoundError:
            return False

    def check(self) -> None:
        """Raise if the folder was removed or replaced in the meantime, in which case nothing may be written."""
        if not self._is_mine(self._handle):
            raise RunFolderError(
                f"{self.folder} was removed, moved or replaced while it was being written to, so nothing more is "
                "written. What was in it is where it was moved to, or lost; start again."
            )

    def release(self) -> None:
        """Release the folder; folders that were created for the claim and are still empty are removed."""
        if self._handle < 0:
            return
        try:
            self._give_up()
        except KeyboardInterrupt:  # a signal: a lock that is left behind would outlive this process
            self._give_up()
            raise

    def _give_up(self) -> None:
        """Remove the lock and close it; begun again after a signal, it goes on where it was."""
        # Removed while locked, so as not to remove another process's new lock; Windows cannot remove an open file.
        with suppress(OSError):
            mine = self._is_mine(self._handle)
            self._was_mine = self._was_mine or mine
            if sys.platform == "win32":
                os.close(self._handle)
            if mine:
                os.unlink(self.folder / LOCK)
        with suppress(OSError):
            for folder in reversed(self._made if self._was_mine else []):
                folder.rmdir()  # fails unless it is empty
        with suppress(OSError):
            if sys.platform != "win32":
                os.close(self._handle)
        self._handle = -1

    def __enter__(self) -> Claim:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.release()


class Shared(Claim):
    """A claim that the first process of a job holds for all of them: here it is neither taken, checked nor released."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def check(self) -> None:
        """The first process does."""

    def release(self) -> None:
        """The first process does."""


def claim_together(take: Callable[[], Claim], ranks: Ranks) -> Claim:
    """Let the first process of a job claim a folder for all."""
    taken: list[Claim] = []

    def act() -> Path:
        taken.append(take())
        return taken[0].folder

    folder = ranks.once(act)
    return taken[0] if taken else Shared(folder)


def claim_numbered(folder: Path, advice: str) -> Claim:
    """Claim a new folder with this name, or with -2, -3 ... appended if it exists."""
    for number in count(1):
        path = folder if number == 1 else folder.with_name(f"{folder.name}-{number}")
        try:
            return Claim(path, advice, new=True)
        except FileExistsError:
            continue
    raise AssertionError


def refuse_claimed(folder: Path, advice: str) -> None:
    """Raise if another process is writing into a folder; changes nothing."""
    try:
        handle = os.open(folder / LOCK, os.O_RDWR | getattr(os, "O_BINARY", 0))
    except OSError:
        return
    try:
        if not _lock(handle, folder):
            raise RunFolderError(in_use(folder, advice))
    finally:
        os.close(handle)


def in_use(folder: Path, advice: str) -> str:
    """A message that says who holds a folder, if known, and what to do."""
    who = "another process"
    for _ in range(TRIES):
        try:
            owner = json.loads((folder / LOCK).read_text())
            who = f"process {owner['pid']} on {owner['host']} since {owner['since']}"
            break
        except (OSError, ValueError, KeyError, TypeError):
            time.sleep(0.01)  # the owner may have just locked it and not yet written its name
    return f"{folder} is being written to by {who}. {advice}"


def _owner() -> bytes:
    now = datetime.now().astimezone().isoformat(sep=" ", timespec="seconds")
    return json.dumps({"pid": os.getpid(), "host": socket.gethostname(), "since": now}).encode()


def _lock(handle: int, folder: Path) -> bool:
    """Whether the file could be locked; if the file system has no locks, True with a warning."""
    try:
        if sys.platform == "win32":
            import msvcrt

            os.lseek(handle, 1 << 30, os.SEEK_SET)  # beyond the content: Windows blocks reads of locked bytes
            try:
                msvcrt.locking(handle, msvcrt.LK_NBLCK, 1)
            finally:
                os.lseek(handle, 0, os.SEEK_SET)
        else:
            import fcntl

            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (BlockingIOError, PermissionError):
        return False
    except OSError as error:
        log.warning("%s cannot be locked (%s): make sure that nobody else writes into it.", folder, error)
    return True


def _forget(claim: weakref.ref[Claim]) -> None:
    """Close a child's copy of the lock; its parent still holds it."""
    mine = claim()
    if mine is not None and mine._handle >= 0:
        os.close(mine._handle)
        mine._handle = -1
