"""Fast paths are decided in one place, by comparison, and can be refused, turned off and looked up."""

from __future__ import annotations

import json
import logging
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft.tuners.lora import Linear as LoraLayer
from transformers import AutoModelForCausalLM, LlamaConfig, Qwen2Config

from ppolm.base_setup import BaseModelSetup
from ppolm.base_setup.capabilities import FAST_PATHS, Capabilities, smallest_window
from ppolm.base_setup.context import context_length
from ppolm.base_setup.model_setup import setup_models
from ppolm.config import PPOConfig, SFTConfig
from ppolm.errors import ConfigError, ModelError
from ppolm.kernels import lora_linear
from ppolm.kernels.output_head import OutputHead, find_head
from ppolm.kernels.rounding import disagreement
from ppolm.ppo_trainer import PPOTrainer
from tests.closeness import near
from tests.conftest import PROMPTS, spread
from tests.tiny_models import make_model_folder, make_tokenizer

MakeConfig = Callable[..., PPOConfig]


def test_a_common_model_has_all_of_them_and_says_so_in_one_line(
    model_folder: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO, "ppolm"):
        setup = BaseModelSetup(SFTConfig(model_name=str(model_folder), device="cpu"))
    assert set(setup.capabilities.on) == set(FAST_PATHS)
    (line,) = [record.getMessage() for record in caplog.records if "is computed with" in record.getMessage()]
    assert "\n" not in line
    assert all(path in line for path in FAST_PATHS)


@pytest.mark.usefixtures("always_packed")
@pytest.mark.parametrize("path", FAST_PATHS)
def test_each_can_be_left_out_and_a_ppo_step_stays_the_same(path: Any, make_config: MakeConfig) -> None:
    settings = {"samples_per_prompt": 2, "trainable_layers": 1, "max_new_tokens": 10, "learning_rate": 1e-4}
    whole, less = (PPOTrainer(make_config(without=off, **settings), reward=spread) for off in ((), (path,)))
    assert less.models.setup.capabilities.refusals[path] == "turned off"
    assert not less.models.setup.capabilities.has(path)
    for _ in range(2):
        step, other = (trainer.ppo_step(PROMPTS[:2]) for trainer in (whole, less))
        assert step["generated_texts"] == other["generated_texts"]
        assert step["policy_loss"] == near(other["policy_loss"])
        assert step["metrics"]["kl"] == near(other["metrics"]["kl"])


def test_plain_turns_all_of_ours_off(make_config: MakeConfig, tmp_path: Path) -> None:
    setup = setup_models(make_config(plain=True, trainable_layers=1)).setup
    assert setup.capabilities.on == ("library_cache",)
    assert setup.causal_lm.config._attn_implementation == "sdpa"
    assert not any("forward" in vars(module) for module in setup.causal_lm.modules())
    with pytest.raises(ConfigError, match="without"):
        make_config(without=("slots",))


