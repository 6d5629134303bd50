"""MLX samples what the policy itself would sample, from the policy as it is now, or the engine is refused."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.batches.sequences import TokenSequences
from ppolm.config import PPOConfig
from ppolm.data.load_rows import load_prompts
from ppolm.engines.build_engine import build_engine
from ppolm.errors import ModelError
from ppolm.rollout.generated_text import GeneratedText
from ppolm.rollout.generator import Engine, Generator
from ppolm.rollout.sampling import Sampled, Sampling
from tests.closeness import assert_rounding
from tests.engines.mlx_models import embedded_models, learn, needs_mlx
from tests.tiny_models import make_model_folder

pytestmark = needs_mlx

MakeConfig = Callable[..., PPOConfig]
POSTS = load_prompts("embedded:test")[:4]


@pytest.fixture(scope="module")
def embedded() -> Models:
    """The embedded model with an adapter that changes what it says."""
    models = embedded_models()
    learn(models.policy, seed=1)
    return models


@pytest.fixture(scope="module")
def engine(embedded: Models) -> Engine:
    return build_engine(PPOConfig(model_name="embedded", engine="mlx"), embedded.policy)


@pytest.fixture
def eos_ids(embedded: Models) -> Iterator[list[int]]:
    """The tokens that end a response; a test may change them."""
    before = embedded.setup.tokenizer.eos_ids
    embedded.setup.tokenizer.eos_ids = list(before)
    yield embedded.setup.tokenizer.eos_ids
    embedded.setup.tokenizer.eos_ids = before


def texts_of(engine: Engine, models: Models, samples: int = 2, **settings: Any) -> list[GeneratedText]:
    sampling = Sampling(**({"max_new_tokens": 16} | settings))
    return Generator(engine, models.setup, sampling, seed=3, samples_per_prompt=samples).generate(POSTS)[0]


def ids_of(engine: Engine, models: Models, samples: int = 2, **settings: Any) -> list[list[int]]:
    return [text.token_ids for text in texts_of(engine, models, samples, **settings)]


def sampled(engine: Engine, models: Models, temperature: float) -> tuple[list[list[int]], list[Sampled]]:
    prompts = [models.setup.tokenizer.encode(post.content) for post in POSTS]
    uniforms = torch.rand(len(prompts), 24, generator=torch.Generator().manual_seed(9), dtype=torch.float64)
    return prompts, engine.generate(prompts, Sampling(24, temperature, top_k=20, top_p=0.9), uniforms)


@pytest.mark.parametrize("temperature", [1.0, 0.7])
def test_log_probabilities_are_those_of_the_policy_for_the_same_ids(
    embedded: Models, engine: Engine, temperature: float
) -> None:
    """Of the full softmax at this temperature, although top-k and top-p restrict what is drawn."""
    prompts, responses = sampled(engine, embedded, temperature)
    sequences = TokenSequences(
        [torch.tensor(prompt) for prompt in prompts], [torch.tensor(one.token_ids) for one in responses]
    )
    given = torch.cat([torch.tensor(one.logprobs) for one in responses])
    own = embedded.policy.logprobs(sequences, temperature, 2048)
    reference = embedded.sft.logprobs(sequences, temperature, 2048)
    assert (own - reference).abs().max() > 0.1, "the adapter matters"
    assert (given - own).abs().max() < 1e-4


SETTINGS: dict[str, dict[str, Any]] = {
    "plain": {},
    "a temperature": {"temperature": 0.6},
    "top-k": {"top_k": 3},
    "top-p": {"top_p": 0.5},
    "top-k and top-p": {"top_k": 5, "top_p": 0.7, "temperature": 1.5},
    "greedy": {"greedy": True},
    "one prompt at a time": {"batch_tokens": 1},
    "one token": {"max_new_tokens": 1},
}


@pytest.mark.parametrize("settings", SETTINGS.values(), ids=SETTINGS)
def test_the_same_seed_gives_the_texts_of_the_local_engine(
    embedded: Models, engine: Engine, settings: dict[str, Any]
) -> None:
    ours, theirs = texts_of(embedded.policy, embedded, **settings), texts_of(engine, embedded, **settings)
    assert [text.token_ids for text in theirs] == [text.token_ids for text in ours]
    assert [text.ended for text in theirs] == [text.ended for text in ours]


def test_settings_matter_to_what_is_sampled(embedded: Models) -> None:
    """So that the test above compares different things."""
    different = {json.dumps(ids_of(embedded.policy, embedded, **settings)) for settings in SETTINGS.values()}
    assert len(different) == len(SETTINGS) - 1, "how prompts are grouped changes nothing"


def test_any_of_several_tokens_ends_a_response(embedded: Models, engine: Engine, eos_ids: list[int]) -> None:
    long = texts_of(engine, embedded)
    common = next(token for text in long for token in text.token_ids[2:-1] if token not in eos_ids)
    eos_ids.append(common)
    ours, theirs = texts_of(embedded.policy, embedded), texts_of(engine, embedded)
    assert [text.token_ids for text in theirs] == [text.token_ids for text in ours]
    assert {text.token_ids[-1] for text in theirs if text.ended} == set(eos_ids)
    assert all(token not in eos_ids for text in theirs for token in text.token_ids[:-1])


def test_an_update_of_the_policy_is_sampled_from_at_once() -> None:
    """Fails if the adapter is not copied again."""
    models = embedded_models()
    engine = build_engine(PPOConfig(model_name="embedded", engine="mlx"), models.policy)
    before = ids_of(engine, models)
    assert before == ids_of(models.policy, models)
    for seed in (1, 2, 3):
        learn(models.policy, seed)
        after = ids_of(engine, models)
        assert after != before
        assert after == ids_of(models.policy, models)
        before = after
    parameter = next(iter(models.policy.parameters().values()))
    parameter.data.mul_(-1)  # torch counts no version for this
    assert ids_of(engine, models) == ids_of(models.policy, models)


def test_weights_are_copied_only_when_they_have_changed(embedded: Models, engine: Any) -> None:
    ids_of(engine, embedded)
    held = [layer.a for layer, _ in engine.adapter.layers]
    ids_of(engine, embedded)
    assert all(layer.a is array for (layer, _), array in zip(engine.adapter.layers, held, strict=True))
    learn(embedded.policy, seed=5, size=1e-3)
    ids_of(engine, embedded)
    assert not any(layer.a is array for (layer, _), array in zip(engine.adapter.layers, held, strict=True))


@pytest.mark.parametrize("changes", [{"trainable_layers": 1}, {"lora_target_modules": ("q_proj", "down_proj")}])
def test_an_adapter_on_some_layers_is_attached_to_these(changes: dict[str, Any]) -> None:
    models = embedded_models(**changes)
    learn(models.policy, seed=2, size=0.2)
    engine: Any = build_engine(PPOConfig(model_name="embedded", engine="mlx"), models.policy)
    assert len(engine.adapter.layers) == len(models.policy.parameters()) / 2
    assert ids_of(engine, models) == ids_of(models.policy, models) != ids_of(models.sft, models)


@pytest.mark.parametrize("architecture", ["qwen3", "qwen2", "llama", "gemma", "mistral"])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_architectures_agree_with_torch_in_the_precision_of_the_base(
    make_config: MakeConfig, tmp_path: Path, architecture: str, dtype: str
) -> None:
    folder = make_model_folder(tmp_path / "model", architecture, scale=3.0)
    models = setup_models(make_config(model_name=str(folder), dtype=dtype))
    learn(models.policy, seed=1, size=0.1)
    engine: Any = build_engine(make_config(engine="mlx"), models.policy)
    learn(models.policy, seed=2, size=0.1)  # a second trial, of an adapter that changes something
    prompts = [[5, 6, 7, 8, 9], [40]]
    uniforms = torch.rand(2, 20, generator=torch.Generator().manual_seed(2), dtype=torch.float64)
    responses = engine.generate(prompts, Sampling(20), uniforms)
    sequences = TokenSequences(
        [torch.tensor(prompt) for prompt in prompts], [torch.tensor(one.token_ids) for one in responses]
    )
    given = torch.cat([torch.tensor(one.logprobs) for one in responses])
    own = models.policy.logprobs(sequences, 1.0, 2048)
    if dtype == "float32":
        assert_rounding(given, own)
    else:
        assert (given - own).pow(2).mean().sqrt() < 0.1


def test_rotary_positions_are_read_where_transformers_writes_them(make_config: MakeConfig, tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "model", "llama", scale=3.0)
    config = json.loads((folder / "config.json").read_text())
    config["rope_parameters"]["rope_theta"] = 77.0
    (folder / "config.json").write_text(json.dumps(config))
    models = setup_models(make_config(model_name=str(folder)))
    build_engine(make_config(engine="mlx"), models.policy)  # raises unless the two agree


def refusal(config: PPOConfig) -> str:
    policy = setup_models(config).policy
    with pytest.raises(ModelError) as error:
        build_engine(config.changed(engine="mlx"), policy)
    return str(error.value)


def test_what_mlx_does_not_load_is_refused_in_a_sentence(make_config: MakeConfig, tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "model", "gpt2")
    message = refusal(make_config(model_name=str(folder)))
    assert "does not load with engine mlx" in message
    assert "Set engine: local" in message


def test_what_mlx_computes_differently_is_refused_and_by_how_much(make_config: MakeConfig, tmp_path: Path) -> None:
    """mlx-lm ignores the sliding window of this architecture."""
    folder = make_model_folder(tmp_path / "model", "mistral", scale=3.0, window=6)
    message = refusal(make_config(model_name=str(folder)))
    assert "other log-probabilities than the policy" in message
    assert "off by 0." in message


def test_texts_longer_than_a_window_are_refused(make_config: MakeConfig, tmp_path: Path) -> None:
    """The trial is shorter than this window, so that it cannot tell."""
    folder = make_model_folder(tmp_path / "model", "mistral", scale=3.0, window=30)
    models = setup_models(make_config(model_name=str(folder)))
    engine = build_engine(make_config(engine="mlx"), models.policy)
    uniforms = torch.zeros(1, 10, dtype=torch.float64)
    engine.generate([[5] * 20], Sampling(10), uniforms)
    with pytest.raises(ModelError, match=r"may have 31 tokens, and some layers .* see only 30"):
        engine.generate([[5] * 21], Sampling(10), uniforms)


def test_an_adapter_on_a_tied_output_matrix_is_refused(make_config: MakeConfig, tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path / "model", "gemma")  # its output matrix is that of the embeddings
    message = refusal(make_config(model_name=str(folder), lora_target_modules=("q_proj", "lm_head")))
    assert "adapter changes lm_head, and engine mlx has no such layer of 32 to 259" in message


def test_a_quantised_model_is_refused() -> None:
    from ppolm.engines.mlx_model import refuse_quantised

    for config in ({"quantization": {"bits": 4}}, {"text_config": {"quantization_config": {"quant_method": "awq"}}}):
        with pytest.raises(ModelError, match=r"Model m is quantised.*engine: local"):
            refuse_quantised(config, "m")
    refuse_quantised({"model_type": "qwen3", "text_config": None}, "m")


def test_an_engine_whose_adapter_is_not_what_the_policy_has_is_noticed() -> None:
    """A wrong scale changes nothing as long as an adapter is new: the first update is tried, too."""
    models = embedded_models()
    engine: Any = build_engine(PPOConfig(model_name="embedded", engine="mlx"), models.policy)
    for _, one in engine.adapter.layers:
        object.__setattr__(one, "scale", one.scale / 2)
    assert ids_of(engine, models) == ids_of(models.policy, models), "B is still zero"
    learn(models.policy, seed=1)
    with pytest.raises(ModelError, match="other log-probabilities than the policy for embedded"):
        ids_of(engine, models)


def test_a_model_of_the_hub_is_read_where_its_files_are(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stored = tmp_path / "hub" / "models--someone--tiny"
    make_model_folder(stored / "snapshots" / "abc123", scale=3.0)
    (stored / "refs").mkdir()
    (stored / "refs" / "main").write_text("abc123")
    monkeypatch.setattr("huggingface_hub.constants.HF_HUB_CACHE", str(tmp_path / "hub"))
    config = make_config(model_name="someone/tiny")
    models = setup_models(config)
    engine = build_engine(config.changed(engine="mlx"), models.policy)
    draw = ([[5, 6, 7, 8]], Sampling(12), torch.full((1, 12), 0.3, dtype=torch.float64))
    assert engine.generate(*draw)[0].token_ids == models.policy.generate(*draw)[0].token_ids
