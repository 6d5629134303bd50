"""Prompts and answers as token ids: an answer ends with the model's end token, in text and in chat."""

from __future__ import annotations

import pytest
from transformers import AutoTokenizer

from ppolm.base_setup.tokenizer_setup import TokenizerSetup
from ppolm.data.prompts import Prompt
from ppolm.errors import ModelError
from ppolm.supervised.tokens import encode_answers
from tests.conftest import SHARED_DATA, needs_shared_data
from tests.tiny_models import EOS, make_tokenizer

CHAT = [{"role": "user", "content": "Hello"}]


def test_a_text_answer_follows_the_prompt_and_ends_in_eos() -> None:
    tokenizer = TokenizerSetup(make_tokenizer(), vocab_size=259)
    encoded = encode_answers(tokenizer, Prompt("Say yes:"), [" yes", " no"])
    assert encoded.prompt.tolist() == tokenizer.encode("Say yes:")
    assert [tokenizer.decode(answer.tolist(), keep_special=True) for answer in encoded.answers] == [
        " yes<eos>",
        " no<eos>",
    ]


def test_a_chat_answer_ends_with_the_token_that_the_template_puts_after_a_turn() -> None:
    fast = make_tokenizer()
    fast.add_special_tokens({"additional_special_tokens": ["<end>"]})
    fast.chat_template = (
        "{% for message in messages %}{{ message['role'] }}: {{ message['content'] }}<end>\n{% endfor %}"
        "{% if add_generation_prompt %}assistant: {% endif %}"
    )
    end = fast.convert_tokens_to_ids("<end>")
    knows = TokenizerSetup(fast, vocab_size=len(fast), eos_ids=[end])
    assert encode_answers(knows, Prompt(CHAT), ["Hi"]).answers[0].tolist()[-1] == end
    assert encode_answers(knows, Prompt("Hello"), ["Hi"]).answers[0].tolist()[-1] == EOS
    unaware = TokenizerSetup(fast, vocab_size=len(fast))  # a model that does not stop at <end> must not learn to
    assert encode_answers(unaware, Prompt(CHAT), ["Hi"]).answers[0].tolist()[-1] == EOS


def test_a_tokenizer_without_eos_is_refused() -> None:
    fast = make_tokenizer()
    fast.eos_token = None
    with pytest.raises(ModelError, match="no EOS token, so no answer could end"):
        encode_answers(TokenizerSetup(fast, vocab_size=259), Prompt("Say yes:"), [" yes"])


@needs_shared_data
def test_a_real_chat_template() -> None:
    tokenizer = TokenizerSetup(AutoTokenizer.from_pretrained(str(SHARED_DATA / "qwen3_tokenizer")), 151_936)
    encoded = encode_answers(tokenizer, Prompt(CHAT), ["Hi there"])
    whole = [*encoded.prompt.tolist(), *encoded.answers[0].tolist()]
    assert tokenizer.tokenizer.decode(whole) == (
        "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi there<|im_end|>"
    )
