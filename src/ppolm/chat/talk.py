"""The conversation at the terminal: lines in, answers out as they are sampled, commands that begin with a slash."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from ppolm.chat.conversation import Conversation
from ppolm.chat.partners import REFERENCE, Partners, draws
from ppolm.errors import ConfigError, PpolmError
from ppolm.messages import brief, printable
from ppolm.rollout.sampling import Sampling

HALF = "\ufffd"
"""What a tokenizer makes of half a character."""
HELP = """\
/help                what can be said here
/example [NUMBER]    ask one of the run's held-out prompts
/more [TEXT]         go on with the text where it ended; a space goes before TEXT if there is none (plain text only)
/reset               forget what was said so far
/reference on|off    whether the reference answers, too
/system TEXT         what a chat begins with; without TEXT it is removed; either way the conversation begins anew
/temperature 0.7     how freely tokens are drawn; 0 always takes the most likely one
/tokens 64           longest answer
/seed 1              other random numbers; the same seed gives the same answers
/quit                end (Ctrl-D does, too; Ctrl-C interrupts an answer)
A line that ends in a backslash goes on in the next one. // begins a message with a slash."""


@dataclass(frozen=True)
class Told:
    """Settings of the conversation that a command can change."""

    sampling: Sampling
    seed: int
    asks_reference: bool = True


