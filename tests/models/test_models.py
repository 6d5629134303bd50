"""One base, four roles, on every architecture: what trains, what stays frozen, what is saved."""

from __future__ import annotations

import math
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from peft import PeftModel
from safetensors.torch import load_file, save_file
from torch import Tensor
from transformers import CONFIG_MAPPING, AutoModelForCausalLM

from ppolm.base_setup import device
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.batches.sequences import TokenSequences
from ppolm.config import PPOConfig
from ppolm.errors import ModelError, TrainingDivergedError
from ppolm.models.base_model import BaseModel
from ppolm.ppo_trainer import PPOTrainer
from tests.architectures import make_architecture
from tests.closeness import assert_rounding
from tests.conftest import PROMPTS, spread
from tests.sft_adapter import make_sft_adapter
from tests.table_cases import full_table
from tests.tiny_models import ARCHITECTURES, make_model_folder

MakeConfig = Callable[..., PPOConfig]


@pytest.fixture(scope="module", params=ARCHITECTURES)
def architecture_folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_model_folder(tmp_path_factory.mktemp(request.param), request.param, scale=3.0)


def base_weights(models: Models) -> dict[str, Tensor]:
    adapters = ("lora_", "modules_to_save")
    named = models.setup.causal_lm.named_parameters()
    return {name: value.clone() for name, value in named if not any(part in name for part in adapters)}


def test_ppo_runs_on_the_architecture_and_leaves_base_weights_bit_identical(
    architecture_folder: Path, make_config: MakeConfig
) -> None:
    trainer = PPOTrainer(make_config(model_name=str(architecture_folder)), reward=spread)
    before = base_weights(trainer.models)
    policy = {name: value.clone() for name, value in trainer.models.policy.parameters().items()}
    first = trainer.ppo_step(PROMPTS[:4])["metrics"]
    trainer.ppo_step(PROMPTS[2:6])
    assert first["kl"] == 0
    assert first["sampler_mismatch"] < 1e-4  # the cached sampler and the scorer agree
    after = base_weights(trainer.models)
    assert before.keys() == after.keys()
    assert all(torch.equal(value, after[name]) for name, value in before.items())
    assert any(not torch.equal(value, policy[name]) for name, value in trainer.models.policy.parameters().items())


def test_saved_policy_loads_with_plain_peft_and_gives_the_same_logits(
    architecture_folder: Path, make_config: MakeConfig, tmp_path: Path
) -> None:
    trainer = PPOTrainer(make_config(model_name=str(architecture_folder), learning_rate=0.01), reward=spread)
    trainer.ppo_step(PROMPTS[:4])
    trainer.models.policy.save(tmp_path / "policy")
    ids = torch.arange(10, 30)[None]
    with torch.no_grad(), trainer.models.policy.active():
        ours = trainer.models.setup.project(trainer.models.setup.hidden_states(ids))
        base = AutoModelForCausalLM.from_pretrained(architecture_folder).eval()
        bare = base(ids).logits
        plain = PeftModel.from_pretrained(base, tmp_path / "policy").eval()(ids).logits
    assert_rounding(plain, ours)
    assert float((plain - bare).abs().max()) > 1e-4


def trainable(models: Models) -> set[str]:
    names = {name for name, value in models.adapters.model.named_parameters() if value.requires_grad}
    heads = {"value": models.value.head, "reward": models.reward.head if models.reward else torch.nn.Module()}
    for role, head in heads.items():
        names |= {f"{role} head.{name}" for name, value in head.named_parameters() if value.requires_grad}
    return names


def own(models: Models, role: BaseModel) -> set[str]:
    return {f"value {name}" if name.startswith("head.") else name for name in role.parameters()}


@pytest.mark.parametrize("with_sft", [False, True])
def test_after_every_switch_exactly_the_right_parameters_require_gradients(
    make_config: MakeConfig, tmp_path: Path, with_sft: bool
) -> None:
    sft = str(make_sft_adapter(make_config(), tmp_path / "sft")) if with_sft else None
    models = setup_models(make_config(sft_adapter=sft))
    assert models.reward is not None
    assert trainable(models) == set()
    roles: list[tuple[BaseModel, bool]] = [
        *[(models.policy, True), (models.sft, False), (models.value, True), (models.reward, False)],
        *[(models.policy, False), (models.value, True), (models.policy, True), (models.value, False)],
        *[(models.sft, False), (models.policy, True), (models.reward, False), (models.value, True)],
    ]
    for role, train in roles:
        with role.active(trainable=train):
            assert trainable(models) == (own(models, role) if train else set()), (role, train)
        assert trainable(models) == set()


