"""The policy's adapter as a series of folders that servers read: a new name for every version."""

from __future__ import annotations

import hashlib
import secrets
import shutil
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Protocol

import torch
from torch import Tensor

from ppolm.errors import EngineError
from ppolm.messages import reason

SERVED = 2
"""Versions that stay in the servers: requests may still use the one before the newest."""
KEPT = SERVED + 1
"""Versions that stay on disk: a server may read a folder again until it is told to unload it."""


class Adapter(Protocol):
    """What a version is made of."""

    def parameters(self) -> Mapping[str, Tensor]:
        """The weights by name."""

    def save(self, folder: str | Path) -> None:
        """Write them as a PEFT folder."""


class VersionFolder:
    """A new folder for the versions of one engine, and whatever had to be made above it."""

    def __init__(self, parent: str | Path, ours: bool) -> None:
        """``ours``: nobody chose ``parent``, so it goes as well once it is empty."""
        self.parent, self.ours = Path(parent).absolute(), ours
        self.path: Path | None = None
        self._made: list[Path] = []

    def make(self) -> Path:
        """The folder, made if it is not there."""
        if self.path is None:
            try:
                self.path = self._new()
                self.path.chmod(0o755)  # servers may run as somebody else
            except OSError as error:
                raise EngineError(f"engine_folder {self.parent} cannot be written: {reason(error)}.") from error
        return self.path

    def _new(self) -> Path:
        above = [self.parent, *self.parent.parents]
        for last in (False, False, True):
            self._made = [path for path in above if not path.exists()] or [self.parent][: self.ours]
            try:
                self.parent.mkdir(parents=True, exist_ok=True)
                return Path(tempfile.mkdtemp(prefix="policy-", dir=self.parent))
            except FileNotFoundError:  # another run has just removed the folder that both use, since it was empty
                if last:
                    raise
        raise AssertionError

    def remove(self) -> None:
        """Delete all versions, and the folders above that were made for them, unless they hold something else."""
        if self.path is not None:
            shutil.rmtree(self.path, ignore_errors=True)
            self.path = None
            with suppress(OSError):  # the first one that is not empty ends it
                for folder in self._made:
                    folder.rmdir()


class AdapterVersions:
    """Writes a version whenever the weights have changed.

    A name is never used again, by no run: a server that is given other weights under a known name may answer from what
    it cached for the old ones, and one that is asked for a name whose folder is gone ends itself. So it has a number,
    and a few random letters.
    """

    def __init__(self, adapter: Adapter, parent: str | Path, ours: bool = False) -> None:
        """``ours``: whether ``parent`` is a default that nobody chose."""
        self.adapter = adapter
        self.written = VersionFolder(parent, ours)
        self.written.make()
        self.kept: list[str] = []
        """Names of the versions on disk, the newest last."""
        self._digest, self._count, self._letters = "", 0, secrets.token_hex(4)

    @property
    def folder(self) -> Path:
        """Where they are."""
        return self.written.make()

    @property
    def served(self) -> list[str]:
        """The versions that servers should have, the newest last."""
        return self.kept[-SERVED:]

    def path(self, name: str) -> Path:
        """The folder of a version."""
        return self.folder / name

    def update(self) -> bool:
        """Write a new version if the weights changed since the newest; returns whether they did."""
        digest = digest_of(self.adapter.parameters())
        if digest == self._digest:
            return False
        name = f"policy-{self._count + 1:06d}-{self._letters}"
        try:
            self.adapter.save(self.path(name))
            for file in self.path(name).iterdir():  # safetensors gives its files to their owner alone
                file.chmod(0o644)
            self.path(name).chmod(0o755)
        except OSError as error:
            raise EngineError(f"The adapter cannot be written to {self.path(name)}: {reason(error)}.") from error
        self._digest, self._count = digest, self._count + 1
        self.kept.append(name)
        while len(self.kept) > KEPT:
            shutil.rmtree(self.path(self.kept.pop(0)), ignore_errors=True)
        return True

    def forget(self) -> None:
        """Start anew, with names that were not used before: the folder is gone."""
        self.kept, self._digest = [], ""


def digest_of(parameters: Mapping[str, Tensor]) -> str:
    """A digest of names and weights."""
    found = hashlib.blake2b(digest_size=16)
    for name, value in parameters.items():
        found.update(name.encode())
        found.update(value.detach().cpu().contiguous().view(torch.uint8).numpy().tobytes())
    return found.hexdigest()
