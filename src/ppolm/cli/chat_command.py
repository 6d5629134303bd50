"""``ppolm chat``."""

from __future__ import annotations

import dataclasses
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Annotated, Any, Literal

import tyro

from ppolm.cli.settings import SamplingArguments, parse
from ppolm.errors import ConfigError
from ppolm.messages import brief, printable

PROMPT, MORE = "you > ", "    > "
CHAT = "in a chat: every message goes through the chat template, after those before."
TRANSCRIPT = (
    "in a chat: the model has no chat template, so every message goes into a transcript ('Human: ... Assistant: ...'), "
    "after those before."
)
TEXT = "by continuing plain text: every message is a text of its own; /more goes on."


@dataclass(frozen=True)
class ChatArguments(SamplingArguments):
    """Talk to a policy and its reference. Both get the same messages and the same random numbers, and each remembers
    its own answers. /help lists what can be said; input may also come from a pipe."""

    run: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="RUN")]
    """Run folder (its best policy), one of its checkpoints, the folder of `ppolm sft`, or a model (no reference)."""
    chat: Literal["auto", "yes", "no"] = "auto"
    """Messages through the model's chat template, or plain text that it continues. auto: as the run was trained; of a
    bare model the template, if it has one."""
    system: str = ""
    """What a chat begins with."""
    reference: bool = True
    """Let the reference answer, too."""
    max_new_tokens: int | None = None
    """Longest answer. Default: the run's, or 256."""
    temperature: float | None = None
    """Default: the run's, or 1. 0 always takes the most likely token."""
    top_k: int | None = None
    """Default: the run's, or 50."""
    top_p: float | None = None
    """Default: the run's, or 0.95."""
    seed: int = 0
    """Seed of the answers: the same seed and messages give the same answers."""


def main(argv: list[str]) -> None:
    """Load, say who answers and how, and talk until the input ends."""
    arguments = parse(ChatArguments, "ppolm chat", argv)
    if not 0 <= arguments.seed < 2**31:
        raise ConfigError(f"seed is {brief(arguments.seed)}, expected between 0 and 2^31 - 1.")
    from ppolm.chat.partners import find_partners
    from ppolm.chat.talk import Talk, Told
    from ppolm.rollout.sampling import Sampling

    partners = find_partners(arguments.run, settings_of(arguments), argv)
    sampling = dataclasses.replace(Sampling.of(partners.config), greedy=arguments.temperature == 0)
    chats = partners.chats if arguments.chat == "auto" else arguments.chat == "yes"
    if arguments.system and not chats:
        raise ConfigError("Only a chat has a system message, and this model continues plain text. Leave --system out.")
    talk = Talk(partners, Told(sampling, arguments.seed, arguments.reference), chats, show)
    for conversation in talk.conversations.values():
        conversation.system = arguments.system
    manner = (CHAT if partners.setup.tokenizer.has_template else TRANSCRIPT) if chats else TEXT
    show(introduction(list(partners.engines), manner, bool(partners.examples)))
    try:
        with interrupts():
            for line in lines():
                talk.hear(line)
                if talk.ended:
                    break
    finally:
        partners.release()


def settings_of(arguments: ChatArguments) -> dict[str, Any]:
    """The settings that are given as flags, in place of the run's."""
    names = ("max_new_tokens", "temperature", "top_k", "top_p")
    values = {name: getattr(arguments, name) for name in names if getattr(arguments, name) is not None}
    if values.get("temperature") == 0:
        del values["temperature"]  # most likely tokens, at the run's temperature
    return arguments.given() | values


def introduction(names: list[str], manner: str, has_examples: bool) -> str:
    """Who answers, and what a message is to them."""
    who = " and ".join(f"the {name}" for name in names)
    verb = "answers" if len(names) == 1 else "answer"
    example = ", /example asks a held-out prompt" if has_examples else ""
    said = f"{who[0].upper()}{who[1:]} {verb} {manner}"
    return f"{said}\n/help lists commands{example}, Ctrl-D ends.\n"


def show(text: str) -> None:
    """Print a piece of text at once."""
    sys.stdout.write(text)
    sys.stdout.flush()


def lines() -> Iterator[str]:
    """Messages from the terminal or a pipe; a line that ends in a backslash goes on in the next one."""
    asks = sys.stdin.isatty()
    if asks:
        with suppress(ImportError):  # editing a line, where the system has it
            import readline  # noqa: F401
    parts: list[str] = []
    while True:
        line = next_line(MORE if parts else PROMPT, asks)
        if line is None:
            break
        parts.append(line.removesuffix("\\"))
        if line.endswith("\\"):
            continue
        yield "\n".join(parts)
        parts = []
    if parts:
        yield "\n".join(parts)
    if asks:
        show("\n")


def next_line(prompt: str, asks: bool) -> str | None:
    """One line; None at the end of the input. Ctrl-C takes back what was typed."""
    while True:
        try:
            line = input(prompt) + "\n" if asks else sys.stdin.readline()
            line.encode()  # in some locales bytes that are no text come as surrogates
        except EOFError:
            return None
        except KeyboardInterrupt:
            show("\n(Ctrl-D or /quit ends)\n")
            continue
        except UnicodeError:
            raise ConfigError("The input is not UTF-8 text.") from None
        if not line:
            return None
        line = line.rstrip("\r\n")
        if not asks:
            show(f"{prompt}{printable(line, keep='')}\n")
        return line


@contextmanager
def interrupts() -> Iterator[None]:
    """Ctrl-C interrupts an answer, as often as it is pressed; elsewhere it ends the whole command."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
