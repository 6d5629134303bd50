"""Every setting of PPOConfig acts. ``acts`` names the settings a test covers; the last test finds any that has none."""

from __future__ import annotations

import dataclasses
import json
import logging
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest
import torch
from torch import Tensor

from ppolm.advantage import AdvantageComp
from ppolm.base_setup.model_setup import setup_models
from ppolm.cli.main import run as ppolm
from ppolm.cli.overopt_command import sweep_one
from ppolm.config import PPOConfig
from ppolm.data.load_rows import load_prompts
from ppolm.errors import DataError, ModelError, RewardError, TrainingDivergedError
from ppolm.evaluation.evaluator import limits_of
from ppolm.evaluation.verdict import judge
from ppolm.ppo_trainer import PPOTrainer
from ppolm.rewards.build import build_reward
from ppolm.runs.prompt_schedule import plan_prompts
from ppolm.storage.metrics_log import read_metrics
from ppolm.token_attribution.sa_pairs_io import from_parquet
from ppolm.token_attribution.token_attribution import AGREES
from tests.conftest import PROMPTS, spread
from tests.sft_adapter import make_sft_adapter
from tests.table_cases import full_table

MakeConfig = Callable[..., PPOConfig]
COVERED: set[str] = set()
T = TypeVar("T", bound=Callable[..., None])


def acts(*names: str) -> Callable[[T], T]:
    COVERED.update(names)
    return lambda test: test


def length(prompts: list[str], responses: list[str]) -> list[float]:
    return [len(response) / 9 for response in responses]


def outcome(config: PPOConfig, steps: int = 2) -> list[Tensor]:
    """All numbers of a short training: the last table and every trained parameter."""
    trainer = PPOTrainer(config, reward={"spread": spread, "length": length})
    trainer.total_steps = 3
    for step in range(steps):
        results = trainer.ppo_step(PROMPTS[2 * step : 2 * step + 4])
    models = (trainer.models.policy, trainer.models.value)
    return [
        *results["sa_pairs"].columns.values(),
        *(value for model in models for value in model.parameters().values()),
    ]


def differ(one: list[Tensor], other: list[Tensor]) -> bool:
    return len(one) != len(other) or any(
        a.shape != b.shape or not torch.equal(a, b) for a, b in zip(one, other, strict=True)
    )


# A value for each setting that changes the numbers of training, and what has to hold besides for it to matter.
CHANGES: dict[str, tuple[Any, dict[str, Any]]] = {
    "lora_r": (8, {}),
    "lora_alpha": (64, {}),
    "lora_target_modules": (("q_proj",), {}),
    "value_init": ("reward", {"reward": ("model",), "judge": "model", "reward_model": "RM"}),
    "dtype": ("bfloat16", {}),
    "learning_rate": (1e-2, {}),
    "value_learning_rate": (1e-2, {}),
    "lr_schedule": ("linear", {}),
    "warmup_steps": (4, {}),
    "weight_decay": (5.0, {}),
    "adam_eps": (1e-2, {}),
    "samples_per_prompt": (2, {}),
    "ppo_epochs": (3, {}),
    "minibatch_size": (3, {}),
    "minibatch_order": ("bucketed", {}),
    "gamma": (0.5, {}),
    "lam": (0.3, {}),
    "value_target": ("reward_to_go", {"value_learning_rate": 0.05}),
    "clip_epsilon": (1e-4, {"learning_rate": 0.02}),
    "clip_epsilon_high": (1e-4, {"learning_rate": 0.02}),
    "dual_clip": (1.0001, {"learning_rate": 0.2, "clip_epsilon": 1e-4, "ppo_epochs": 6}),
    "value_clip": (1e-4, {"value_learning_rate": 0.05}),
    "value_coef": (2.0, {}),
    "entropy_coef": (1.0, {}),
    "max_grad_norm": (1e-3, {}),
    "target_kl": (1e-9, {}),
    "value_warmup_steps": (1, {}),
    "buffer_capacity": (13, {}),
    "replay_rollouts": (2, {}),
    "kl_coef": (5.0, {"learning_rate": 0.02}),
    "kl_estimator": ("k3", {"learning_rate": 0.02}),
    "kl_placement": ("loss", {"kl_estimator": "k3", "learning_rate": 0.02}),
    "adaptive_kl": (True, {"learning_rate": 0.02, "kl_coef": 5.0, "batch_size": 4}),
    "kl_target": (1e-3, {"learning_rate": 0.02, "kl_horizon": 4, "adaptive_kl": True}),
    "kl_horizon": (100, {"learning_rate": 0.02, "adaptive_kl": True}),
    "reward_weights": ((1.0, -2.0), {"reward": ("spread", "length")}),
    "normalize_rewards": ("running", {}),
    "whiten_rewards": (True, {}),
    "whiten_advantages": (False, {}),
    "missing_eos_penalty": (2.0, {"whiten_advantages": False}),
    "max_new_tokens": (9, {}),
    "temperature": (0.5, {}),
    "top_k": (2, {}),
    "top_p": (0.2, {}),
    "trainable_layers": (1, {}),
    "seed": (1, {}),
}
COVERED.update(CHANGES)
COVERED.update({"feedback_store", "human_timeout", "human_fallback"})  # tests/rewards/test_human_reward.py
COVERED.update({"reward_std_penalty"})  # tests/models/test_reward_ensemble.py


