"""The ``ppolm`` command: dispatch, and errors as one line."""

from __future__ import annotations

import difflib
import logging
import os
import signal
import sys
from collections.abc import Callable, Sequence
from importlib import import_module

from ppolm import __version__
from ppolm.cli.followers import complain, quiet_unless_first
from ppolm.cli.readers import outlive_readers
from ppolm.errors import ConfigError, PpolmError
from ppolm.messages import LONGEST_MESSAGE, brief, cut, printable, reason
from ppolm.ranks.join import join_ranks, note_failure, own_number, started_processes
from ppolm.ranks.ranks import TOLD
from ppolm.storage.stop_signals import Insisting, Stopped, Stopping

COMMANDS = {
    "demo": "two minutes of PPO on the embedded tiny model, judged by a judge it was not trained on",
    "init": "a commented YAML file for a run, after a few questions",
    "train": "PPO fine-tuning: prompts in, a run folder with the best adapter out",
    "sft": "supervised fine-tuning: prompts with completions in, an adapter out",
    "reward": "reward model: prompts with a chosen and a rejected answer in, a reward adapter out",
    "data": "check data files: what was understood, lengths, duplicates, label balance, leakage between splits",
    "readiness": "whether a reward model can be trusted: measure it on judgements it was not trained on",
    "eval": "measure a trained policy beside its reference on held-out prompts",
    "generate": "sample from a trained policy or a bare model",
    "chat": "talk to a policy and its reference in the terminal",
    "feedback": "judgements of people: import, export, statistics, and judging at the terminal",
    "runs": "list runs with their state, reward, KL and verdict; or compare two or more of them",
    "tokens": "tokens of a logged step with their contexts and all columns, sorted by any of them",
    "explain": "where a token's advantage comes from, term by term, compared with the stored one",
    "export": "a trained policy for other programs: a merged model folder, an adapter, or GGUF; and the Hub if you ask",
    "report": "one HTML file with the charts, verdict, settings and token views of runs, to be mailed",
    "studio": "the pages in a browser: runs, every token, and judging",
    "examples": "copy the examples, configs and documents that come with ppolm into a folder",
    "plan": "memory, time and traffic of a PPO step on this or other hardware, and the command to run",
    "overopt": "sweep kl_coef and draw reward and judge against KL: where more reward stops being better",
}


SHARED = ("demo", "train", "sft", "reward", "readiness", "eval")
"""Commands that several processes can run together."""


def main(arguments: Sequence[str] | None = None) -> None:
    """Run one command and exit with its status."""
    argv = list(sys.argv[1:] if arguments is None else arguments)
    outlive_readers()
    status = 1
    try:
        with quiet_unless_first():
            status = run(argv)
    finally:
        if status:
            note_failure()
        sys.stdout.flush()  # here a closed pipe is handled; Python's own flush at exit would come too late
    sys.exit(status)


def run(argv: list[str]) -> int:
    """The exit status: 0 for success, 1 for a reported error, 2 for an unknown command.

    128 plus the signal number if a signal ended it: 130 for Ctrl-C, 143 for SIGTERM.
    """
    if not argv or argv[0] in ("-h", "--help", "help"):
        print(usage())
        return 0
    if argv[0] in ("-V", "--version"):
        print(f"ppolm {__version__}")
        return 0
    if argv[0] not in COMMANDS:
        near = difflib.get_close_matches(argv[0][:100], COMMANDS, n=1)
        print(
            f"error: Unknown command {brief(argv[0])}." + (f" Did you mean {near[0]!r}?" if near else ""),
            file=sys.stderr,
        )
        print(usage(), file=sys.stderr)
        return 2
    try:
        with Insisting() as signals:
            return run_command(argv, signals)
    except KeyboardInterrupt as stop:  # a signal that arrived after the command had ended
        return report_stop(argv[0], stop, signal.SIGINT)


def run_command(argv: list[str], signals: Stopping) -> int:
    """Run a known command; returns its exit status."""
    try:
        prepare_output()
        if started_processes() > 1:
            join(argv[0])
        command: Callable[[list[str]], None] = import_module(f"ppolm.cli.{argv[0]}_command").main
        command(argv[1:])
    except BaseException as error:
        if isinstance(error, KeyboardInterrupt) or signals.number is not None:  # interrupted code may raise anything
            return report_stop(argv[0], error, signals.number or signal.SIGINT)
        return report_error(error)
    return 0


def join(command: str) -> None:
    """Join the other processes before anything can go wrong on one of them, which the others would wait for."""
    if command in SHARED:
        join_ranks()
        return
    error = ConfigError(f"ppolm {command} runs in one process. Start it without torchrun or accelerate launch.")
    setattr(error, TOLD, own_number() > 0)
    raise error


def report_error(error: BaseException) -> int:
    """Print a user's error as one line and return the exit status; raise all other errors again."""
    if getattr(error, TOLD, False):  # the first process of the job prints it
        return 1
    if isinstance(error, PpolmError):
        return fail(str(error))
    if isinstance(error, BrokenPipeError):  # the reader has closed the pipe, as with `| head`
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    if isinstance(error, OSError):  # a problem with a file, disk or address, not a bug
        what = f"{error.filename}: " if error.filename else ""
        return fail(f"{what}{error.strerror or reason(error)}. Check that it exists and that you may read or write it.")
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, of a device
        said = f" ({reason(error)})" if str(error) else ""
        return fail(f"There is not enough memory{said}. `ppolm train --estimate` says what a training takes.")
    raise error


def report_stop(command: str, error: BaseException, number: int) -> int:
    """Print in one line what was saved when a signal ended the command, and return the exit status."""
    line = "stopped before anything was saved."
    if isinstance(error, Stopped):
        number = error.number
        if error.folder is not None:
            name = command if command in ("sft", "reward") else "train"
            line = f"stopped {error.done}. Resume with: ppolm {name} --resume {error.folder}"
    print(f"{signal.Signals(number).name}: {line}", file=sys.stderr)
    return 128 + number


def fail(message: str) -> int:
    """Print an error as one line, shortened and without control characters: it may quote a user's files."""
    complain(f"error: {cut(printable(' '.join(message.split()), keep=''), LONGEST_MESSAGE)}")
    return 1


class PlainFormatter(logging.Formatter):
    """Warnings shortened and without control characters, for the same reason."""

    def format(self, record: logging.LogRecord) -> str:
        """The formatted line."""
        return cut(printable(super().format(record)), LONGEST_MESSAGE)


def usage() -> str:
    """The list of commands."""
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {what}" for name, what in COMMANDS.items()]
    return "\n".join(["usage: ppolm COMMAND [--help] ...", "", *lines])


def prepare_output() -> None:
    """Warnings as plain lines; no loading bars without a terminal."""
    logging.basicConfig(level=logging.WARNING, stream=sys.stderr)
    for handler in logging.getLogger().handlers:
        if type(handler) is logging.StreamHandler:
            handler.setFormatter(PlainFormatter("warning: %(message)s"))
    logging.captureWarnings(True)  # warnings of libraries may quote whole fields of a file
    logging.getLogger("huggingface_hub").setLevel(logging.ERROR)
    os.environ.setdefault("TOKENIZERS_PARALLELISM", "false")
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")  # read at its import, which --help skips to be quick
    if not sys.stderr.isatty():
        os.environ.setdefault("HF_HUB_DISABLE_PROGRESS_BARS", "1")
