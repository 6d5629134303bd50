"""Every setting of the models, and of the machine they run on, has an effect."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest
import torch

from ppolm.base_setup.model_setup import setup_models
from ppolm.config import SFTConfig
from ppolm.errors import ConfigError, ModelError
from ppolm.ppo_trainer import PPOTrainer
from tests.config.acting import MakeConfig, acts
from tests.conftest import PROMPTS, spread
from tests.sft_adapter import make_sft_adapter


@acts("model_name")
def test_model_name_decides_the_base(make_config: MakeConfig, model_folder: Path) -> None:
    assert setup_models(make_config()).setup.causal_lm.config.name_or_path == str(model_folder)


@acts("lora_dropout")
def test_lora_dropout_is_written_into_the_adapters(make_config: MakeConfig, tmp_path: Path) -> None:
    models = setup_models(make_config(lora_dropout=0.25))
    models.policy.save(tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["lora_dropout"] == 0.25
    ratios = {module.p for module in models.adapters.model.modules() if isinstance(module, torch.nn.Dropout)}
    assert 0.25 in ratios  # active as soon as a trainer that uses dropout switches to training mode


@acts("threads")
def test_threads_are_used(make_config: MakeConfig) -> None:
    before = torch.get_num_threads()
    setup_models(make_config(threads=2))
    assert torch.get_num_threads() == 2
    torch.set_num_threads(before)


@acts("plain", "without")
def test_faster_ways_are_left_out(make_config: MakeConfig) -> None:
    assert not setup_models(make_config(without=("slot_sampler",))).setup.capabilities.has("slot_sampler")
    assert setup_models(make_config(plain=True)).setup.capabilities.on == ("library_cache",)


@acts("gradient_checkpointing")
def test_gradient_checkpointing_recomputes_blocks(make_config: MakeConfig) -> None:
    assert setup_models(make_config(gradient_checkpointing="on")).setup.recomputes_above == 0
    assert setup_models(make_config(gradient_checkpointing="off")).setup.recomputes_above == float("inf")


@acts("base_bits")
def test_base_bits_asks_for_packed_weights(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("importlib.util.find_spec", lambda _: None)
    with pytest.raises(ModelError, match="bitsandbytes"):  # packed weights themselves: test_four_bits
        setup_models(make_config(base_bits=4))


@acts("shard_base")
def test_shard_base_is_for_several_processes_and_plain_weights(make_config: MakeConfig) -> None:
    assert setup_models(make_config(shard_base=True)).setup.shards is None  # several: tests/ranks/test_sharded_base
    with pytest.raises(ConfigError, match="base_bits packs them"):
        make_config(shard_base=True, base_bits=4)
    with pytest.raises(ConfigError, match="human_fallback: error"):
        make_config(shard_base=True, reward=("human",), human_fallback="model", reward_model=("x",))
    with pytest.raises(ConfigError, match="whole copy of the base"):
        make_config(shard_base=True, engine="mlx")
    with pytest.raises(ConfigError, match="only adapters are trained"):
        SFTConfig(shard_base=True, train="all")


@acts("sft_adapter")
def test_sft_adapter_is_where_the_policy_starts(make_config: MakeConfig, tmp_path: Path) -> None:
    sft = make_sft_adapter(make_config(), tmp_path / "sft")
    models = setup_models(make_config(sft_adapter=str(sft)))
    policy, reference = models.policy.parameters(), models.sft.parameters()
    assert len(policy) == len(reference) > 0
    assert all(torch.equal(value, reference[key.replace(".policy.", ".sft.")]) for key, value in policy.items())
    assert models.sft.adapter == "sft"


@acts("reward_model")
def test_reward_model_gives_the_scores(make_config: MakeConfig, tmp_path: Path) -> None:
    reward = setup_models(make_config(seed=3)).reward
    assert reward is not None
    reward.mean = 100.0
    reward.save(tmp_path / "rm")
    results = PPOTrainer(make_config(reward_model=str(tmp_path / "rm"))).ppo_step(PROMPTS[:4])
    assert all(score < -50 for score in results["rewards"])


@acts("trust_remote_code")
def test_trust_remote_code_is_off_unless_asked(make_config: MakeConfig, model_folder: Path, tmp_path: Path) -> None:
    folder = tmp_path / "custom"
    shutil.copytree(model_folder, folder)
    (folder / "own_model.py").write_text(
        "from transformers import Qwen3Config, Qwen3ForCausalLM\n"
        "class OwnConfig(Qwen3Config):\n    model_type = 'own_model'\n"
        "class OwnModel(Qwen3ForCausalLM):\n    config_class = OwnConfig\n"
    )
    config = json.loads((folder / "config.json").read_text()) | {
        "model_type": "own_model",
        "auto_map": {"AutoConfig": "own_model.OwnConfig", "AutoModelForCausalLM": "own_model.OwnModel"},
    }
    (folder / "config.json").write_text(json.dumps(config))
    with pytest.raises(ModelError, match="trust_remote_code: true"):
        setup_models(make_config(model_name=str(folder)))
    models = setup_models(make_config(model_name=str(folder), trust_remote_code=True))
    assert type(models.setup.causal_lm).__name__ == "OwnModel"


@acts("device")
def test_device_is_used_and_a_missing_one_is_refused(make_config: MakeConfig) -> None:
    assert setup_models(make_config(device="cpu")).setup.device.type == "cpu"
    assert setup_models(make_config(device="auto")).setup.device.type in ("cpu", "cuda", "mps")
    with pytest.raises(ValueError, match="device is 'abacus'"):
        setup_models(make_config(device="abacus"))


@acts("dtype")
def test_dtype_is_the_precision_of_the_base_alone(make_config: MakeConfig) -> None:
    models = setup_models(make_config(dtype="bfloat16"))
    assert models.setup.causal_lm.dtype == torch.bfloat16
    assert all(value.dtype == torch.float32 for value in models.value.parameters().values())


@acts("trunk_mib")
def test_trunk_mib_is_how_much_is_kept_below_the_trained_layers(make_config: MakeConfig) -> None:
    for mib in (0, 1):
        trainer = PPOTrainer(make_config(trainable_layers=1, trunk_mib=mib), reward=spread)
        trainer.ppo_step(PROMPTS[:4])
        trunk = trainer.models.adapters.trunk
        assert trunk is not None
        assert bool(trunk.kept) == bool(mib)