UNCHANGED: dict[str, Any] = {}
"""What training gives without a change, by all that is set beside it: many settings share it."""


@pytest.mark.parametrize("name", CHANGES)
def test_setting_changes_the_numbers_of_training(make_config: MakeConfig, tmp_path: Path, name: str) -> None:
    value, context = CHANGES[name]
    if context.get("reward_model") == "RM":
        reward = setup_models(make_config()).reward
        assert reward is not None
        reward.save(tmp_path / "reward")
        context = context | {"reward_model": str(tmp_path / "reward")}
    steps = 3 if name in ("adaptive_kl", "kl_target", "kl_horizon") else 2
    key = f"{sorted(context.items())} {steps}"
    if key not in UNCHANGED:
        same, again = (outcome(make_config(**context), steps) for _ in range(2))
        assert not differ(same, again)  # so that a difference can only come from the setting
        UNCHANGED[key] = same
    assert differ(UNCHANGED[key], outcome(make_config(**(context | {name: value})), steps))


@acts("kl_horizon")
def test_kl_horizon_slows_the_controller(make_config: MakeConfig) -> None:
    moves = []
    for horizon in (4, 400):
        trainer = PPOTrainer(make_config(adaptive_kl=True, kl_horizon=horizon, kl_target=0.1), reward=spread)
        trainer.ppo_step(PROMPTS[:4])
        moves.append(abs(trainer.kl.coef - 0.1))
    assert moves[0] == pytest.approx(100 * moves[1])


@acts("model_name")
def test_model_name_decides_the_base(make_config: MakeConfig, model_folder: Path) -> None:
    assert setup_models(make_config()).setup.causal_lm.config.name_or_path == str(model_folder)


@acts("lora_dropout")
def test_lora_dropout_is_written_into_the_adapters(make_config: MakeConfig, tmp_path: Path) -> None:
    models = setup_models(make_config(lora_dropout=0.25))
    models.policy.save(tmp_path)
    assert json.loads((tmp_path / "adapter_config.json").read_text())["lora_dropout"] == 0.25
    ratios = {module.p for module in models.adapters.model.modules() if isinstance(module, torch.nn.Dropout)}
    assert 0.25 in ratios  # on as soon as a trainer that wants dropout switches to training mode


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


