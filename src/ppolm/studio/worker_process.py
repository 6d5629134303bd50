"""One model's process, seen from the page's server: started, asked, interrupted, ended; its failures as sentences."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

from ppolm.errors import ModelProcessError
from ppolm.messages import brief, cut, printable
from ppolm.studio.child_processes import end_process
from ppolm.studio.worker_lines import LARGEST_REPLY, LARGEST_REQUEST, LineError, from_line, to_line

PACKAGES = Path(__file__).resolve().parents[2]
"""The folder that holds the package ppolm."""
LAST_WORDS = 16 * 1024
"""Bytes of a process's standard error that are kept."""


@dataclass(frozen=True)
class ModelChoice:
    """Which model: a run's policy with its reference, or a reward model. The folder never comes from a request."""

    kind: Literal["policy", "reward"]
    folder: Path
    which: str = "best"
    """Of a run: best, last, or the name of a checkpoint."""

    def command(self, device: str) -> list[str]:
        """What starts its process."""
        named = ["--which", self.which] if self.kind == "policy" else []
        module = [sys.executable, "-m", "ppolm.studio.model_worker", self.kind, *named]
        return [*module, "--device", device, "--", str(self.folder.resolve())]


@dataclass(frozen=True)
class Patience:
    """Seconds to wait for a model."""

    load: float = 600.0
    job: float = 180.0
    idle: float = 300.0
    """After so many seconds without a request the model is unloaded."""


class WorkerProcess:
    """One process, one model, one request at a time."""

    def __init__(self, choice: ModelChoice, device: str, patience: Patience) -> None:
        self.choice, self.device, self.patience = choice, device, patience
        self.about: dict[str, Any] | None = None
        """What it says of its model, once that is loaded."""
        self._process: asyncio.subprocess.Process | None = None
        self._listener: asyncio.Task[None] | None = None
        self._said = bytearray()
        self._number = 0
        self._ended: str | None = None
        """Why it was ended from here."""

    @property
    def alive(self) -> bool:
        """Whether it can be asked, now or once it has loaded."""
        return self._ended is None and (self._process is None or self._process.returncode is None)

    @property
    def pid(self) -> int | None:
        """The process, while there is one."""
        return self._process.pid if self._process and self._process.returncode is None else None

    async def ask(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """The model's answer; it is loaded first, if that has not been done."""
        self._number += 1
        try:
            line = to_line({"id": self._number, "ask": dict(asked)}, LARGEST_REQUEST)
        except LineError as error:
            raise ModelProcessError(f"This cannot be asked: {error}. Shorten the texts.") from None
        if self.about is None:
            await self._within(self.patience.load, self._start(), "was not loaded")
        return await self._within(self.patience.job, self._answer(line), "had not answered")

    async def _within(self, seconds: float, work: Any, what: str) -> Any:
        try:
            return await asyncio.wait_for(work, seconds)
        except asyncio.TimeoutError:
            why = f"The model {what} after {seconds:g} seconds, so its process was ended. Ask for less, or try again."
            await self.end(why)
            raise ModelProcessError(why) from None
        except (LineError, ValueError) as error:  # ValueError: a line longer than the reader allows
            await self.end(f"The model's process said something that cannot be read ({error}), so it was ended.")
            raise ModelProcessError(str(self._ended)) from None

    async def _start(self) -> None:
        self._process = await asyncio.create_subprocess_exec(
            *self.choice.command(self.device),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            limit=LARGEST_REPLY + 1,
            # Python looks for modules in the folder it is started in, and that may be somebody's download.
            cwd=PACKAGES,
            # Nothing is fetched because of a click; and Ctrl-C in the terminal is for the server alone.
            env={**os.environ, "PYTHONSAFEPATH": "1", "HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1"},
            start_new_session=True,
        )
        self._listener = asyncio.create_task(self._listen())
        if self._ended is not None:  # cancelled while it was started
            await self.end()
            raise ModelProcessError(self._ended)
        message = from_line(await self._line())
        if "failed" in message:
            self._ended = str(message["failed"])
            await self.end()
            raise ModelProcessError(self._ended)
        self.about = dict(message["ready"])

    async def _answer(self, line: bytes) -> dict[str, Any]:
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError):  # it has ended: reading will tell how
            self._process.stdin.write(line)
            await self._process.stdin.drain()
        while True:
            message = from_line(await self._line())
            if message.get("id") != self._number:
                continue  # an answer that nobody waited for
            if "error" in message:
                raise ModelProcessError(str(message["error"]))
            return dict(message["result"])

    async def _line(self) -> bytes:
        assert self._process is not None
        assert self._process.stdout is not None
        line = await self._process.stdout.readline()
        if line.endswith(b"\n"):
            return line
        await self._process.wait()
        if self._listener is not None:
            await self._listener
        raise ModelProcessError(self._ended or self._obituary())

    async def _listen(self) -> None:
        """Keep the last of what it writes to standard error."""
        assert self._process is not None
        assert self._process.stderr is not None
        while block := await self._process.stderr.read(4096):
            self._said += block
            del self._said[:-LAST_WORDS]

    def _obituary(self) -> str:
        assert self._process is not None
        code = self._process.returncode or 0
        how = f"ended by itself with code {code}"
        if code < 0:
            names = {number.value: number.name for number in signal.Signals}
            how = f"was killed ({names.get(-code, f'signal {-code}')})"
            how += ", as happens when memory runs out" if -code == signal.SIGKILL else ""
        lines = [line for line in self._said.decode(errors="replace").splitlines() if line.strip()]
        words = f" Its last words: {cut(printable(lines[-1], keep=''), 300)}" if lines else ""
        return f"The model's process {how}. Ask again to load it anew.{words}"

    async def interrupt(self) -> None:
        """Nobody waits for the present request: stop it, and end the process if it does not listen."""
        if self.about is None:
            await self.end("The loading of the model was cancelled.")
            return
        assert self._process is not None
        assert self._process.stdin is not None
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._process.stdin.write(to_line({"cancel": self._number}, LARGEST_REQUEST))

    async def end(self, why: str | None = None) -> None:
        """End the process at once: it has nothing to save. Safe to call at any time and more than once."""
        self._ended = self._ended or why or "The model was unloaded."
        if self._process is not None:
            await end_process(self._process)

    def __repr__(self) -> str:
        return f"WorkerProcess({self.choice.kind}, {brief(str(self.choice.folder))})"
