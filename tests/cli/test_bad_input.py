"""Bad input ends in one clear sentence and a non-zero exit status, and nothing on disk is damaged."""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.errors import ConfigError, DataError, PpolmError
from ppolm.ppo_trainer import PPOTrainer
from tests.cli.failing import fails, train
from tests.conftest import PROMPTS, spread

MakeConfig = Callable[..., PPOConfig]


def snapshot(folder: Path) -> dict[str, str]:
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in paths}


def test_unknown_model_without_network_says_how_to_use_a_local_folder(files: Path, capsys: Any) -> None:
    message = fails(capsys, *train(files, "--model-name", "nobody/no-such-model"))
    assert "nobody/no-such-model" in message
    assert "cannot be reached" in message
    assert "local folder" in message


def test_model_folder_that_does_not_exist_or_has_no_weights(files: Path, model_folder: Path, capsys: Any) -> None:
    assert "does not exist" in fails(capsys, *train(files, "--model-name", "./nowhere"))
    empty = files / "empty"
    empty.mkdir()
    assert "has no config.json" in fails(capsys, *train(files, "--model-name", str(empty)))
    shutil.copy(model_folder / "config.json", empty)
    assert "has no weights" in fails(capsys, *train(files, "--model-name", str(empty)))


def test_model_folder_with_damaged_weights_or_without_tokenizer(files: Path, model_folder: Path, capsys: Any) -> None:
    damaged = files / "damaged"
    shutil.copytree(model_folder, damaged)
    weights = damaged / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:1000])
    assert "cannot be loaded" in fails(capsys, *train(files, "--model-name", str(damaged)))
    mute = files / "mute"
    shutil.copytree(model_folder, mute)
    for path in mute.glob("*token*"):
        path.unlink()
    assert "tokenizer" in fails(capsys, *train(files, "--model-name", str(mute)))


@pytest.mark.parametrize(
    ("prompts", "expected"),
    [
        ([], "list of prompts is empty"),
        (["fine", ""], "Prompt 1 is empty"),
        (["fine", "   "], "Prompt 1 is empty"),
        (["fine", 7], "Prompt 1 is int"),
        (["fine", None], "Prompt 1 is NoneType"),
        ("one prompt", "expected a list"),
        (["x" * 500], r"does not fit the model's context of 128"),
        ([[{"role": "user"}]], "each with 'role' and 'content'"),
        ([{"question": "what?"}], "neither a 'prompt' nor a 'messages'"),
    ],
)
def test_bad_prompts_are_refused_by_step_and_train(make_config: MakeConfig, prompts: Any, expected: str) -> None:
    trainer = PPOTrainer(make_config(), reward=spread)
    with pytest.raises(DataError, match=expected):
        trainer.ppo_step(prompts)
    with pytest.raises(DataError, match=expected):
        trainer.train(prompts)
    assert not Path(trainer.config.output_dir).exists()  # not even an empty run folder


def test_unknown_config_key_suggests_the_nearest(files: Path, capsys: Any) -> None:
    (files / "config.yaml").write_text("learning_rte: 0.1\n")
    assert "Did you mean 'learning_rate'?" in fails(capsys, *train(files))
    (files / "config.yaml").write_text("gamma: [")
    assert "not valid YAML" in fails(capsys, *train(files))
    assert "does not exist" in fails(capsys, "train", "--config", str(files / "other.yaml"))


@pytest.mark.parametrize(
    ("setting", "expected"),
    [
        ({"gamma": 2}, "gamma is 2.0, expected between 0 and 1"),
        ({"batch_size": 0}, "batch_size is 0, expected at least 1"),
        ({"batch_size": 2.5}, "expected a whole number"),
        ({"temperature": 0}, "temperature is 0.0, expected greater than 0"),
        ({"learning_rate": "fast"}, "expected a number"),
        ({"learning_rate": float("nan")}, "expected a finite number"),
        ({"kl_estimator": "k4"}, "expected one of: k1, k2, k3"),
        ({"whiten_rewards": "yes"}, "expected true or false"),
        ({"batch_size": 5, "samples_per_prompt": 2}, "not a multiple"),
        ({"kl_placement": "loss"}, "Set kl_estimator to k2 or k3"),
        ({"adaptive_kl": True, "kl_coef": 0}, "a multiple of 0 is always 0. Set kl_coef"),
        ({"reward": ()}, "reward is empty"),
        ({"reward_weights": (1.0, 2.0)}, "one weight per reward"),
        ({"run_name": "../elsewhere"}, "plain folder name"),
        ({"value_init": "reward", "reward": ("a:b",)}, "there is no reward model"),
        ({"dual_clip": 0.5}, "greater than 1"),
        ({"reward": 3}, "expected text"),
    ],
)
def test_impossible_settings_are_refused_on_construction(setting: dict[str, Any], expected: str) -> None:
    with pytest.raises(ConfigError, match=expected):
        PPOConfig(**setting)