class Talk:
    """One conversation with everybody who answers."""

    def __init__(self, partners: Partners, told: Told, chats: bool, write: Callable[[str], None]) -> None:
        """``write`` shows a piece of text at once."""
        self.partners, self.told, self.write = partners, told, write
        context, tokenizer = partners.setup.context_length, partners.setup.tokenizer
        self.conversations = {name: Conversation(tokenizer, context, chats) for name in partners.engines}
        self.chats, self.turn, self.example = chats, 0, 0
        self.ended = False
        """Whether the user has said /quit."""
        self.width = max(map(len, partners.engines))

    def hear(self, line: str) -> None:
        """Answer a message or obey a command; whatever is wrong is said, and the conversation goes on."""
        try:
            if line.startswith("/") and not line.startswith("//"):
                name, _, words = line[1:].partition(" ")
                self._obey(name, words)
            elif line.strip():
                words = line[1:] if line.startswith("//") else line
                self._answer(lambda conversation: conversation.ask(words))
        except PpolmError as error:
            self.write(f"{printable(str(error))}\n")
        except KeyboardInterrupt:  # before the first token, or between two answers
            self.write("(interrupted)\n")

    def _obey(self, name: str, words: str) -> None:
        obeyed: dict[str, Callable[[str], None]] = {
            "help": lambda _: self.write(HELP + "\n"),
            "example": self._ask_example,
            "more": self._more,
            "reset": self._reset,
            "reference": self._reference,
            "system": self._system,
            "temperature": self._temperature,
            "tokens": self._tokens,
            "seed": self._seed,
        }
        if name in ("quit", "exit"):
            self.ended = True
            return
        if name not in obeyed:
            raise ConfigError(f"There is no command /{brief(name)[1:-1]}. /help lists them; // begins with a slash.")
        obeyed[name](words.strip() if name != "more" else words)

    def _ask_example(self, words: str) -> None:
        examples = self.partners.examples
        if not examples:
            raise ConfigError("There are no held-out prompts: this is not a run, or it held none out.")
        number = self.example + 1 if not words else whole_number(words, "/example", 1, len(examples))
        self.example = number % len(examples)
        content = examples[number - 1]
        asked = content if isinstance(content, str) else "\n".join(str(turn.get("content", "")) for turn in content)
        self.write(f"{printable(asked)}\n")
        self._answer(lambda conversation: conversation.ask(content if self.chats else asked))

    def _more(self, words: str) -> None:
        if self.chats:
            raise ConfigError("In a chat there is no text to go on with: write a message.")
        if not any(conversation.text for conversation in self.conversations.values()):
            raise ConfigError("There is no text yet. Write one.")
        self._answer(lambda conversation: conversation.more(words))

    def _reset(self, _: str) -> None:
        self._begin_anew("Forgotten.")

    def _begin_anew(self, why: str) -> None:
        for conversation in self.conversations.values():
            conversation.forget()
        self.turn = 0
        self.write(f"{why} The conversation begins anew.\n")

    def _reference(self, words: str) -> None:
        if REFERENCE not in self.conversations:
            raise ConfigError("There is no reference: this is a model, not a run.")
        if words not in ("on", "off"):
            raise ConfigError("Say /reference on or /reference off.")
        before, on = self.told.asks_reference, words == "on"
        self.told = dataclasses.replace(self.told, asks_reference=on)
        if on and not before:  # it has not heard what was said meanwhile
            self._begin_anew("The reference is on.")
        else:
            self.write(f"The reference is {words}.\n")

    def _system(self, words: str) -> None:
        if not self.chats:
            raise ConfigError("Only a chat has a system message, and this model continues plain text.")
        if not words and not any(conversation.system for conversation in self.conversations.values()):
            raise ConfigError("There is no system message to remove. /system TEXT sets one.")
        for conversation in self.conversations.values():
            conversation.system = words
        self._begin_anew("The system message is set." if words else "The system message is removed.")

    def _temperature(self, words: str) -> None:
        value = number(words, "/temperature")
        sampling = dataclasses.replace(self.told.sampling, greedy=value == 0, temperature=value or 1.0)
        self.told = dataclasses.replace(self.told, sampling=sampling)
        self.write("The most likely token, always.\n" if value == 0 else f"Temperature {value:g}.\n")

    def _tokens(self, words: str) -> None:
        sampling = dataclasses.replace(self.told.sampling, max_new_tokens=whole_number(words, "/tokens", 1, 100_000))
        self.told = dataclasses.replace(self.told, sampling=sampling)
        self.write(f"Answers of up to {sampling.max_new_tokens} tokens.\n")

    def _seed(self, words: str) -> None:
        self.told = dataclasses.replace(self.told, seed=whole_number(words, "/seed", 0, 2**31 - 1))
        self._begin_anew(f"Seed {self.told.seed}.")

    def _answer(self, ask: Callable[[Conversation], None]) -> None:
        """Let everybody answer, one after the other, with the same random numbers."""
        self.turn += 1
        for name, conversation in self.conversations.items():
            if name != REFERENCE or self.told.asks_reference:
                ask(conversation)
                try:
                    self._speak(name, conversation)
                except (PpolmError, KeyboardInterrupt):
                    conversation.take_back()
                    raise

    def _speak(self, name: str, conversation: Conversation) -> None:
        """One partner's answer, shown as it is sampled; Ctrl-C ends it, and what was said until then counts."""
        ids, room, left_out = conversation.prompt(self.told.sampling.max_new_tokens)
        if left_out:
            count = f"the {left_out} oldest messages" if left_out > 1 else "the oldest message"
            self.write(f"({name}: {count} no longer fit the context of {conversation.context} tokens)\n")
        self.write(f"{name:<{self.width}} > ")
        sampling = dataclasses.replace(self.told.sampling, max_new_tokens=room)
        uniforms = draws(self.told.seed, self.turn, self.told.sampling.max_new_tokens)[:room]
        said: list[int] = []
        end = f" (cut off after {room} tokens)"
        tokens = self.partners.answer(name, ids, sampling, uniforms)
        try:
            for piece in self._pieces(ids, tokens, said):
                self.write(printable(piece))
            if said and said[-1] in self.partners.setup.tokenizer.eos_ids:
                end = ""
        except KeyboardInterrupt:
            end = " (interrupted)"
        except PpolmError:
            self.write("\n")  # what went wrong is said on a line of its own
            raise
        finally:
            getattr(tokens, "close", lambda: None)()
        self.write(f"{end}\n")
        conversation.answered(self.partners.setup.tokenizer.decode(said, after=ids))

    def _pieces(self, ids: list[int], tokens: Iterator[int], said: list[int]) -> Iterator[str]:
        """What each token adds to the text; half a character waits for its other half. Fills ``said``."""
        shown = ""
        for token in tokens:
            said.append(token)
            text = self.partners.setup.tokenizer.decode(said, after=ids)
            if text.startswith(shown) and not text.endswith(HALF):
                yield text[len(shown) :] if shown else text.lstrip()
                shown = text
        whole = self.partners.setup.tokenizer.decode(said, after=ids)
        if whole.startswith(shown):
            yield whole[len(shown) :]


def number(words: str, command: str) -> float:
    """A number from 0 to 100 after a command."""
    try:
        value = float(words)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise ConfigError(f"{command} needs a number from 0 to 100, such as {command} 0.7.")
    return value


def whole_number(words: str, command: str, least: int, most: int) -> int:
    """A whole number after a command."""
    if not words.isascii() or not words.isdigit() or not least <= int(words[:12]) <= most:
        raise ConfigError(f"{command} needs a whole number from {least} to {most}.")
    return int(words)
