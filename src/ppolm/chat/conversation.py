"""What has been said so far, as each partner remembers it, and what of it still fits the model's context."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from ppolm.errors import DataError
from ppolm.rollout.sampling_base import Tokenizer

LEAST_ROOM = 16
"""Tokens that an answer must have room for before older messages are left out."""


@dataclass
class Conversation:
    """One partner's view: the same questions, its own answers."""

    tokenizer: Tokenizer
    context: int | None
    """Longest sequence that the model reads."""
    chats: bool
    """Messages through the chat template or as a transcript; else plain text that the model continues."""
    system: str = ""
    messages: list[dict[str, Any]] = field(default_factory=list)
    text: str = ""
    """The text so far, without a chat."""
    _before: tuple[list[dict[str, Any]], str] = field(default=([], ""), init=False, repr=False)
    """Messages and text before the last question."""

    def ask(self, words: Any) -> None:
        """Add a message of the user: in a chat after the others, else as a text of its own."""
        self._before = [*self.messages], self.text
        if not self.chats:
            self.text = words
        elif isinstance(words, str):
            self.messages.append({"role": "user", "content": words})
        else:  # a whole chat, such as a prompt of the run
            self.messages = list(words)

    def more(self, words: str) -> None:
        """Go on with the text where it ended; a space goes between unless there is white space on either side."""
        self._before = [*self.messages], self.text
        joined = not words or not self.text or self.text[-1].isspace() or words[0].isspace()
        self.text += words if joined else f" {words}"

    def answered(self, words: str) -> None:
        """Add the partner's answer."""
        if self.chats:
            self.messages.append({"role": "assistant", "content": words})
        else:
            self.text += words

    def forget(self) -> None:
        """Begin anew; what the system was told stays."""
        self.messages, self.text = [], ""

    def take_back(self) -> None:
        """Forget a question that cannot be answered; what was said before it is as it was."""
        self.messages, self.text = [*self._before[0]], self._before[1]

    def prompt(self, longest: int) -> tuple[list[int], int, int]:
        """Token ids of what is to be answered, the room for the answer, and how many old messages were left out.

        Old messages go, in pairs, as soon as an answer of ``longest`` tokens would have less than a little room.
        """
        left_out = 0
        wanted = min(longest, LEAST_ROOM)
        while True:
            ids = self.tokenizer.encode(self._content())
            room = longest if self.context is None else min(longest, self.context - len(ids))
            if room >= wanted:
                return ids, room, left_out
            if len(self.messages) < 3:
                break
            gone = 2 if self.messages[1]["role"] == "assistant" else 1
            del self.messages[:gone]
            left_out += gone
        raise DataError(
            f"That has {len(ids)} tokens, and the model reads {self.context} with its answer. Write less, or /reset."
        )

    def _content(self) -> Any:
        if not self.chats:
            return self.text
        return [*([{"role": "system", "content": self.system}] if self.system else []), *self.messages]