def test_roles_after_real_training_leave_no_gradient_flags_behind(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config())
    trainer.ppo_step(PROMPTS[:4])
    assert trainable(trainer.models) == set()


def test_training_one_role_changes_no_other(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(), reward=None)
    models = trainer.models
    assert models.reward is not None
    pairs = full_table(trainer)

    def copies(*roles: BaseModel) -> list[Tensor]:
        return [value.detach().clone() for role in roles for value in role.parameters().values()]

    others = copies(models.value, models.reward)
    trainer.model_trainer.train_policy_model(pairs)
    assert all(torch.equal(a, b) for a, b in zip(others, copies(models.value, models.reward), strict=True))
    others = copies(models.policy, models.reward)
    trainer.model_trainer.train_value_model(pairs)
    assert all(torch.equal(a, b) for a, b in zip(others, copies(models.policy, models.reward), strict=True))


def test_reference_refuses_to_be_trained(models: Models) -> None:
    with pytest.raises(ValueError, match="stays frozen"):
        models.sft.active(trainable=True)


def test_one_base_serves_all_roles(models: Models) -> None:
    bases = {id(role.setup.causal_lm) for role in (models.policy, models.sft, models.value, models.reward) if role}
    assert len(bases) == 1


def test_only_a_plain_frozen_output_matrix_is_used_directly(make_config: MakeConfig, tmp_path: Path) -> None:
    models = setup_models(make_config())
    assert models.setup.output_matrix is models.setup.causal_lm.get_output_embeddings().weight
    models.setup.causal_lm.requires_grad_(True)
    assert models.setup.output_matrix is None
    assert setup_models(make_config(lora_target_modules=("lm_head", "q_proj"))).setup.output_matrix is None


