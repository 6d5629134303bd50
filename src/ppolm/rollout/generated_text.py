"""A generated response: text to read, and the sampled token ids that everything is computed from."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ppolm.data.prompts import Prompt
from ppolm.rollout.sampling_base import Tokenizer


class GeneratedText(str):
    """The response as a plain string that also carries the tokens it was sampled as.

    Text alone is not enough: encoding it again may give other tokens than those the policy chose.
    """

    prompt: Prompt
    prompt_idx: int
    prompt_ids: list[int]
    token_ids: list[int]
    ended: bool
    tokenizer: Tokenizer

    def __new__(
        cls,
        tokenizer: Tokenizer,
        prompt: Prompt,
        prompt_idx: int,
        prompt_ids: list[int],
        token_ids: list[int],
        ended: bool,
    ) -> GeneratedText:
        """Decode ``token_ids`` after ``prompt_ids``, without special tokens."""
        text = super().__new__(cls, tokenizer.decode(token_ids, after=prompt_ids))
        text.tokenizer, text.prompt, text.prompt_idx = tokenizer, prompt, prompt_idx
        text.prompt_ids, text.token_ids, text.ended = prompt_ids, token_ids, ended
        return text

    @property
    def tokens(self) -> list[str]:
        """The text of each sampled token, including EOS; a per-token reward needs one number for each."""
        return token_texts(self.tokenizer, self.prompt_ids, self.token_ids)


def sample_rows(texts: Sequence[GeneratedText], rewards: Sequence[Any]) -> list[dict[str, Any]]:
    """Responses as rows of samples.jsonl; ``sequence`` is their index in the token table."""
    return [
        {"sequence": i, "prompt": text.prompt.content, "response": str(text), "reward": reward}
        for i, (text, reward) in enumerate(zip(texts, rewards, strict=True))
    ]


def token_texts(tokenizer: Tokenizer, prompt_ids: Sequence[int], token_ids: Sequence[int]) -> list[str]:
    """What each token adds to the text before it."""
    before = [prompt_ids[-1:], *([token] for token in token_ids[:-1])]
    return [
        tokenizer.decode([token], after=ids, keep_special=True) for ids, token in zip(before, token_ids, strict=True)
    ]
