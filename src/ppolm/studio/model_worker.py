"""A model in a process of its own: ``python -m ppolm.studio.model_worker``, started by worker_process.py.

It loads one model, answers requests from its standard input, and ends when that is closed: so it never outlives the
page's server, however that ends.
"""

from __future__ import annotations

import _thread
import argparse
import contextlib
import logging
import os
import queue
import signal
import sys
import threading
import traceback
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Any, BinaryIO

from ppolm.errors import PpolmError
from ppolm.messages import LONGEST_MESSAGE, brief, cut, reason
from ppolm.studio.worker_lines import LARGEST_REPLY, LARGEST_REQUEST, LineError, from_line, to_line

if TYPE_CHECKING:
    from ppolm.studio.model_jobs import Jobs

GIVES_WAY = "500"
"""Added to the kernel's choice of what to kill when memory is short: this process before the server and trainings."""


class Cancelled(KeyboardInterrupt):
    """Nobody waits for the answer any more. A KeyboardInterrupt, so that whatever lets those through does so here."""


class Requests:
    """Requests in their order. A thread reads them, so that a cancellation is heard while the model computes."""

    def __init__(self, source: BinaryIO, gone: Callable[[], None]) -> None:
        self._source, self._gone = source, gone
        self._waiting: queue.Queue[dict[str, Any]] = queue.Queue()
        self._lock = threading.Lock()
        self._running: int | None = None
        self._cancelled: set[int] = set()

    def listen(self) -> None:
        """Begin to read; to be called in the main thread, which is the one that can be interrupted."""
        signal.signal(signal.SIGINT, self._interrupted)
        threading.Thread(target=self._read, name="requests", daemon=True).start()

    def _read(self) -> None:
        try:
            while line := self._source.readline(LARGEST_REQUEST + 1):
                if not line.endswith(b"\n"):
                    break  # cut off, or longer than agreed: what follows could mean anything
                message = from_line(line)
                if "cancel" in message:
                    self._cancel(message["cancel"])
                else:
                    self._waiting.put(message)
        except (OSError, LineError) as error:
            print(f"requests end: {error}", file=sys.stderr)
        self._gone()

    def _cancel(self, number: Any) -> None:
        with self._lock:
            self._cancelled.add(number)
            if self._running == number:
                _thread.interrupt_main()

    def _interrupted(self, number: int, frame: FrameType | None) -> None:  # noqa: ARG002
        if self._running is not None and self._running in self._cancelled:
            raise Cancelled

    def next(self) -> dict[str, Any]:
        """The next request that somebody still waits for."""
        while True:
            message = self._waiting.get()
            if message.get("id") not in self._cancelled:
                return message

    def run(self, number: int, job: Callable[[], dict[str, Any]]) -> dict[str, Any]:
        """Do a job that may be interrupted by its cancellation, and only by that."""
        with self._lock:
            self._running = number
        try:
            if number in self._cancelled:  # between being taken from the queue and being begun
                raise Cancelled
            return job()
        finally:
            self._running = None


def reply_to(request: dict[str, Any], requests: Requests, jobs: Jobs) -> dict[str, Any]:
    """Do what is asked, and say in a sentence why not, if not."""
    number, asked = request.get("id"), request.get("ask")
    if not isinstance(number, int) or not isinstance(asked, dict):
        return {"id": number if isinstance(number, int) else None, "error": f"{brief(request)} asks for nothing."}
    try:
        try:
            result = requests.run(number, lambda: jobs.run(asked))
        except Cancelled:
            raise
        except PpolmError as error:
            return {"id": number, "error": cut(str(error), LONGEST_MESSAGE)}
        except Exception as error:
            traceback.print_exc()
            return {"id": number, "error": failure(error)}
    except Cancelled:
        return {"id": number, "error": "It was cancelled."}
    return {"id": number, "result": result}


def failure(error: Exception) -> str:
    """A sentence about what a library raised."""
    said = reason(error)
    if isinstance(error, MemoryError) or "out of memory" in said.lower() or "allocate memory" in said.lower():
        return f"There is not enough memory for this: {said}. Ask for less at once, or end other programs."
    return f"The model failed: {type(error).__name__}: {said}."


def replies_stream() -> BinaryIO:
    """What was standard output; whatever libraries print goes to standard error from now on."""
    sys.stdout.flush()
    stream = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)
    return stream


def give_way() -> None:
    """When memory is short this process goes first: a model can be loaded again, a training cannot be had again."""
    with contextlib.suppress(OSError):  # not Linux
        Path("/proc/self/oom_score_adj").write_text(GIVES_WAY, encoding="ascii")


def load(arguments: argparse.Namespace) -> Jobs | str:
    """The model, or a sentence about why it cannot be loaded."""
    try:
        from ppolm.studio.model_jobs import load_jobs

        return load_jobs(arguments.kind, arguments.folder, arguments.which, arguments.device)
    except PpolmError as error:
        return cut(str(error), LONGEST_MESSAGE)
    except Exception as error:
        traceback.print_exc()
        return failure(error)


def main(argv: Sequence[str] | None = None) -> int:
    """Load, then answer until nobody asks any more."""
    parser = argparse.ArgumentParser(prog="python -m ppolm.studio.model_worker", description=__doc__)
    parser.add_argument("kind", choices=["policy", "reward"])
    parser.add_argument("folder", type=Path, help="a run, or a reward model")
    parser.add_argument("--which", default="best", help="of a run: best, last, or the name of a checkpoint")
    parser.add_argument("--device", default="auto")
    arguments = parser.parse_args(argv)
    logging.basicConfig(level=logging.WARNING, format="%(message)s", stream=sys.stderr)
    give_way()
    replies = replies_stream()
    # Not sys.exit: that would wait for the main thread, which may compute for minutes.
    requests = Requests(sys.stdin.buffer, gone=lambda: os._exit(0))
    requests.listen()
    jobs = load(arguments)
    if isinstance(jobs, str):
        send(replies, {"failed": jobs})
        return 1
    send(replies, {"ready": jobs.about()})
    while True:
        send(replies, reply_to(requests.next(), requests, jobs))


def send(stream: BinaryIO, reply: dict[str, Any]) -> None:
    """Write a reply at once."""
    try:
        line = to_line(reply, LARGEST_REPLY)
    except LineError as error:
        line = to_line({"id": reply.get("id"), "error": f"The answer cannot be sent: {error}."}, LARGEST_REPLY)
    stream.write(line)
    stream.flush()


if __name__ == "__main__":
    code = main()
    sys.stderr.flush()
    os._exit(code)  # the thread that reads requests cannot be ended in any other way
