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

from ppolm.cli.settings import MachineArguments, parse
from ppolm.config import PPOConfig
from ppolm.data.load_rows import load_prompts
from ppolm.data.prompts import Prompt, preview
from ppolm.errors import ConfigError

if TYPE_CHECKING:
    from ppolm.ppo_trainer import PPOTrainer


@dataclass(frozen=True)
class EvalArguments(MachineArguments):
    """Measure a trained policy and its reference on the same held-out prompts with the same random numbers."""

    run: tyro.conf.Positional[str]
    """Run folder."""
    prompts: str | None = None
    """Prompts to use. Default: those the run held out."""
    policy: str = "best"
    """best, last (the newest checkpoint), or a checkpoint folder."""
    reward: tuple[str, ...] = ()
    """Rewards to measure with. Default: those of the run."""
    judge: str | None = None
    """A second opinion beside the reward, in the same forms. Default: the run's."""
    samples: int = 3
    """Prompts to show with both answers."""
    json: bool = False
    """Print one JSON object instead of a table."""


def main(argv: list[str]) -> None:
    """Print reference and policy side by side."""
    arguments = parse(EvalArguments, "ppolm eval", argv)
    from ppolm.evaluation.comparison import RunComparison

    given = (arguments.policy, arguments.reward, arguments.judge, arguments.given())
    runner = RunComparison(Path(arguments.run), *given)
    prompts = held_out_prompts(runner.config, runner.trainer, arguments.prompts)
    with tqdm(total=2, desc="measuring", unit="policy", disable=not sys.stderr.isatty()) as bar:
        (comparison,) = runner.compare(prompts, tick=bar.update)
    before, after = comparison.before.metrics, comparison.after.metrics
    intervals = comparison.intervals()
    if arguments.json:
        changes = {name: dataclasses.asdict(change) for name, (_, _, change) in intervals.items()}
        print(json.dumps({"prompts": len(prompts), "reference": before, "policy": after, "change": changes}, indent=1))
        return
    print(f"{len(prompts)} held-out prompts, policy {runner.policy}\n")
    print(f"{'':18}{'reference':>12}{'policy':>12}")
    for name, number in after.items():
        if name != "step":
            print(f"{name:18}{format(before[name], '.4g') if name in before else '-':>12}{number:>12.4g}")
    for name, (_, _, change) in intervals.items():
        print(f"\nchange of the {name}: {change} (95 % interval, by prompt)")
    shown = zip(comparison.before.samples, comparison.after.samples, strict=True)
    for old, new in list(shown)[: arguments.samples]:
        print(f"\nprompt     {preview(old['prompt'])}\nreference  {old['response']!r}\npolicy     {new['response']!r}")


def held_out_prompts(config: PPOConfig, trainer: PPOTrainer, source: str | None) -> list[Prompt]:
    """The prompts asked for, or those that training held out."""
    from ppolm.ppo_trainer.prompt_schedule import plan_prompts

    split, skip_bad = config.dataset_split, config.skip_bad_rows
    if source is not None:
        return load_prompts(source, split, skip_bad)
    if config.prompts is None:
        raise ConfigError("The run does not say where its prompts came from. Give --prompts.")
    given = None if config.eval_prompts is None else load_prompts(config.eval_prompts, split, skip_bad)
    prompts = load_prompts(config.prompts, split, skip_bad)
    held_out = plan_prompts(config, trainer.generator, prompts, 1, given).held_out
    if not held_out:
        raise ConfigError("The run held out no prompts. Give --prompts.")
    return held_out