def test_a_run_folder_that_holds_a_run_is_left_alone(files: Path, capsys: Any) -> None:
    assert ppolm(list(train(files))) == 0
    before = snapshot(files / "runs")
    message = fails(capsys, *train(files))
    assert "already holds a run" in message
    assert "--resume" in message
    assert snapshot(files / "runs") == before


def test_a_checkpoint_of_another_config_is_refused(files: Path, capsys: Any) -> None:
    assert ppolm(list(train(files))) == 0
    before = snapshot(files / "runs")
    message = fails(capsys, "train", "--resume", str(files / "runs/run"), "--lora-r", "4", "--gamma", "0.5")
    assert "lora_r 2 -> 4" in message
    assert "gamma 0.99 -> 0.5" in message
    assert snapshot(files / "runs") == before


@pytest.mark.parametrize("damage", ["cut", "flipped", "missing", "no manifest"])
def test_a_damaged_checkpoint_is_noticed_and_an_earlier_one_offered(files: Path, capsys: Any, damage: str) -> None:
    assert ppolm(list(train(files))) == 0
    checkpoint = files / "runs/run/checkpoints/step-000002"
    weights = checkpoint / "policy" / "adapter_model.safetensors"
    content = weights.read_bytes()
    if damage == "cut":
        weights.write_bytes(content[: len(content) // 2])
    elif damage == "flipped":
        weights.write_bytes(content[:-5] + bytes([content[-5] ^ 1]) + content[-4:])
    elif damage == "missing":
        weights.unlink()
    else:
        (checkpoint / "manifest.json").unlink()
    before = snapshot(files / "runs")
    message = fails(capsys, "train", "--resume", str(files / "runs/run"))
    assert "step-000002 is damaged or cut off" in message
    assert "step-000001" in message
    assert snapshot(files / "runs") == before
    assert ppolm(["train", "--resume", str(files / "runs/run/checkpoints/step-000001")]) == 0


def test_resume_of_something_that_is_no_run(files: Path, capsys: Any) -> None:
    assert "is not a run folder" in fails(capsys, "train", "--resume", str(files / "nowhere"))
    (files / "young").mkdir()
    shutil.copy(files / "config.yaml", files / "young")
    assert "no checkpoint to resume from" in fails(capsys, "train", "--resume", str(files / "young"))
    missing = files / "young/checkpoints/step-000009"
    assert "step-000009 does not exist" in fails(capsys, "train", "--resume", str(missing))


def test_a_folder_with_foreign_files_is_not_taken_for_a_run(files: Path, capsys: Any) -> None:
    (files / "runs/run").mkdir(parents=True)
    (files / "runs/run/thesis.txt").write_text("years of work")
    fails(capsys, *train(files))
    assert snapshot(files / "runs") == {"run/thesis.txt": hashlib.sha256(b"years of work").hexdigest()}


def test_an_output_dir_that_cannot_be_written(files: Path, capsys: Any) -> None:
    (files / "occupied").write_text("a file")
    assert "cannot be written" in fails(capsys, *train(files, "--output-dir", str(files / "occupied")))


def test_adapter_folders_that_are_none(files: Path, capsys: Any) -> None:
    assert "has no adapter_config.json" in fails(capsys, *train(files, "--sft-adapter", str(files)))
    other = files / "other"
    other.mkdir()
    (other / "adapter_config.json").write_text("{not json")
    assert "damaged adapter_config.json" in fails(capsys, *train(files, "--sft-adapter", str(other)))
    (other / "adapter_config.json").write_text(json.dumps({"peft_type": "LORA", "r": 2, "target_modules": ["q_proj"]}))
    assert "does not load" in fails(capsys, *train(files, "--sft-adapter", str(other)))


def test_rewards_that_are_none(files: Path, capsys: Any) -> None:
    assert "is not understood" in fails(capsys, *train(files, "--reward", "nonsense"))
    assert "does not exist" in fails(capsys, *train(files, "--reward", "nowhere.py:score"))
    assert "cannot be imported" in fails(capsys, *train(files, "--reward", "no_such_module_here:score"))
    assert "has no function 'scoer'. It has: score" in fails(
        capsys, *train(files, "--reward", f"{files}/reward.py:scoer")
    )


def test_eval_and_generate_explain_what_is_missing(files: Path, capsys: Any) -> None:
    assert "is not a run folder" in fails(capsys, "eval", str(files / "nowhere"))
    assert "Give --prompt" in fails(capsys, "generate", "--run", str(files))
    assert "either --run RUN or --model-name MODEL" in fails(capsys, "generate", "--prompt", "hello")
    assert "no prompts to train on" in fails(capsys, "train")


def test_a_diverged_run_points_to_its_last_good_checkpoint(make_config: MakeConfig) -> None:
    trainer = PPOTrainer(
        make_config(batch_size=1, checkpoint_every=1, eval_every=0, max_skipped_updates=2), reward=spread
    )
    real = trainer.value_adder.add_values_to_sa_pairs

    def breaks_after_two_steps(pairs: Any) -> Any:
        pairs = real(pairs)
        return pairs.with_columns(value=pairs.column("value") * float("nan")) if trainer.step >= 2 else pairs

    trainer.value_adder.add_values_to_sa_pairs = breaks_after_two_steps  # type: ignore[method-assign, assignment]
    with pytest.raises(PpolmError, match=r"not finite.*The last good checkpoint is .*step-000002"):
        trainer.train(PROMPTS)


def test_unknown_command_exits_with_2_and_suggests(capsys: Any) -> None:
    assert ppolm(["trian"]) == 2
    assert "Did you mean 'train'?" in capsys.readouterr().err


def test_a_damaged_best_policy_is_noticed_by_eval_and_generate(files: Path, capsys: Any) -> None:
    assert ppolm(list(train(files))) == 0
    weights = files / "runs/run/best/adapter_model.safetensors"
    content = weights.read_bytes()
    weights.write_bytes(content[:-4] + b"\xff\xff\xff\xff")
    assert "is damaged or cut off" in fails(capsys, "eval", str(files / "runs/run"))
    assert "is damaged or cut off" in fails(capsys, "generate", "--run", str(files / "runs/run"), "--prompt", "hello")


def test_a_reward_that_exits_does_not_end_the_run_silently(files: Path, capsys: Any) -> None:
    (files / "quits.py").write_text("import sys\ndef score(prompts, responses):\n    sys.exit(0)\n")
    assert "tried to end the program" in fails(capsys, *train(files, "--reward", f"{files}/quits.py:score"))


def test_a_checkpoint_that_cannot_be_written_leaves_the_others_and_no_rubbish(
    make_config: MakeConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    trainer = PPOTrainer(make_config(checkpoint_every=1, eval_every=0, batch_size=2), reward=spread)
    save = trainer.models.value.save

    def full_disk(folder: Any) -> None:
        if trainer.step == 2:
            raise OSError("no space left on device")
        save(folder)

    monkeypatch.setattr(trainer.models.value, "save", full_disk)
    with pytest.raises(PpolmError, match=r"step-000002 could not be written: no space left.*untouched"):
        trainer.train(PROMPTS)
    folder = Path(trainer.config.output_dir) / "run" / "checkpoints"
    assert sorted(path.name for path in folder.iterdir()) == ["step-000000", "step-000001"]


def test_numbers_and_templates_out_of_range(files: Path, model_folder: Path, capsys: Any) -> None:
    assert "2^63" in fails(capsys, *train(files, "--seed", "99999999999999999999"))
    generate = ("generate", "--model-name", str(model_folder))
    assert "expected at least 1" in fails(capsys, *generate, "--prompt", "x", "--samples", "0")
    picky = files / "picky"
    shutil.copytree(model_folder, picky)
    (picky / "chat_template.jinja").write_text("{{ raise_exception('roles must alternate') }}")
    (files / "chat.jsonl").write_text(json.dumps({"messages": [{"role": "user", "content": "hi"}]}))
    message = fails(capsys, "generate", "--model-name", str(picky), "--prompts", str(files / "chat.jsonl"))
    assert "roles must alternate" in message
