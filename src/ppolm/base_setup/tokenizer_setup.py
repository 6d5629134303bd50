"""The tokenizer as PPO needs it: a pad that is never EOS, prompts to ids, ids to text."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from functools import cached_property
from typing import Any

from jinja2 import TemplateError
from transformers import PreTrainedTokenizerBase

from ppolm.errors import DataError, ModelError

log = logging.getLogger(__name__)
Messages = Sequence[dict[str, Any]]
SPEAKERS = {"user": "Human", "assistant": "Assistant", "system": "System"}


class TokenizerSetup:
    """A tokenizer with ``pad_id`` (never an EOS) and all ``eos_ids`` a response may end with.

    The tokenizer itself is never changed: a token declared as its pad would vanish from decoded texts and from the
    files that are saved. Padding is done here, with ``pad_id``, never by the tokenizer.
    """

    def __init__(self, tokenizer: PreTrainedTokenizerBase, vocab_size: int, eos_ids: Sequence[int] = ()) -> None:
        self.tokenizer = tokenizer
        named = [] if tokenizer.eos_token_id is None else [tokenizer.eos_token_id]
        self.eos_ids = sorted({token for token in (*named, *eos_ids) if 0 <= token < vocab_size})
        self.pad_id = choose_pad_id(tokenizer, self.eos_ids, vocab_size)
        self._told = False

    @property
    def has_template(self) -> bool:
        """Whether the model has a chat template; without one, chats are written as a transcript."""
        return bool(self.tokenizer.chat_template)

    def encode(self, prompt: str | Messages) -> list[int]:
        """Token ids of a text prompt, or of chat messages through the model's chat template or as a transcript."""
        if isinstance(prompt, str):
            ids = list(self.tokenizer(prompt)["input_ids"])
            # Some tokenizers append EOS to every text; a prompt that has already ended cannot be continued.
            return ids[:-1] if len(ids) > 1 and ids[-1] in self.eos_ids and not self._ends_in_eos(prompt) else ids
        if not self.has_template:
            self._say_how_chats_are_written()
            return self.encode(transcript(prompt))
        try:
            text = self.tokenizer.apply_chat_template(list(prompt), add_generation_prompt=True, tokenize=False)
        except TemplateError as error:
            raise DataError(f"The model's chat template refuses a prompt: {error}. It is {prompt!r:.80}.") from error
        return self._ids(text)

    def _say_how_chats_are_written(self) -> None:
        if not self._told:
            log.warning(
                "This model has no chat template: chats are written as a transcript, 'Human: ... Assistant: ...'."
            )
        self._told = True

    def _ends_in_eos(self, prompt: str) -> bool:
        return any(prompt.endswith(self.tokenizer.convert_ids_to_tokens(token)) for token in self.eos_ids)

    def encode_answer(self, prompt: str | Messages, text: str) -> list[int]:
        """Token ids of a whole answer to a prompt, with its end token, which is not added if already there."""
        ids = self._continuing(text) if isinstance(prompt, str) else self._ids(text)
        return ids if ids and ids[-1] in self.eos_ids else [*ids, self.answer_end(prompt)]

    def _continuing(self, text: str) -> list[int]:
        """Token ids that add ``text`` to a text before it, as if it had been sampled there: what ``decode`` undoes.

        Tokenizers of the Llama 2 kind put a space before whatever they are given. An answer that begins with one would
        get two, and a model would be trained on tokens that it never samples.
        """
        whole = self._ids(text)
        if not self._puts_space_first:
            return whole
        mark = self._ids("\n")
        marked = self._ids(f"\n{text}")
        choices = [whole, self._ids(text.removeprefix(" "))]
        if marked[: len(mark)] == mark:
            choices.append(marked[len(mark) :])
        exact = (ids for ids in choices if self.decode(ids, after=mark, keep_special=True) == text)
        # None if the tokenizer changes the text, say its accents.
        return next(exact, choices[1])

    @cached_property
    def _puts_space_first(self) -> bool:
        ids = self._ids("a")
        return self.decode(ids, after=ids, keep_special=True) == " a"

    def _ids(self, text: str) -> list[int]:
        return list(self.tokenizer(text, add_special_tokens=False)["input_ids"])

    def answer_end(self, prompt: str | Messages) -> int:
        """The token that ends an answer: EOS, or what the chat template puts after the assistant's words."""
        if not isinstance(prompt, str) and self.has_template:
            words = "So be it"
            turn = [*prompt, {"role": "assistant", "content": words}]
            try:
                text = str(self.tokenizer.apply_chat_template(turn, tokenize=False)).rpartition(words)[2]
            except (TemplateError, ValueError):
                text = ""  # a template for prompts only; a prompt that it refuses is reported by ``encode``
            after = self._ids(text)
            if after and after[0] in self.eos_ids:
                return int(after[0])
        if self.tokenizer.eos_token_id is None:
            raise ModelError("The model's tokenizer has no EOS token, so no answer could end. Set one in its config.")
        return int(self.tokenizer.eos_token_id)

    def decode(self, ids: Sequence[int], after: Sequence[int] = (), keep_special: bool = False) -> str:
        """Text that ``ids`` add after the ids ``after``: spaces between words survive, whatever the tokenizer."""
        context = list(after[-1:])
        whole = self._decode([*context, *ids], keep_special)
        start = self._decode(context, keep_special) if context else ""
        return whole[len(start) :] if whole.startswith(start) else self._decode(list(ids), keep_special)

    def decode_prompt(self, ids: Sequence[int]) -> str:
        """A prompt as it was written: with its special tokens, but without the BOS that the tokenizer added."""
        has_bos = len(ids) > 1 and ids[0] == self.tokenizer.bos_token_id
        return self._decode(list(ids[1:] if has_bos else ids), keep_special=True)

    def _decode(self, ids: list[int], keep_special: bool) -> str:
        # Clean-up would change spaces, so that text and tokens disagree.
        return str(self.tokenizer.decode(ids, skip_special_tokens=not keep_special, clean_up_tokenization_spaces=False))


def transcript(messages: Messages) -> str:
    """A chat for a model without a chat template, ending where the assistant's answer begins.

    The text of every turn begins on a line of its own, so that an answer needs no space before it.
    """
    turns = [f"{SPEAKERS.get(message['role'], message['role'])}:\n{message['content']}" for message in messages]
    return "\n\n".join([*turns, "Assistant:\n"])


def choose_pad_id(tokenizer: PreTrainedTokenizerBase, eos_ids: Sequence[int], vocab_size: int) -> int:
    """The tokenizer's own pad if it is not an EOS, else another special token, else any token that is not an EOS.

    Padding is masked everywhere, so any id would give the same numbers; but not EOS, because a padded EOS cannot be
    told from a sampled one. No token is added: the embedding matrix keeps its size.
    """
    special = sorted(tokenizer.all_special_ids, key=lambda token: "pad" not in tokenizer.convert_ids_to_tokens(token))
    candidates = [tokenizer.pad_token_id, tokenizer.unk_token_id, *special, *range(vocab_size)]
    return next(token for token in candidates if token is not None and token < vocab_size and token not in eos_ids)
