"""Sampling: the distribution drawn from, the log-probability reported, and the engine around them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.config import PPOConfig
from ppolm.rollout.kv_sampler import left_pad
from ppolm.rollout.sampling import Sampled, Sampling, choose_tokens
from tests.closeness import near
from tests.conftest import PROMPTS
from tests.table_cases import bias_logits
from tests.tiny_models import ARCHITECTURES, EOS, make_model_folder

GRID = 20_000
LOGITS = torch.tensor([0.3, -1.2, 2.0, 0.9, -3.0, 1.4, 0.0, -0.4])


# ---- the distribution -----------------------------------------------------------------------------------------------


def truncated(logits: Tensor, temperature: float, top_k: int, top_p: float) -> np.ndarray[Any, Any]:
    """The probabilities left by top-k, and then by top-p among those; one token at a time."""
    scaled = logits.double().numpy() / temperature
    order = np.argsort(-scaled)
    kept = list(order[: top_k or len(order)])
    weights = np.exp(scaled - scaled.max())
    weights[[i for i in range(len(scaled)) if i not in kept]] = 0.0
    probabilities = weights / weights.sum()
    before = 0.0
    result = np.zeros(len(scaled))
    for token in kept:
        if before < top_p:
            result[token] = probabilities[token]
        before += probabilities[token]
    return result / result.sum()


def frequencies(logits: Tensor, sampling: Sampling) -> np.ndarray[Any, Any]:
    """How often each token is drawn when the uniform numbers are a fine grid: the distribution itself, up to 1/GRID."""
    uniforms = (torch.arange(GRID, dtype=torch.float64) + 0.5) / GRID
    tokens, _ = choose_tokens(logits.expand(GRID, -1), uniforms, sampling)
    return np.bincount(tokens.numpy(), minlength=len(logits)) / GRID


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize(
    ("top_k", "top_p"), [(0, 1.0), (3, 1.0), (1, 1.0), (0, 0.8), (0, 0.05), (5, 0.7), (50, 0.9), (8, 1.0)]
)
def test_tokens_are_drawn_as_often_as_the_truncated_softmax_says(temperature: float, top_k: int, top_p: float) -> None:
    drawn = frequencies(LOGITS, Sampling(1, temperature, top_k, top_p))
    expected = truncated(LOGITS, temperature, top_k, top_p)
    np.testing.assert_allclose(drawn, expected, atol=2 / GRID)
    assert set(np.flatnonzero(drawn)) <= set(np.flatnonzero(expected)), "a token outside top-k or top-p was drawn"


@given(
    numbers=st.lists(st.floats(-20, 20), min_size=2, max_size=30),
    top_k=st.integers(0, 32),
    top_p=st.floats(0.01, 1.0),
    temperature=st.floats(0.1, 3.0),
)
@settings(max_examples=60, deadline=None)
def test_no_token_outside_top_k_and_top_p_is_ever_drawn(
    numbers: list[float], top_k: int, top_p: float, temperature: float
) -> None:
    logits = torch.tensor(numbers)
    uniforms = torch.tensor([0.0, 1e-12, 0.25, 0.5, 0.75, 1 - 2**-53], dtype=torch.float64)
    tokens, _ = choose_tokens(logits.expand(len(uniforms), -1), uniforms, Sampling(1, temperature, top_k, top_p))
    probabilities = torch.softmax(logits.double() / temperature, -1)
    drawn = probabilities[tokens]
    if top_k:
        # With ties any of the equal tokens may fill the last places.
        assert bool((drawn >= probabilities.sort(descending=True).values[min(top_k, len(numbers)) - 1] - 1e-6).all())
    above = torch.stack([probabilities[probabilities > p * (1 + 1e-4)].sum() for p in drawn])
    assert bool((above < top_p + 1e-5).all()), "more likely tokens had already reached top_p"


def test_top_p_keeps_the_token_that_crosses_the_line() -> None:
    logits = torch.tensor([0.5, 0.3, 0.15, 0.05]).log()
    # 0.5 is below 0.6 and 0.5 + 0.3 is above it: the second token crosses, and stays.
    np.testing.assert_allclose(frequencies(logits, Sampling(1, top_p=0.6)), [0.625, 0.375, 0, 0], atol=2 / GRID)
    # The most likely token stays even if it alone is more than top_p.
    np.testing.assert_allclose(frequencies(logits, Sampling(1, top_p=0.1)), [1, 0, 0, 0], atol=0)


def test_top_p_is_measured_among_the_top_k() -> None:
    logits = torch.tensor([0.4, 0.3, 0.2, 0.1]).log()
    # Among the top 2, the first has 4/7 > 0.5 and stays alone; among all it would have 0.4 and the second would join.
    np.testing.assert_allclose(frequencies(logits, Sampling(1, top_k=2, top_p=0.5)), [1, 0, 0, 0], atol=0)
    np.testing.assert_allclose(frequencies(logits, Sampling(1, top_p=0.5)), [4 / 7, 3 / 7, 0, 0], atol=2 / GRID)


# The largest uniform number is 1 - 2⁻⁵³, which a device without float64 rounds to 1.
@pytest.mark.parametrize("uniform", [0.0, 0.5, 1 - 2**-53, 1.0])
@pytest.mark.parametrize("sampling", [Sampling(1), Sampling(1, top_k=6), Sampling(1, top_p=0.999)])
def test_impossible_tokens_are_not_drawn_at_the_ends_of_the_interval(uniform: float, sampling: Sampling) -> None:
    logits = torch.full((1, 8), -torch.inf)
    logits[0, 3:5] = 0.0
    tokens, logprobs = choose_tokens(logits, torch.tensor([uniform], dtype=torch.float64), sampling)
    assert tokens.item() in (3, 4)
    assert logprobs.item() == pytest.approx(np.log(0.5))


@pytest.mark.parametrize("sampling", [Sampling(1, 0.7), Sampling(1, 0.7, top_k=2), Sampling(1, 0.7, top_p=0.5)])
def test_logprob_is_under_the_full_temperature_scaled_softmax(sampling: Sampling) -> None:
    uniforms = torch.linspace(0, 0.999, 50, dtype=torch.float64)
    tokens, logprobs = choose_tokens(LOGITS.expand(50, -1), uniforms, sampling)
    expected = torch.log_softmax(LOGITS.double() / 0.7, dim=-1)[tokens]
    torch.testing.assert_close(logprobs.double(), expected, rtol=1e-5, atol=1e-6)


def test_logprobs_of_half_precision_logits_are_computed_in_full_precision() -> None:
    logits = (LOGITS * 3).bfloat16()
    tokens, logprobs = choose_tokens(logits[None], torch.tensor([0.4]), Sampling(1))
    assert logprobs.dtype == torch.float32
    assert logprobs.item() == pytest.approx(float(torch.log_softmax(logits.double(), -1)[tokens]), abs=1e-6)


def test_greedy_takes_the_most_likely_token_whatever_the_random_number() -> None:
    logits = torch.stack([LOGITS, LOGITS.flip(0), -LOGITS])
    for uniform in (0.0, 0.3, 0.999):
        tokens, logprobs = choose_tokens(logits, torch.full((3,), uniform), Sampling(1, 0.8, 2, 0.1, greedy=True))
        assert tokens.tolist() == [2, 5, 4]
        torch.testing.assert_close(logprobs, torch.log_softmax(logits / 0.8, -1).max(-1).values)


def test_each_row_is_drawn_by_its_own_number_and_logits() -> None:
    logits = torch.stack([LOGITS, LOGITS.flip(0), LOGITS * 2])
    uniforms = torch.tensor([0.2, 0.9, 0.5], dtype=torch.float64)
    together, _ = choose_tokens(logits, uniforms, Sampling(1, top_p=0.95))
    alone = [choose_tokens(logits[i : i + 1], uniforms[i : i + 1], Sampling(1, top_p=0.95))[0].item() for i in range(3)]
    assert together.tolist() == alone


def test_sampling_of_a_configuration_takes_over_every_setting(make_config: Callable[..., PPOConfig]) -> None:
    config = make_config(max_new_tokens=7, temperature=0.9, top_k=11, top_p=0.8, rollout_tokens=77)
    assert Sampling.of(config) == Sampling(7, 0.9, 11, 0.8, greedy=False, batch_tokens=77)


# ---- the engine -----------------------------------------------------------------------------------------------------


def perturb_policy(models: Models) -> None:
    random = torch.Generator().manual_seed(7)
    with torch.no_grad():
        for parameter in models.policy.parameters().values():
            parameter.add_(torch.randn(parameter.shape, generator=random) * 0.3)


def encode(models: Models, prompts: Sequence[str]) -> list[list[int]]:
    return [models.setup.tokenizer.encode(prompt) for prompt in prompts]


def uniforms_for(count: int, steps: int, seed: int = 0) -> Tensor:
    return torch.rand(count, steps, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@torch.no_grad()
def slow_logits(models: Models, ids: list[int]) -> Tensor:
    """Logits after ``ids`` in float64: the whole sequence through the whole model, alone, no cache, no padding."""
    with models.policy.active():
        return models.setup.causal_lm(input_ids=torch.tensor([ids]), use_cache=False).logits[0, -1].double()


def slow_response(
    models: Models, prompt: list[int], temperature: float, uniforms: list[float]
) -> tuple[list[int], list[float]]:
    tokens: list[int] = []
    logprobs: list[float] = []
    for uniform in uniforms:
        logprob = torch.log_softmax(slow_logits(models, [*prompt, *tokens]) / temperature, -1)
        tokens.append(int((logprob.exp().cumsum(0) <= uniform).sum()))
        logprobs.append(float(logprob[tokens[-1]]))
        if tokens[-1] == EOS:
            break
    return tokens, logprobs


def test_cached_batched_sampling_equals_the_slow_loop_token_by_token(models: Models) -> None:
    perturb_policy(models)
    bias_logits(models, {EOS: 2.0})
    prompts, uniforms = encode(models, PROMPTS), uniforms_for(len(PROMPTS), 16)
    models.adapters.activate(models.sft.adapter)  # the engine has to switch to the policy by itself
    responses = models.policy.generate(prompts, Sampling(16, temperature=0.8), uniforms)
    for prompt, response, row in zip(prompts, responses, uniforms.tolist(), strict=True):
        tokens, logprobs = slow_response(models, prompt, 0.8, row)
        assert response.token_ids == tokens
        assert response.logprobs == near(logprobs)
        assert response.ended == (tokens[-1] == EOS)
    assert {response.ended for response in responses} == {True, False}


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_every_architecture_samples_with_cache_and_padding_as_without(architecture: str, tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path, architecture, scale=3.0)
    models = setup_models(PPOConfig(model_name=str(folder), lora_r=4, lora_alpha=8, device="cpu"))
    perturb_policy(models)
    prompts, uniforms = encode(models, ["Hi", "A much longer prompt than the other", "Middle one"]), uniforms_for(3, 5)
    for prompt, response, row in zip(
        prompts, models.policy.generate(prompts, Sampling(5), uniforms), uniforms.tolist(), strict=True
    ):
        for step, (token, logprob) in enumerate(zip(response.token_ids, response.logprobs, strict=True)):
            expected = torch.log_softmax(slow_logits(models, [*prompt, *response.token_ids[:step]]), -1)
            assert logprob == near(float(expected[token]))
            cumulative = [0.0, *expected.exp().cumsum(0).tolist()]
            assert cumulative[token] - 1e-4 < row[step] < cumulative[token + 1] + 1e-4


@pytest.mark.parametrize("batch_tokens", [1, 50, 120])
def test_responses_do_not_depend_on_how_prompts_are_grouped(models: Models, batch_tokens: int) -> None:
    bias_logits(models, {EOS: 2.0})
    prompts, uniforms = encode(models, PROMPTS), uniforms_for(len(PROMPTS), 10)
    whole = models.policy.generate(prompts, Sampling(10, batch_tokens=10**6), uniforms)
    grouped = models.policy.generate(prompts, Sampling(10, batch_tokens=batch_tokens), uniforms)
    assert [response.token_ids for response in grouped] == [response.token_ids for response in whole]
    assert [response.ended for response in grouped] == [response.ended for response in whole]
    for left, right in zip(grouped, whole, strict=True):
        assert left.logprobs == near(right.logprobs)


def test_responses_do_not_depend_on_batch_mates(models: Models) -> None:
    prompts, uniforms = encode(models, PROMPTS), uniforms_for(len(PROMPTS), 8)
    whole = models.policy.generate(prompts, Sampling(8), uniforms)
    for chosen in ([0], [5, 2], [3, 1, 0]):
        some = models.policy.generate([prompts[i] for i in chosen], Sampling(8), uniforms[chosen])
        assert [response.token_ids for response in some] == [whole[i].token_ids for i in chosen]


def test_greedy_generation_follows_the_most_likely_token(models: Models) -> None:
    prompts = encode(models, PROMPTS[:2])
    responses = models.policy.generate(prompts, Sampling(5, greedy=True), uniforms_for(2, 5))
    for prompt, response in zip(prompts, responses, strict=True):
        for step, token in enumerate(response.token_ids):
            logits = slow_logits(models, [*prompt, *response.token_ids[:step]])
            assert float(logits[token]) == near(float(logits.max()))


def test_response_is_cut_after_its_first_eos(models: Models) -> None:
    bias_logits(models, {EOS: 3.5})
    prompts = encode(models, PROMPTS * 4)
    responses = models.policy.generate(prompts, Sampling(12), uniforms_for(len(prompts), 12))
    lengths = {len(response.token_ids) for response in responses if response.ended}
    assert len(lengths) > 2, "responses must end at different places for this test to mean anything"
    for response in responses:
        assert len(response.logprobs) == len(response.token_ids)
        assert EOS not in response.token_ids[:-1]
        assert response.ended == (response.token_ids[-1] == EOS)
        assert response.ended or len(response.token_ids) == 12


def test_eos_at_the_last_possible_place_counts_as_ended(models: Models) -> None:
    bias_logits(models, {EOS: 100.0})
    [response] = models.policy.generate(encode(models, ["Hi"]), Sampling(1), uniforms_for(1, 1))
    assert response == Sampled([EOS], response.logprobs, ended=True)


def test_every_eos_token_of_the_model_ends_a_response(models: Models) -> None:
    other = models.setup.tokenizer.encode("~")[0]
    models.setup.tokenizer.eos_ids = [EOS, other]
    bias_logits(models, {other: 100.0})
    [response] = models.policy.generate(encode(models, ["Hi"]), Sampling(9), uniforms_for(1, 9))
    assert response.token_ids == [other]
    assert response.ended


def test_generation_stops_once_all_responses_have_ended(models: Models) -> None:
    bias_logits(models, {EOS: 100.0})
    models.policy.generate(encode(models, PROMPTS), Sampling(1), uniforms_for(len(PROMPTS), 1))  # warm-up
    calls: list[int] = []
    models.setup.causal_lm.get_output_embeddings().register_forward_hook(lambda *_: calls.append(1))
    models.policy.generate(encode(models, PROMPTS), Sampling(50), uniforms_for(len(PROMPTS), 50))
    assert len(calls) == 1


def test_prompts_are_padded_on_the_left_and_masked() -> None:
    ids, mask = left_pad([[5, 6, 7], [8]], pad_id=0, device=torch.device("cpu"))
    assert ids.tolist() == [[5, 6, 7], [0, 0, 8]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]
