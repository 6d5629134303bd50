"""Prompts in, responses that carry their tokens out."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
import torch
from torch import Tensor

from ppolm.base_setup.model_setup import Models
from ppolm.errors import DataError
from ppolm.rollout.generated_text import GeneratedText
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampled, Sampling
from tests.conftest import PROMPTS
from tests.table_cases import speak_ascii
from tests.tiny_models import EOS

# ---- the generator --------------------------------------------------------------------------------------------------


def make_generator(models: Models, seed: int = 0, samples: int = 1, **sampling: Any) -> Generator:
    return Generator(models.policy, models.setup, Sampling(**({"max_new_tokens": 8} | sampling)), seed, samples)


def ids_of(texts: Sequence[GeneratedText]) -> list[list[int]]:
    return [text.token_ids for text in texts]


def test_same_seed_gives_the_same_texts_and_another_seed_does_not(models: Models) -> None:
    texts, logprobs = make_generator(models, seed=5).generate(PROMPTS)
    again, logprobs_again = make_generator(models, seed=5).generate(PROMPTS)
    assert texts == again
    assert ids_of(texts) == ids_of(again)
    assert all(torch.equal(left, right) for left, right in zip(logprobs, logprobs_again, strict=True))
    assert ids_of(make_generator(models, seed=6).generate(PROMPTS)[0]) != ids_of(texts)


def test_global_random_state_neither_matters_nor_is_touched(models: Models) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    texts, _ = make_generator(models).generate(PROMPTS[:2])
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    assert ids_of(make_generator(models).generate(PROMPTS[:2])[0]) == ids_of(texts)


def test_every_call_draws_afresh(models: Models) -> None:
    generator = make_generator(models)
    assert ids_of(generator.generate(PROMPTS)[0]) != ids_of(generator.generate(PROMPTS)[0])


def test_samples_of_a_prompt_stand_side_by_side_and_differ(models: Models) -> None:
    texts, logprobs = make_generator(models, samples=3).generate(PROMPTS[:2])
    assert [text.prompt_idx for text in texts] == [0, 0, 0, 1, 1, 1]
    assert [text.prompt.content for text in texts] == [PROMPTS[0]] * 3 + [PROMPTS[1]] * 3
    assert [text.prompt_ids for text in texts] == [models.setup.tokenizer.encode(text.prompt.content) for text in texts]
    assert len({tuple(text.token_ids) for text in texts}) == 6
    assert [len(values) for values in logprobs] == [len(text.token_ids) for text in texts]


def test_chat_messages_go_through_the_chat_template(models: Models) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}]
    [text], _ = make_generator(models).generate([{"messages": chat}])
    written = "system: Be brief.\nuser: Hello?\nassistant: "
    assert models.setup.tokenizer.decode_prompt(text.prompt_ids) == written
    assert text.prompt.content == chat
    assert make_generator(models).generate([chat])[0][0].prompt_ids == text.prompt_ids


def test_chat_messages_without_a_chat_template_are_a_transcript_and_that_is_said_once(
    models: Models, caplog: pytest.LogCaptureFixture
) -> None:
    models.setup.tokenizer.tokenizer.chat_template = None
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hello?"}]
    texts, _ = make_generator(models).generate([chat, chat])
    written = "System:\nBe brief.\n\nHuman:\nHello?\n\nAssistant:\n"
    assert models.setup.tokenizer.decode_prompt(texts[0].prompt_ids) == written
    assert texts[0].prompt.content == chat
    assert caplog.text.count("no chat template") == 1
    assert models.setup.tokenizer.answer_end(chat) == models.setup.tokenizer.tokenizer.eos_token_id


def test_prompt_that_just_fits_the_context_is_generated_and_a_longer_one_is_an_error(models: Models) -> None:
    assert models.setup.context_length == 128
    [text], _ = make_generator(models, max_new_tokens=28).generate(["x" * 100])
    assert len(text.prompt_ids) == 100
    with pytest.raises(DataError, match=r"Prompt 1 has 101 tokens; with max_new_tokens 28 .* context of 128.*'xxx"):
        make_generator(models, max_new_tokens=28).generate(["short", "x" * 101])


@pytest.mark.parametrize(
    ("prompts", "message"), [([], "empty"), ("Hello", "expected a list"), (["ok", " "], "Prompt 1 is empty")]
)
def test_bad_prompts_are_an_error(models: Models, prompts: Any, message: str) -> None:
    with pytest.raises(DataError, match=message):
        make_generator(models).generate(prompts)


class Parrot:
    """An engine that repeats each prompt and then stops."""

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, uniforms: Tensor) -> list[Sampled]:
        assert uniforms.shape == (len(prompts), sampling.max_new_tokens)
        return [Sampled([*prompt, EOS], [-0.5] * (len(prompt) + 1), ended=True) for prompt in prompts]


def test_any_engine_with_a_generate_method_will_do(models: Models) -> None:
    texts, logprobs = Generator(Parrot(), models.setup, Sampling(40)).generate(["Hi there", "Naïve café ☕"])
    assert texts == ["Hi there", "Naïve café ☕"]
    assert [len(values) for values in logprobs] == [9, len("Naïve café ☕".encode()) + 1]
    assert all(text.ended for text in texts)


def test_generated_text_is_a_plain_string_that_knows_its_tokens(models: Models) -> None:
    [text], _ = Generator(Parrot(), models.setup, Sampling(40)).generate(["Hello, you"])
    assert isinstance(text, str)
    assert text == "Hello, you"
    assert text.upper().split() == ["HELLO,", "YOU"]
    assert text.tokens == [*"Hello, you", "<eos>"]


def test_tokens_join_to_the_text_and_are_as_many_as_the_ids(models: Models) -> None:
    speak_ascii(models, eos_bonus=2.0)
    texts, _ = make_generator(models, samples=4).generate(PROMPTS)
    assert {text.ended for text in texts} == {True, False}
    for text in texts:
        assert len(text.tokens) == len(text.token_ids)
        assert "".join(text.tokens) == text + ("<eos>" if text.ended else "")


def test_there_is_a_token_text_for_each_id_even_when_bytes_make_no_character(models: Models) -> None:
    texts, _ = make_generator(models, samples=4).generate(PROMPTS)
    assert any("\ufffd" in text for text in texts)
    assert all(len(text.tokens) == len(text.token_ids) for text in texts)
