"""Adapters that vLLM cannot serve are refused before a run, by what it cannot serve."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from peft import LoraConfig

from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.config import PPOConfig
from ppolm.engines.adapter_versions import AdapterVersions
from ppolm.engines.served_adapter import largest_rank, refuse_unserved
from ppolm.engines.vllm_client import RANKS, rank_to_serve
from ppolm.engines.vllm_engine import VllmEngine
from ppolm.errors import EngineError
from tests.engines.conftest import Train

LAYER = "base_model.model.model.layers.0.self_attn.q_proj.lora_A.policy.weight"


@pytest.mark.parametrize(
    ("lora", "named"),
    [
        (LoraConfig(use_dora=True), "DoRA"),
        (LoraConfig(modules_to_save=["lm_head"]), "modules_to_save"),
        (LoraConfig(bias="all"), "biases of the base"),
        (LoraConfig(lora_bias=True), "lora_bias"),
        (LoraConfig(r=1024), r"rank 1024, and vLLM serves at most 512.*1, 8, 16"),
        (LoraConfig(r=8, rank_pattern={"q_proj": 600}), "rank 600"),
    ],
)
def test_forms_of_lora_that_are_not_served_are_named(lora: LoraConfig, named: str) -> None:
    with pytest.raises(EngineError, match=named):
        refuse_unserved(lora, [LAYER])


def test_plain_lora_on_layers_is_served() -> None:
    refuse_unserved(LoraConfig(r=512, use_rslora=True, alpha_pattern={"q_proj": 3}), [LAYER])
    assert largest_rank(LoraConfig(r=8, rank_pattern={"q_proj": 12})) == 12


def test_an_adapter_on_the_output_matrix_is_refused_before_a_server_is_asked(
    make_config: Callable[..., PPOConfig], tmp_path: Path
) -> None:
    models = setup_models(make_config(lora_target_modules=("q_proj", "lm_head")))
    with pytest.raises(EngineError, match=r"cannot serve an adapter on lm_head.*lora_target_modules.*engine: local"):
        VllmEngine(models.policy, ["http://127.0.0.1:1"], str(tmp_path))


def test_the_rank_to_serve_is_the_next_that_vllm_takes() -> None:
    assert [rank_to_serve(rank) for rank in (1, 2, 8, 9, 33, 300)] == [1, 8, 8, 16, 64, 320]
    assert all(rank_to_serve(rank) == rank for rank in RANKS)


# ---- versions -------------------------------------------------------------------------------------------------------


def test_only_changed_weights_are_a_new_version_and_the_last_three_stay(
    models: Models, tmp_path: Path, train: Train
) -> None:
    versions = AdapterVersions(models.policy, tmp_path)
    assert [versions.update(), versions.update()] == [True, False]
    for _ in range(4):
        train()
        assert versions.update()
    assert [name[:13] for name in versions.served] == ["policy-000004", "policy-000005"]
    assert sorted(path.name[:13] for path in versions.folder.iterdir()) == [f"policy-00000{i}" for i in (3, 4, 5)]
    assert (versions.path(versions.served[-1]) / "adapter_model.safetensors").is_file()


def test_a_server_of_another_user_may_read_a_version(models: Models, tmp_path: Path) -> None:
    versions = AdapterVersions(models.policy, tmp_path)
    versions.update()
    folder = versions.path(versions.served[-1])
    assert folder.stat().st_mode & 0o005 == 0o005
    assert all(file.stat().st_mode & 0o004 for file in folder.iterdir())


def test_two_runs_in_one_folder_do_not_disturb_each_other(models: Models, tmp_path: Path) -> None:
    one = AdapterVersions(models.policy, tmp_path)
    one.update()
    other = AdapterVersions(models.policy, tmp_path)
    other.update()
    assert one.served != other.served, "even of the same weights: a server may know one whose folder is gone"
    other.written.remove()
    assert one.path(one.served[0]).is_dir()


def test_a_folder_that_cannot_be_written_is_named(models: Models, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(EngineError, match=r"engine_folder .*file.* cannot be written"):
        AdapterVersions(models.policy, tmp_path / "file")
