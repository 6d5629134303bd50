"""The texts of states and actions: each state is the one before with its action, and nobody decodes unasked."""

from __future__ import annotations

from dataclasses import replace
from itertools import pairwise
from typing import Any, cast

import pytest
import torch
from tokenizers import Tokenizer, decoders
from tokenizers import models as tokenizer_models
from transformers import PreTrainedTokenizerFast

from ppolm.base_setup import TokenizerSetup
from ppolm.base_setup.model_setup import setup_models
from ppolm.config import PPOConfig
from ppolm.reward_kl import add_kl_to_sa_pairs
from ppolm.rollout.generated_text import GeneratedText
from ppolm.rollout.sampling import Sampling
from ppolm.token_attribution import SAPairs
from ppolm.token_attribution.sa_pairs_io import (
    to_arrow,
)
from tests.conftest import PROMPTS, SHARED_DATA, needs_shared_data
from tests.table_cases import rollout


class Unreadable:
    """Stands where the tokenizer is; any look at it fails."""

    def __getattr__(self, name: str) -> Any:
        raise AssertionError(f"decoded although nobody looked: {name}")


# ---- text of states and actions -------------------------------------------------------------------------------------


def test_first_state_is_the_prompt_as_it_was_written(pairs: SAPairs) -> None:
    starts = [pairs[start] for start in pairs.offsets[:-1].tolist()]
    assert [row["state"] for row in starts] == [prompt for prompt in PROMPTS for _ in range(2)]


def test_next_state_is_state_plus_action(pairs: SAPairs) -> None:
    followed = [(row, after) for row, after in pairwise(pairs) if after["step"] > 0]
    assert len(followed) == len(pairs) - pairs.num_sequences
    for row, after in followed:
        assert after["state"] == row["state"] + row["action"]


def test_last_state_and_action_are_the_prompt_and_the_response(generated: tuple[SAPairs, list[GeneratedText]]) -> None:
    pairs, texts = generated
    for end, text in zip(pairs.offsets[1:].tolist(), texts, strict=True):
        last = pairs[end - 1]
        assert last["state"] + last["action"] == f"{text.prompt.content}{text}" + ("<eos>" if text.ended else "")


def test_words_keep_the_space_before_them_after_the_prompt_too() -> None:
    vocab = {"<unk>": 0, "<eos>": 1, "▁the": 2, "▁old": 3, "▁cat": 4, "s": 5}
    words = Tokenizer(tokenizer_models.WordLevel(vocab, unk_token="<unk>"))
    words.decoder = decoders.Metaspace()
    fast = PreTrainedTokenizerFast(tokenizer_object=words, unk_token="<unk>", eos_token="<eos>")
    pairs = SAPairs(
        columns={
            "prompt_idx": torch.zeros(3, dtype=torch.long),
            "step": torch.arange(3),
            "action_id": torch.tensor([3, 4, 5]),
        },
        offsets=torch.tensor([0, 3]),
        ended=torch.tensor([False]),
        prompts=[[2]],
        tokenizer=TokenizerSetup(fast, len(vocab)),
    )
    assert [pair["action"] for pair in pairs] == [" old", " cat", "s"]
    assert [pair["state"] for pair in pairs] == ["the", "the old", "the old cat"]
    assert to_arrow(pairs).column("action").to_pylist() == [" old", " cat", "s"]


@needs_shared_data
def test_next_state_is_state_plus_action_with_a_word_boundary_tokenizer() -> None:
    folder = str(SHARED_DATA / "stories260K")
    models = setup_models(PPOConfig(model_name=folder, lora_r=4, lora_alpha=8, device="cpu"))
    stories = ["Once upon a time, Lily", "The dog ran and"]
    pairs, texts = rollout(models, stories, Sampling(max_new_tokens=24, top_p=0.9), samples=2)
    for row, after in pairwise(pairs):
        if after["step"] > 0:
            assert after["state"] == row["state"] + row["action"]
    assert " " in "".join(texts)
    assert ["".join(text.tokens) for text in texts] == [str(text) for text in texts]


def test_text_is_decoded_only_when_somebody_looks(pairs: SAPairs) -> None:
    blind = replace(pairs, tokenizer=cast(TokenizerSetup, Unreadable()))
    assert [row["step"] for row in blind] == pairs.column("step").tolist()
    chosen = SAPairs.concat([add_kl_to_sa_pairs(blind).select([1]), add_kl_to_sa_pairs(blind)])
    assert chosen[0]["logprob_policy"] == pairs.per_sequence("logprob_policy")[1][0].item()
    with pytest.raises(AssertionError, match="nobody looked"):
        blind[0]["action"]
    with pytest.raises(AssertionError, match="nobody looked"):
        blind[0]["state"]


def test_without_a_tokenizer_there_is_no_text_and_no_promise_of_it(small: SAPairs) -> None:
    assert "state" not in small[0]
    assert "action" not in dict(small[0])
