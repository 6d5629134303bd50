"""``ppolm eval``."""

from __future__ import annotations

import dataclasses
import json
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import tyro
from tqdm import tqdm

from ppolm.cli.settings import parse
from ppolm.config import PPOConfig
from ppolm.data.load_prompts import load_prompts
from ppolm.data.prompts import Prompt, preview
from ppolm.errors import ConfigError

if TYPE_CHECKING:
    from ppolm.ppo_trainer import PPOTrainer


@dataclass(frozen=True)
class EvalArguments:
    """Measure a trained policy and its reference on the same held-out prompts with the same random numbers."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    prompts: str | None = None
    """Prompts to use. Default: those the run held out."""
    policy: str = "best"
    """best, last (the newest checkpoint), or a checkpoint folder."""
    reward: tuple[str, ...] = ()
    """Rewards to measure with. Default: those of the run."""
    samples: int = 3
    """Prompts to show with both answers."""
    json: bool = False
    """Print one JSON object instead of a table."""


def main(argv: list[str]) -> None:
    """Print reference and policy side by side."""
    arguments = parse(EvalArguments, "ppolm eval", argv)
    from ppolm.evaluation.evaluator import Evaluator
    from ppolm.ppo_trainer import PPOTrainer
    from ppolm.ppo_trainer.trainer_state import load_scale_state
    from ppolm.runs.run_folder import read_run_config

    run = Path(arguments.run)
    policy, value, state = policy_folders(run, arguments.policy)
    config = read_run_config(run)
    if arguments.reward:
        config = dataclasses.replace(config, reward=arguments.reward, reward_weights=())
    trainer = PPOTrainer(config)
    load_scale_state(trainer, json.loads(state.read_text()))
    evaluator = Evaluator(trainer, held_out_prompts(config, trainer, arguments.prompts))
    with tqdm(total=2, desc="measuring", unit="policy", disable=not sys.stderr.isatty()) as bar:
        before, answers_before = evaluator.measure(), evaluator.samples  # the untrained policy is the reference
        bar.update()
        trainer.models.policy.load_weights(policy)
        trainer.models.value.load_weights(value)
        after, answers_after = evaluator.measure(), evaluator.samples
        bar.update()
    before.pop("value_accuracy")  # the reference has no value model of its own
    if arguments.json:
        print(json.dumps({"prompts": len(evaluator.prompts), "reference": before, "policy": after}, indent=1))
        return
    print(f"{len(evaluator.prompts)} held-out prompts, policy {policy}\n")
    print(f"{'':18}{'reference':>12}{'policy':>12}")
    for name, number in after.items():
        if name != "step":
            print(f"{name:18}{format(before[name], '.4g') if name in before else '-':>12}{number:>12.4g}")
    for old, new in list(zip(answers_before, answers_after, strict=True))[: arguments.samples]:
        print(f"\nprompt     {preview(old['prompt'])}\nreference  {old['response']!r}\npolicy     {new['response']!r}")


def policy_folders(run: Path, which: str) -> tuple[Path, Path, Path]:
    """Adapter folders of the policy and its value model, and the file with the scale of their rewards."""
    from ppolm.runs.resume import find_best, find_checkpoint

    if which == "best":
        best = find_best(run)
        return best, best / "value", best / "best.json"
    checkpoint = find_checkpoint(run if which == "last" else Path(which))[1]
    return checkpoint / "policy", checkpoint / "value", checkpoint / "state.json"


def held_out_prompts(config: PPOConfig, trainer: PPOTrainer, source: str | None) -> list[Prompt]:
    """The prompts asked for, or those that training held out."""
    from ppolm.ppo_trainer.prompt_schedule import plan_prompts

    if source is not None:
        return load_prompts(source, config.dataset_split)
    if config.prompts is None:
        raise ConfigError("The run does not say where its prompts came from. Give --prompts.")
    given = None if config.eval_prompts is None else load_prompts(config.eval_prompts, config.dataset_split)
    prompts = load_prompts(config.prompts, config.dataset_split)
    held_out = plan_prompts(config, trainer.generator, prompts, 1, given).held_out
    if not held_out:
        raise ConfigError("The run held out no prompts. Give --prompts.")
    return held_out
