"""The slot sampler draws what the plain one draws, however prompts enter, wait and leave."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.base_setup import BaseModelSetup
from ppolm.base_setup.model_setup import setup_models
from ppolm.config import PPOConfig, SFTConfig
from ppolm.errors import ModelError
from ppolm.rollout import sampler_check, slot_sampler
from ppolm.rollout.kv_sampler import sample_sequences
from ppolm.rollout.sampler_check import sampler_refusal
from ppolm.rollout.samplers import sample
from ppolm.rollout.sampling import Sampled, Sampling
from ppolm.rollout.slot_cache import SlotCache
from ppolm.rollout.slot_sampler import SlotSampler
from ppolm.rollout.whole_sampler import sample_whole
from tests.closeness import near
from tests.tiny_models import ARCHITECTURES, EOS, make_model_folder

NEW_TOKENS = 12
LENGTHS = (3, 9, 1, 17, 5, 5, 30, 2, 11, 4)


def make_setup(folder: Path, architecture: str = "qwen3", eos_bias: float = 0.0) -> BaseModelSetup:
    setup = BaseModelSetup(SFTConfig(model_name=str(make_model_folder(folder, architecture, scale=2.0)), device="cpu"))
    if eos_bias:
        project = setup.project

        def often_ends(hidden: torch.Tensor) -> torch.Tensor:
            logits = project(hidden).clone()
            logits[:, EOS] += eos_bias
            return logits

        setup.project = often_ends  # type: ignore[method-assign]
    return setup


def prompts() -> list[list[int]]:
    return [[(7 * i + 3 * j) % 250 + 3 for j in range(length)] for i, length in enumerate(LENGTHS)]


def uniforms(count: int = len(LENGTHS)) -> torch.Tensor:
    return torch.rand(count, NEW_TOKENS, generator=torch.Generator().manual_seed(0), dtype=torch.float64)


def assert_same(ours: list[Sampled], plain: list[Sampled]) -> None:
    assert [(one.token_ids, one.ended) for one in ours] == [(one.token_ids, one.ended) for one in plain]
    for one, other in zip(ours, plain, strict=True):
        assert one.logprobs == near(other.logprobs)


@pytest.mark.parametrize("architecture", ARCHITECTURES)
@pytest.mark.parametrize("rows", [1, 4, 100])
def test_every_response_is_the_one_of_the_plain_sampler(architecture: str, rows: int, tmp_path: Path) -> None:
    setup = make_setup(tmp_path, architecture, eos_bias=1.5)
    width = max(LENGTHS) + NEW_TOKENS
    sampling = Sampling(NEW_TOKENS, temperature=0.8, top_k=40, top_p=0.9, batch_tokens=rows * width)
    assert setup.capabilities.sampler_for(width) == "slots"
    plain = sample_sequences(setup, prompts(), sampling, uniforms())
    ended = [one.ended for one in plain]
    assert any(ended)
    assert not all(ended)
    assert_same(SlotSampler(setup, prompts(), sampling, uniforms()).sample(), plain)


def count_forwards(sampler: SlotSampler, monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int]]:
    """Shapes of all inputs that the model receives."""
    shapes: list[tuple[int, int]] = []
    blocks = sampler.setup.blocks

    def watch(**inputs: Any) -> Any:
        shapes.append(tuple(inputs["input_ids"].shape))
        return blocks(**inputs)

    monkeypatch.setattr(sampler.setup, "blocks", watch)
    return shapes


def test_a_prompt_with_several_samples_is_computed_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup, sampling = make_setup(tmp_path), Sampling(NEW_TOKENS)
    doubled = [prompt for prompt in prompts()[:3] for _ in range(4)]
    plain = sample_sequences(setup, doubled, sampling, uniforms(12))
    sampler = SlotSampler(setup, doubled, sampling, uniforms(12))
    shapes = count_forwards(sampler, monkeypatch)
    assert_same(sampler.sample(), plain)
    assert [shape for shape in shapes if shape[1] > 1] == [(3, 9)]


class CountedId(int):
    """A token id that counts how often it is compared."""

    comparisons = 0

    def __eq__(self, other: object) -> bool:
        CountedId.comparisons += 1
        return int(self) == other

    def __lt__(self, other: int) -> bool:
        CountedId.comparisons += 1
        return int(self) < other

    __hash__ = int.__hash__


def test_prompts_that_share_a_beginning_are_told_apart_without_comparing_them_one_by_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup, sampling = make_setup(tmp_path), Sampling(1)
    shared = [[CountedId(3 + j) for j in range(20)] + [CountedId(4 + i)] for i in range(40) for _ in range(2)]
    plain = sample_sequences(setup, shared, sampling, uniforms(80))
    CountedId.comparisons = 0
    sampler = SlotSampler(setup, shared, sampling, uniforms(80))
    shapes = count_forwards(sampler, monkeypatch)
    assert_same(sampler.sample(), plain)
    assert CountedId.comparisons == 0
    assert shapes == [(40, 21)]


def test_prompts_enter_long_ones_first_then_in_the_order_of_their_ids(tmp_path: Path) -> None:
    given = [[7, 300], [7, 4], [9], [7, 4], [1, 2, 3], [7, 299]]
    sampler = SlotSampler(make_setup(tmp_path), given, Sampling(NEW_TOKENS), uniforms(6))
    assert sampler.waiting[::-1] == [4, 1, 3, 5, 0, 2]


def test_finished_responses_leave_and_waiting_prompts_enter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    setup = make_setup(tmp_path, eos_bias=5.0)
    width = max(LENGTHS) + NEW_TOKENS
    sampler = SlotSampler(setup, prompts(), Sampling(NEW_TOKENS, batch_tokens=4 * width), uniforms())
    shapes = count_forwards(sampler, monkeypatch)
    lengths = [len(one.token_ids) for one in sampler.sample()]
    steps = [rows for rows, columns in shapes if columns == 1]
    assert max(steps) <= 4
    assert min(steps) < 4
    in_turns = sum(max(lengths[i] for i in group) - 1 for group in ((6, 3, 8, 1), (4, 5, 9, 0), (7, 2)))
    assert len(steps) < in_turns, "waiting for the longest of each group would take more steps"


def test_the_cache_is_allocated_once_and_bounded_by_the_budget(tmp_path: Path) -> None:
    setup = make_setup(tmp_path)
    width = max(LENGTHS) + NEW_TOKENS
    sampler = SlotSampler(setup, prompts(), Sampling(NEW_TOKENS, batch_tokens=3 * width), uniforms())
    sampler._let_in()
    addresses = [store.data_ptr() for store in sampler.cache.keys]
    sampler.sample()
    assert [store.data_ptr() for store in sampler.cache.keys] == addresses
    assert {tuple(store.shape[:3:2]) for store in sampler.cache.keys} == {(3, width)}


def test_long_prompts_are_read_within_a_budget(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(slot_sampler, "PROMPT_TOKENS", 20)
    setup, sampling = make_setup(tmp_path), Sampling(NEW_TOKENS)
    sampler = SlotSampler(setup, prompts(), sampling, uniforms())
    shapes = count_forwards(sampler, monkeypatch)
    ours = sampler.sample()
    read = [rows * columns for rows, columns in shapes if columns > 1]
    assert sorted(read)[-1] == 30, "a prompt of 30 stands alone"
    assert all(size <= 20 for size in sorted(read)[:-1])
    monkeypatch.undo()
    assert_same(ours, sample_sequences(setup, prompts(), sampling, uniforms()))


def test_bfloat16_uses_the_fast_sampler_whatever_the_adapters_have_become(
    make_config: Callable[..., PPOConfig], monkeypatch: pytest.MonkeyPatch
) -> None:
    models = setup_models(make_config(dtype="bfloat16"))
    with torch.no_grad():
        for value in models.policy.parameters().values():
            value.normal_(std=3)  # for such a policy, any rounding changes greedy tokens
    monkeypatch.setattr("ppolm.rollout.samplers.sample_sequences", lambda *_: pytest.fail("the slow sampler"))
    assert len(models.policy.generate(prompts(), Sampling(NEW_TOKENS), uniforms())) == len(LENGTHS)


def test_a_model_with_a_window_is_left_to_the_librarys_cache_beyond_it(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path, "mistral", window=64)
    setup = BaseModelSetup(SFTConfig(model_name=str(folder), device="cpu"))
    assert setup.capabilities.sampler_for(64) == "slots"
    assert setup.capabilities.sampler_for(65) == "cache"


def test_a_cache_that_forgets_is_found_out_and_one_that_fails_is_an_error(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    setup = make_setup(tmp_path)
    assert sampler_refusal(setup, "slots") is None
    update = SlotCache.update

    def forget(self: SlotCache, *given: Any) -> tuple[torch.Tensor, torch.Tensor]:
        keys, values = update(self, *given)
        return keys, values.clone().fill_(0.5)

    monkeypatch.setattr(SlotCache, "update", forget)
    assert "log-probabilities off by" in str(sampler_refusal(setup, "slots"))
    monkeypatch.setattr(SlotCache, "update", lambda *_: 1 / 0)
    with pytest.raises(ModelError, match=r"Trying slot_sampler on .* ZeroDivisionError.* Set without: slot_sampler"):
        make_setup(tmp_path)


@pytest.mark.parametrize(
    ("dtype", "off", "refused"), [("float32", 1e-3, True), ("bfloat16", 0.01, False), ("bfloat16", 0.2, True)]
)
def test_log_probabilities_may_be_off_by_rounding_and_no_more(
    dtype: Any, off: float, refused: bool, model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def shifted(*given: Any) -> list[Any]:
        return [dataclasses.replace(one, logprobs=[p + off for p in one.logprobs]) for one in sample(*given)]

    setup = BaseModelSetup(SFTConfig(model_name=str(model_folder), device="cpu", dtype=dtype))
    monkeypatch.setattr(sampler_check, "sample", shifted)
    assert (sampler_refusal(setup, "slots") is not None) is refused


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_without_a_cache_the_same_is_drawn(architecture: str, tmp_path: Path) -> None:
    setup = make_setup(tmp_path, architecture, eos_bias=1.5)
    sampling = Sampling(NEW_TOKENS, temperature=0.8, top_k=40, top_p=0.9)
    assert_same(
        sample_whole(setup, prompts(), sampling, uniforms()), sample_sequences(setup, prompts(), sampling, uniforms())
    )


def test_of_a_prompt_the_last_block_computes_only_the_end(tmp_path: Path) -> None:
    setup = make_setup(tmp_path)
    seen: list[tuple[int, ...]] = []
    setup.last_block.register_forward_hook(lambda *given: seen.append(tuple(given[-1].shape[:2])))  # type: ignore[union-attr]
    SlotSampler(setup, prompts(), Sampling(1), uniforms()).sample()
    assert sum(rows for rows, _ in seen) == len(LENGTHS)
    assert {width for _, width in seen} == {1}