def test_an_error_in_a_trial_is_an_error_and_says_how_to_go_on(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def out_of_memory(*_: Any) -> str | None:
        raise torch.OutOfMemoryError("out of memory")

    monkeypatch.setattr("ppolm.base_setup.capabilities.use_grouped_attention", out_of_memory)
    with pytest.raises(ModelError, match=r"grouped_attention.*out of memory.*without: grouped_attention"):
        BaseModelSetup(SFTConfig(model_name=str(model_folder), device="cpu"))
    less = SFTConfig(model_name=str(model_folder), device="cpu", without=("grouped_attention",))
    assert BaseModelSetup(less).capabilities.has("packed_prompts")


def test_a_run_notes_what_it_was_computed_with_and_a_resume_elsewhere_warns(
    make_config: MakeConfig, caplog: pytest.LogCaptureFixture
) -> None:
    config = make_config(max_steps=2, checkpoint_every=1, eval_every=0)
    run = PPOTrainer(config, reward=spread).train(PROMPTS).run_dir
    noted = json.loads((run / "capabilities.json").read_text())
    assert noted["on"] == list(FAST_PATHS)
    assert (noted["attention"], noted["products"]) == ("ppolm_grouped", "float32")
    other = PPOTrainer(make_config(max_steps=2, checkpoint_every=1, eval_every=0), reward=spread)
    other.models.setup.capabilities = Capabilities(on=("slot_sampler",))
    other.train(PROMPTS, resume=run / "checkpoints" / "step-000001")
    assert "may differ in the last bits" in caplog.text


@pytest.mark.parametrize("part", ["output", "gradient"])
def test_a_layer_whose_fused_adapter_is_not_what_peft_computes_is_left_to_peft(
    part: str, make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    low, backward = lora_linear._low, lora_linear._Linears.backward

    def wrong_low(*given: Any) -> list[Any]:
        return [None if one is None else one * 1.001 for one in low(*given)]

    def wrong_backward(*given: Any) -> tuple[Any, ...]:
        return tuple(one * 1.001 if isinstance(one, torch.Tensor) else one for one in backward(*given))

    if part == "output":
        monkeypatch.setattr(lora_linear, "_low", wrong_low)
    else:
        monkeypatch.setattr(lora_linear._Linears, "backward", staticmethod(wrong_backward))
    models = setup_models(make_config())
    assert "numbers of a Linear with an adapter are off" in models.setup.capabilities.refusals["fused_adapters"]
    assert not any(
        "forward" in vars(layer) for layer in models.adapters.model.modules() if isinstance(layer, LoraLayer)
    )


def test_a_linear_layer_that_does_more_than_multiply_is_not_fused() -> None:
    class Router(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> Any:
            return super().forward(input), "more"

    class Same(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return input @ self.weight.T + self.bias

    class Grouped(torch.nn.Linear):
        def forward(self, input: torch.Tensor) -> torch.Tensor:
            return super().forward(input.view(-1, 7, 3))

    found = [lora_linear.is_product(kind(4, 3)) for kind in (torch.nn.Linear, Same, Router, Grouped)]
    assert found == [True, True, False, False]


@pytest.mark.parametrize(("scale", "softcap"), [(1.0, None), (0.0625, None), (1 / 8, None), (0.3, 30.0)])
def test_heads_that_scale_and_cap_are_recognised_and_others_refused(scale: float, softcap: float | None) -> None:
    config = LlamaConfig(logit_scale=0.0625, logits_scaling=8, final_logit_softcapping=softcap)
    product = torch.randn(5, 30, generator=torch.Generator().manual_seed(0)) * 9
    logits = OutputHead(scale, softcap).finish(product)
    head = find_head(product, logits, config, torch.float32)
    assert head is not None
    assert head.softcap == softcap
    assert head.scale == pytest.approx(scale, rel=1e-6)
    if scale != 0.3:
        assert head.scale == scale, "as configured, not as measured"
    assert find_head(product, logits + torch.arange(30), config, torch.float32) is None


def test_texts_are_no_longer_than_where_positions_begin_to_stretch() -> None:
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 32, "rope_theta": 1e4}
    rope |= {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    shape: dict[str, Any] = {"hidden_size": 32, "num_attention_heads": 4, "max_position_embeddings": 128}
    assert context_length(LlamaConfig(**shape)) == 128
    assert context_length(LlamaConfig(**shape, rope_parameters=rope)) == 32
    linear = {"rope_type": "linear", "factor": 2.0, "rope_theta": 1e4}
    assert context_length(LlamaConfig(**shape, rope_parameters=linear)) == 128


def test_a_long_batch_mate_does_not_change_a_short_text_where_positions_stretch(tmp_path: Path) -> None:
    rope = {"rope_type": "longrope", "original_max_position_embeddings": 32, "rope_theta": 1e4}
    rope |= {"short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    config = LlamaConfig(
        hidden_size=32, num_attention_heads=4, num_key_value_heads=2, num_hidden_layers=2, intermediate_size=64,
        vocab_size=259, max_position_embeddings=128, rope_parameters=rope, eos_token_id=1, bos_token_id=2,
    )  # fmt: skip
    AutoModelForCausalLM.from_config(config).save_pretrained(tmp_path)
    make_tokenizer().save_pretrained(tmp_path)
    trainer = PPOTrainer(PPOConfig(model_name=str(tmp_path), device="cpu", max_new_tokens=8), reward=spread)
    with pytest.raises(Exception, match="context of 32"):
        trainer.ppo_step(["a prompt of more than twenty-four letters"])


def test_windows_are_found_by_whatever_name() -> None:
    assert smallest_window(LlamaConfig()) is None
    assert smallest_window(LlamaConfig(sliding_window=64, attention_chunk_size=32)) == 32
    assert smallest_window(LlamaConfig(window_size=16)) == 16
    assert smallest_window(LlamaConfig(sliding_window=64, use_sliding_window=False)) is None


def test_a_number_of_layers_is_no_window() -> None:
    config = Qwen2Config(use_sliding_window=True, sliding_window=4096, max_window_layers=21)
    assert smallest_window(config) == 4096


def test_one_token_that_is_off_is_enough() -> None:
    plain = torch.randn(50, 40, generator=torch.Generator().manual_seed(0))
    ours = plain.clone()
    ours[17] += 0.01 * plain[17].flip(0)
    assert disagreement(plain, plain) == 0
    assert disagreement(ours, plain) > 1e-3
    assert disagreement(ours.fill_(float("nan")), plain) == float("inf")
    assert disagreement(ours[:, :3], plain) == float("inf")


def test_two_trainers_in_two_threads_do_not_see_each_other(make_config: MakeConfig) -> None:
    def steps(trainer: PPOTrainer, found: list[Any]) -> None:
        for _ in range(3):
            step = trainer.ppo_step(PROMPTS[:4])
            found.append((list(map(str, step["generated_texts"])), step["policy_loss"], step["value_loss"]))

    settings: list[dict[str, Any]] = [{"max_new_tokens": 12}, {"max_new_tokens": 12, "seed": 1, "dtype": "bfloat16"}]
    alone: list[list[Any]] = [[], []]
    for one, found in zip(settings, alone, strict=True):
        steps(PPOTrainer(make_config(**one), reward=spread), found)
    together: list[list[Any]] = [[], []]
    trainers = [PPOTrainer(make_config(**one), reward=spread) for one in settings]
    threads = [threading.Thread(target=steps, args=pair) for pair in zip(trainers, together, strict=True)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert together == alone


def test_a_folder_made_for_another_window_keeps_its_numbers(tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path, "mistral", window=8)
    setup = BaseModelSetup(SFTConfig(model_name=str(folder), device="cpu"))
    assert setup.capabilities.refusals["packed_prompts"] == "attention reaches back only 8 tokens"
    assert setup.capabilities.sampler_for(20) == "cache"