@pytest.mark.parametrize("changes", [{}, {"samples_per_prompt": 2, "trainable_layers": 1}])
@pytest.mark.parametrize("fast", [False, True])
def test_in_bfloat16_the_first_kl_is_exactly_0_and_the_first_ratio_1(
    make_config: MakeConfig, changes: dict[str, Any], fast: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On machines that multiply float32 faster, and on those that multiply bfloat16 faster."""
    monkeypatch.setattr(device, "multiplies_bfloat16", lambda: fast)
    trainer = PPOTrainer(make_config(dtype="bfloat16", **changes), reward=spread)
    assert trainer.attributor.recomputes, "auto: rounding of the sampler is no KL"
    for step in range(3):
        result = trainer.ppo_step(PROMPTS[: trainer.config.prompts_per_step])
        metrics = result["metrics"]
        if step == 0:
            assert metrics["kl"] == 0
            assert torch.equal(result["sa_pairs"].column("logprob_policy"), result["sa_pairs"].column("logprob_ref"))
        assert metrics["first_mismatch"] < 1e-3, "the ratio of the first minibatch, within 1e-3 of 1"
        assert math.isfinite(metrics["sampler_mismatch"]), "measured at every step"
        assert metrics["skipped_updates"] == 0
    assert trainer.attributor.recomputes, "and so at every later step"


def test_lora_on_the_output_head_is_used_and_trained(make_config: MakeConfig, tmp_path: Path) -> None:
    config = make_config(lora_target_modules=("lm_head", "q_proj"))
    sft = make_sft_adapter(config, tmp_path / "sft")
    trainer = PPOTrainer(make_config(lora_target_modules=("lm_head", "q_proj"), sft_adapter=str(sft)), reward=spread)
    pairs = full_table(trainer)
    plain = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(config.model_name), sft).eval()
    context, actions = pairs.sequences.contexts[0], pairs.sequences.actions[0]
    with torch.no_grad():
        logits = plain(torch.cat([context, actions])[None]).logits[0, len(context) - 1 : -1]
    expected = logits.log_softmax(-1).gather(-1, actions[:, None])[:, 0]
    assert_rounding(pairs.per_sequence("logprob_ref")[0], expected)
    before = {name: value.clone() for name, value in trainer.models.policy.parameters().items() if "lm_head" in name}
    assert before
    trainer.model_trainer.train_policy_model(pairs)
    after = trainer.models.policy.parameters()
    assert any(not torch.equal(value, after[name]) for name, value in before.items())


@pytest.mark.filterwarnings("ignore:Found missing adapter keys")
def test_an_adapter_with_missing_layers_is_refused(make_config: MakeConfig, tmp_path: Path) -> None:
    folder = make_sft_adapter(make_config(), tmp_path / "sft")
    weights = load_file(folder / "adapter_model.safetensors")
    save_file(
        {name: value for name, value in weights.items() if "layers.1" not in name}, folder / "adapter_model.safetensors"
    )
    with pytest.raises(ModelError, match="does not have the layers"):
        setup_models(make_config(sft_adapter=str(folder)))


@pytest.mark.parametrize("kind", ["llava", "t5"])
@pytest.mark.parametrize("dtype", ["auto", "float32"])
def test_a_model_that_does_not_continue_text_is_refused_in_one_sentence(
    kind: str, dtype: str, make_config: MakeConfig, model_folder: Path, tmp_path: Path
) -> None:
    shutil.copytree(model_folder, tmp_path / kind)
    CONFIG_MAPPING[kind]().save_pretrained(tmp_path / kind)
    with pytest.raises(ModelError, match=f"is of type {kind}, which transformers does not load as a causal language"):
        setup_models(make_config(model_name=str(tmp_path / kind), dtype=dtype))


def test_a_base_with_missing_weights_is_refused(make_config: MakeConfig, model_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "half"
    shutil.copytree(model_folder, folder)
    weights = load_file(folder / "model.safetensors")
    kept = {name: value for name, value in weights.items() if "layers.1" not in name}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ModelError, match=r"lacks \d+ of its weights"):
        setup_models(make_config(model_name=str(folder)))


def test_value_model_started_from_the_reward_model_gives_its_normalised_scores(
    make_config: MakeConfig, tmp_path: Path
) -> None:
    reward = setup_models(make_config()).reward
    assert reward is not None
    reward.mean, reward.std = 3.0, 2.0
    reward.save(tmp_path / "reward")
    models = setup_models(make_config(reward_model=str(tmp_path / "reward"), value_init="reward"))
    ids = torch.arange(10, 20)
    assert models.reward is not None
    placeholder = TokenSequences([ids], [torch.zeros(1, dtype=torch.long)])
    torch.testing.assert_close(models.value.values(placeholder, 100), models.reward.scores([ids]))


def test_non_finite_logits_are_a_clear_error(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(), reward=spread)
    with torch.no_grad():
        next(iter(trainer.models.policy.parameters().values())).fill_(float("nan"))
    with pytest.raises(TrainingDivergedError, match="logits are not finite"):
        trainer.ppo_step(PROMPTS[:2])


@pytest.mark.parametrize("name", ARCHITECTURES)
def test_adapters_on_the_top_layers_leave_the_others_alone(name: str, tmp_path: Path) -> None:
    folder = str(make_model_folder(tmp_path, name))
    everywhere = setup_models(PPOConfig(model_name=folder, device="cpu")).policy.parameters()
    top = setup_models(PPOConfig(model_name=folder, device="cpu", trainable_layers=1)).policy.parameters()
    assert len(top) == len(everywhere) / 2  # the tiny models have two layers
    assert {int(re.search(r"\.(?:layers|h)\.(\d+)\.", key)[1]) for key in top} == {1}  # type: ignore[index]
    assert {key for key in everywhere if re.search(r"\.(?:layers|h)\.1\.", key)} == set(top)
    with pytest.raises(ModelError, match=r"trainable_layers is 3, but .* has 2 layers"):
        setup_models(PPOConfig(model_name=folder, device="cpu", trainable_layers=3))


def test_all_linear_layers_of_the_top_blocks_are_adapted_where_blocks_differ(tmp_path: Path) -> None:
    """An Lfm2 whose lower block is a convolution and whose upper block is attention."""
    folder = make_architecture("lfm2_moe", tmp_path / "model")
    config = PPOConfig(model_name=str(folder), device="cpu", lora_r=4, trainable_layers=1)
    models = setup_models(config)
    kinds = models.setup.text_config.layer_types
    assert (kinds[0], kinds[-1]) == ("conv", "full_attention")
    adapted = {name.rpartition(".lora_")[0].rpartition(".")[2] for name in models.policy.parameters()}
    assert adapted >= {"q_proj", "k_proj", "v_proj"}


def test_no_adapter_asks_the_hub_for_anything(
    make_config: MakeConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sft = make_sft_adapter(make_config(), tmp_path / "sft")
    monkeypatch.setattr("huggingface_hub.file_exists", lambda *_, **__: pytest.fail("the Hub was asked"))
    monkeypatch.setattr(
        "peft.utils.save_and_load.check_file_exists_on_hf_hub", lambda *_, **__: pytest.fail("the Hub was asked")
    )
    models = setup_models(make_config(model_name="embedded", lora_target_modules=("all-linear",)))
    models.policy.save(tmp_path / "policy")
    setup_models(make_config(sft_adapter=str(sft)))