@acts("microbatch_tokens", "rollout_tokens")
def test_token_budgets_bound_each_forward_pass(make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    trainer = PPOTrainer(make_config(microbatch_tokens=60, rollout_tokens=70), reward=spread)
    sizes: list[tuple[bool, int]] = []
    blocks = trainer.models.setup.blocks

    def spy(**inputs: Any) -> Any:
        sizes.append((inputs["use_cache"], inputs["input_ids"].numel()))
        return blocks(**inputs)

    monkeypatch.setattr(trainer.models.setup, "blocks", spy)
    trainer.ppo_step(PROMPTS[:6])
    assert max(size for cached, size in sizes if not cached) <= 60
    assert max(size for cached, size in sizes if cached) <= 70
    assert len([1 for cached, size in sizes if cached and size > 6]) >= 3  # several prefills for six prompts


@acts("recompute_logprobs")
def test_recompute_logprobs_decides_where_logprob_policy_comes_from(make_config: MakeConfig) -> None:
    for name, recompute in (("always", True), ("never", False), ("auto", True)):
        trainer = PPOTrainer(make_config(recompute_logprobs=name), reward=spread)
        pairs = trainer.sequence_generator.generate_sequences(PROMPTS)[0]
        same_as_ref = torch.equal(pairs.column("logprob_policy"), pairs.column("logprob_ref"))
        same_as_sampler = torch.equal(pairs.column("logprob_policy"), pairs.column("logprob_sampler"))
        assert (same_as_ref, same_as_sampler) == (recompute, not recompute)
        torch.testing.assert_close(
            pairs.column("logprob_sampler"), pairs.column("logprob_policy"), rtol=1e-4, atol=1e-5
        )


def test_auto_believes_the_sampler_once_it_was_seen_to_agree_and_no_longer_than_that(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(make_config(learning_rate=1e-4), reward=spread)
    first = trainer.ppo_step(PROMPTS[:4])
    assert first["metrics"]["kl"] == 0.0, "scored by the same pass as the reference"
    assert first["metrics"]["sampler_mismatch"] < AGREES
    second = trainer.ppo_step(PROMPTS[:4])["sa_pairs"]
    assert torch.equal(second.column("logprob_policy"), second.column("logprob_sampler"))
    generate = trainer.generator.generate

    def careless(prompts: Any) -> Any:
        texts, logprobs = generate(prompts)
        return texts, [values + 0.01 for values in logprobs]

    trainer.generator.generate = careless  # type: ignore[method-assign]
    third = trainer.ppo_step(PROMPTS[:4])
    assert third["metrics"]["sampler_mismatch"] == pytest.approx(0.01, rel=0.01)
    fourth = trainer.ppo_step(PROMPTS[:4])["sa_pairs"]
    torch.testing.assert_close(
        fourth.column("logprob_policy") + 0.01, fourth.column("logprob_sampler"), rtol=1e-4, atol=1e-5
    )


@acts("max_skipped_updates")
def test_max_skipped_updates_stops_a_run_of_broken_updates(make_config: MakeConfig, caplog: Any) -> None:
    trainer = PPOTrainer(make_config(max_skipped_updates=3), reward=spread)
    pairs = full_table(trainer)
    broken = pairs.with_columns(advantage=torch.full((len(pairs),), math.nan))
    before = [value.clone() for value in trainer.models.policy.parameters().values()]
    with caplog.at_level(logging.WARNING), pytest.raises(TrainingDivergedError, match="3 policy updates in a row"):
        trainer.model_trainer.train_policy_model(broken)
    assert trainer.model_trainer.policy_updater.skipped == 3
    after = trainer.models.policy.parameters().values()
    assert all(torch.equal(old, new) for old, new in zip(before, after, strict=True))


@acts("reward")
def test_reward_names_where_scores_come_from(make_config: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "own.py").write_text("def score(prompts, responses):\n    return [7.0] * len(responses)\n")
    trainer = PPOTrainer(make_config(reward=(f"{tmp_path}/own.py:score",)))
    assert trainer.ppo_step(PROMPTS[:2])["rewards"] == [7.0, 7.0]


@acts("on_reward_error", "default_reward")
def test_reward_errors_raise_or_default_as_configured(make_config: MakeConfig) -> None:
    def bad(prompts: list[str], responses: list[str]) -> list[float]:
        return [math.nan if "cats" in prompt else 1.0 for prompt in prompts]

    with pytest.raises(RewardError, match="Tell me about cats"):
        PPOTrainer(make_config(), reward=bad).ppo_step(PROMPTS[:2])
    trainer = PPOTrainer(make_config(on_reward_error="default", default_reward=-4.0), reward=bad)
    results = trainer.ppo_step(PROMPTS[:2])
    assert results["rewards"] == [-4.0, 1.0]
    assert results["metrics"]["reward_failures"] == 1


@acts("reward_timeout", "reward_retries")
def test_reward_timeout_and_retries_reach_the_rewards(make_config: MakeConfig) -> None:
    served = make_config(reward=("http://127.0.0.1:9/score",), reward_timeout=0.05, reward_retries=7)
    http: Any = build_reward("http://127.0.0.1:9/score", served, None)
    assert (http.timeout, http.retries) == (0.05, 7)
    config = make_config(reward_timeout=0.05)

    def slow(prompts: list[str], responses: list[str]) -> list[float]:
        import time

        time.sleep(1)
        return [0.0] * len(responses)

    with pytest.raises(RewardError, match=r"reward_timeout 0\.05"):
        PPOTrainer(config, reward=slow).ppo_step(PROMPTS[:2])


@acts("prompts", "eval_prompts", "num_epochs", "output_dir", "run_name")
def test_data_and_folder_settings_through_the_command(make_config: MakeConfig, tmp_path: Path) -> None:
    (tmp_path / "train.txt").write_text("\n".join(PROMPTS))
    (tmp_path / "held.txt").write_text("A held-out prompt\n")
    (tmp_path / "own.py").write_text("def score(prompts, responses):\n    return [float(len(r)) for r in responses]\n")
    config = make_config(
        prompts=str(tmp_path / "train.txt"),
        eval_prompts=str(tmp_path / "held.txt"),
        num_epochs=2,
        reward=(f"{tmp_path}/own.py:score",),
        output_dir=str(tmp_path / "elsewhere"),
        run_name="mine",
    )
    config.to_yaml(tmp_path / "config.yaml")
    assert ppolm(["train", "--config", str(tmp_path / "config.yaml")]) == 0
    run = tmp_path / "elsewhere" / "mine"
    assert [row["num_responses"] for row in read_metrics(run)] == [4, 4, 4]  # 6 prompts, twice, without a gap
    samples = [json.loads(line) for line in (run / "samples.jsonl").read_text().splitlines()]
    assert {sample["prompt"] for sample in samples if sample["kind"] == "eval"} == {"A held-out prompt"}
    assert {sample["prompt"] for sample in samples if sample["kind"] == "train"} <= set(PROMPTS)


@acts("dataset_split")
def test_dataset_split_chooses_the_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import datasets

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "dataset"
    folder.mkdir()
    (folder / "train.jsonl").write_text('{"prompt": "one"}\n{"prompt": "two"}\n')
    (folder / "test.jsonl").write_text('{"prompt": "three"}\n')
    assert [prompt.content for prompt in load_prompts(str(folder), "train")] == ["one", "two"]
    assert [prompt.content for prompt in load_prompts(str(folder), "test")] == ["three"]


@acts("skip_bad_rows")
def test_skip_bad_rows_leaves_them_out_of_training_evaluation_and_generation(
    make_config: MakeConfig, model_folder: Path, tmp_path: Path, caplog: Any, capsys: Any
) -> None:
    rows = [{"prompt": prompt} for prompt in PROMPTS]
    (tmp_path / "p.jsonl").write_text("".join(json.dumps(row) + "\n" for row in [{"prompt": 5}, *rows]))
    others = [{"prompt": 5}, *({"prompt": f"Now {prompt}"} for prompt in PROMPTS)]
    (tmp_path / "e.jsonl").write_text("".join(json.dumps(row) + "\n" for row in others))
    (tmp_path / "own.py").write_text("def score(prompts, responses):\n    return [float(len(r)) for r in responses]\n")
    config = make_config(
        prompts=str(tmp_path / "p.jsonl"),
        eval_prompts=str(tmp_path / "e.jsonl"),
        reward=(f"{tmp_path}/own.py:score",),
        max_steps=1,
    )
    config.to_yaml(tmp_path / "config.yaml")
    train = ["train", "--config", str(tmp_path / "config.yaml")]
    assert ppolm(train) == 1
    assert f"{tmp_path / 'p.jsonl'}, line 1, is int (5)" in capsys.readouterr().err
    assert ppolm([*train, "--skip-bad-rows"]) == 0
    assert "1 of 7 rows left out" in caplog.text
    run = Path(config.output_dir) / "run"
    assert read_metrics(run, "eval")[0]["num_responses"] == 6
    capsys.readouterr()
    assert ppolm(["eval", str(run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["prompts"] == 6
    generate = ["generate", "--model-name", str(model_folder), "--prompts", str(tmp_path / "p.jsonl"), "--json"]
    assert ppolm(generate) == 1
    assert ppolm([*generate, "--max-new-tokens", "2", "--skip-bad-rows"]) == 0
    assert len(capsys.readouterr().out.splitlines()) == 6


@acts("skip_bad_rows")
def test_skip_bad_rows_reaches_the_sweep(make_config: MakeConfig, tmp_path: Path, caplog: Any) -> None:
    (tmp_path / "p.jsonl").write_text('{"prompt": 5}\n{"prompt": "one"}\n{"prompt": "two"}\n')
    config = make_config(
        prompts=str(tmp_path / "p.jsonl"), reward=("tests.conftest:spread",), max_steps=1, eval_fraction=0.5
    )
    with pytest.raises(DataError, match="line 1, is int"):
        sweep_one(config)
    assert sweep_one(dataclasses.replace(config, skip_bad_rows=True)).evaluations
    assert "1 of 3 rows left out" in caplog.text


@acts("batch_size", "eval_fraction", "max_eval_prompts", "max_steps", "eval_every")
def test_prompt_schedule_settings(make_config: MakeConfig) -> None:
    prompts = [f"prompt number {i}" for i in range(40)]

    def plan(**changes: Any) -> Any:
        config = make_config(**changes)
        return plan_prompts(config, PPOTrainer(config, reward=spread).generator, prompts, 1, None)

    assert len(plan(batch_size=8, eval_fraction=0.0).batch(0)) == 8
    assert len(plan(eval_fraction=0.25).held_out) == 10
    assert len(plan(eval_fraction=0.25, max_eval_prompts=3).held_out) == 3
    assert plan(eval_fraction=0.25, max_steps=2).total_steps == 2
    assert not plan(eval_every=0).held_out
    split = plan(eval_fraction=0.25)
    assert not {prompt.content for prompt in split.train} & {prompt.content for prompt in split.held_out}


@acts("long_prompts")
def test_long_prompts_are_an_error_or_left_out(make_config: MakeConfig, caplog: Any) -> None:
    prompts = [*PROMPTS, "far too long " * 30]
    with pytest.raises(DataError, match="Prompt 6 has 390 tokens"):
        PPOTrainer(make_config(), reward=spread).train(prompts)
    config = make_config(long_prompts="skip", eval_every=0)
    with caplog.at_level(logging.WARNING):
        schedule = plan_prompts(config, PPOTrainer(config, reward=spread).generator, prompts, 1, None)
    assert len(schedule.train) == 6
    assert "1 of 7 prompts are too long" in caplog.text


def held_out_rewards(config: PPOConfig) -> list[tuple[float, float]]:
    results = PPOTrainer(config, reward=spread).train(PROMPTS)
    return [(row["step"], row["avg_reward"]) for row in results.evaluations]


@acts("eval_every", "eval_seed")
def test_evaluation_schedule_and_seed(make_config: MakeConfig) -> None:
    base = {"eval_fraction": 0.4, "batch_size": 1, "max_steps": 4}
    every_two = held_out_rewards(make_config(**base, eval_every=2, run_name="a"))
    assert [step for step, _ in every_two] == [0, 2, 4]
    assert held_out_rewards(make_config(**base, eval_every=2, run_name="b")) == every_two
    assert held_out_rewards(make_config(**base, eval_every=2, run_name="c", eval_seed=5)) != every_two


@acts("patience", "min_delta")
def test_patience_and_min_delta_stop_a_run_without_progress(make_config: MakeConfig) -> None:
    def constant(prompts: list[str], responses: list[str]) -> list[float]:
        return [1.0] * len(responses)

    config = make_config(eval_fraction=0.4, eval_every=1, batch_size=1, patience=2, num_epochs=5)
    results = PPOTrainer(config, reward=constant).train(PROMPTS)
    assert (results.stopped, results.verdict, results.steps) == ("converged", "unchanged", 2)
    history = [{"avg_reward": 1.0}, {"avg_reward": 1.05}]
    assert judge(history, limits_of(make_config(min_delta=0.0)))[0].performance_improved
    assert not judge(history, limits_of(make_config(min_delta=0.1)))[0].performance_improved


FIRST = {"avg_reward": 1.0, "reward_std": 0.5, "kl_per_token": 0.0, "entropy": 2.0, "response_length": 10.0}
FIRST["num_responses"] = 64


@acts("collapse_reward_drop", "collapse_kl", "collapse_entropy", "collapse_length")
@pytest.mark.parametrize(
    ("name", "tight", "loose", "now"),
    [
        ("collapse_reward_drop", 1.0, 3.0, {"avg_reward": 0.2}),
        ("collapse_kl", 0.5, 2.0, {"kl_per_token": 1.0}),
        ("collapse_entropy", 0.2, 0.01, {"entropy": 0.1}),
        ("collapse_length", 2.0, 5.0, {"response_length": 30.0}),
    ],
)
def test_collapse_limits(make_config: MakeConfig, name: str, tight: float, loose: float, now: dict[str, float]) -> None:
    history = [FIRST, FIRST | now]
    assert judge(history, limits_of(make_config(**{name: tight})))[1].collapsed
    assert not judge(history, limits_of(make_config(**{name: loose})))[1].collapsed


@acts("judge", "judge_drop", "stop_on_alarm")
def test_judge_settings(make_config: MakeConfig) -> None:
    config = make_config(eval_fraction=0.4, eval_every=1, batch_size=1, max_steps=1, judge="tests.conftest:spread")
    results = PPOTrainer(config, reward=spread).train(PROMPTS)
    assert results.evaluations[0]["judge"] > 0
    alone = dataclasses.replace(config, judge=None, run_name="alone")
    assert "judge" not in PPOTrainer(alone, reward=spread).train(PROMPTS).evaluations[0]
    judged = FIRST | {"judge": 0.8, "judge_std": 0.1, "step": 0}
    history = [judged, judged | {"judge": 0.7, "step": 1}]
    assert judge(history, limits_of(make_config(judge_drop=3.0)))[1].over_optimised
    assert not judge(history, limits_of(make_config(judge_drop=30.0, judge="gold")))[1].over_optimised

    def falling(prompts: list[str], responses: list[str]) -> list[float]:
        return [1.0] * len(responses)

    stubborn = make_config(
        run_name="stubborn", eval_fraction=0.4, eval_every=1, batch_size=1, patience=1, max_steps=3, stop_on_alarm=False
    )
    assert PPOTrainer(stubborn, reward=falling).train(PROMPTS, 2).steps == 3


@acts("checkpoint_every", "keep_checkpoints", "table_every", "samples_per_step", "tensorboard")
def test_run_folder_settings(make_config: MakeConfig) -> None:
    config = make_config(
        eval_every=0,
        batch_size=1,
        checkpoint_every=2,
        keep_checkpoints=2,
        table_every=3,
        samples_per_step=1,
        tensorboard=True,
        samples_per_prompt=1,
    )
    run = PPOTrainer(config, reward=spread).train(PROMPTS).run_dir
    assert sorted(path.name for path in (run / "checkpoints").iterdir()) == ["step-000004", "step-000006"]
    tables = sorted(path.name for path in (run / "table").iterdir())
    assert tables == [f"step-{step:06d}.parquet" for step in (1, 3, 6)]
    assert from_parquet(run / "table" / tables[0]).num_sequences == 1
    assert len((run / "samples.jsonl").read_text().splitlines()) == 6
    assert list((run / "tensorboard").glob("events*"))
    quiet = PPOTrainer(dataclasses.replace(config, tensorboard=False, table_every=0, run_name="quiet"), reward=spread)
    folder = quiet.train(PROMPTS[:2]).run_dir
    assert not (folder / "tensorboard").exists()
    assert not (folder / "table").exists()


def test_every_setting_has_a_test_that_it_acts() -> None:
    assert {field.name for field in dataclasses.fields(PPOConfig)} - COVERED == set()


def test_metrics_of_a_step_are_its_own(make_config: MakeConfig) -> None:
    """A step whose updates were all skipped, or which trains no policy, repeats no number of the step before."""
    trainer = PPOTrainer(make_config(max_skipped_updates=1000), reward=spread)
    trainer.ppo_step(PROMPTS[:4])
    trainer.advantage_comp = AdvantageComp(math.nan, 0.95)
    metrics = trainer.ppo_step(PROMPTS[:4])["metrics"]
    assert metrics["skipped_updates"] > 0
    assert not {"entropy", "approx_kl", "policy_grad_norm", "value_grad_norm"} & metrics.keys()
