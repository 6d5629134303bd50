"""``ppolm demo``: PPO on the embedded model, then a comparison on posts it was not trained on."""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from tqdm import tqdm

from ppolm.cli.settings import parse, see_it
from ppolm.config import PPOConfig
from ppolm.data.load_rows import load_prompts
from ppolm.embedded import DEMO
from ppolm.embedded.world.facts import SLOTS
from ppolm.embedded.world.gold import judge_summary
from ppolm.errors import ConfigError
from ppolm.names import EngineName
from ppolm.ranks import join_ranks

if TYPE_CHECKING:
    from ppolm.ppo_trainer.run_comparison import Comparison
    from ppolm.runs.results import TrainingResults

TEST_PROMPTS = "embedded:test"
"""Posts that were used neither for training nor for choosing settings."""

NEXT = """This was the embedded tiny model in a made-up world. With Qwen3-0.6B-Base, your prompts and your reward:
  ppolm train --model-name Qwen/Qwen3-0.6B-Base --prompts your_prompts.jsonl --reward your_rewards.py:score \\
    --max-new-tokens 53"""


@dataclass(frozen=True)
class DemoArguments:
    """Watch PPO learn: about two minutes on two cores, no network, a judge that the policy never trains on."""

    seed: int = 0
    """Seed of adapters, sampling and shuffling."""
    steps: int | None = None
    """PPO steps. Default: those of the demo's settings."""
    reward: str = "model"
    """model: a reward model learned from the judge's preferences. gold: the judge itself. Or path/file.py:function."""
    engine: EngineName = "local"
    """What samples: local, or mlx (docs/engines.md)."""
    shard_base: bool = False
    """Of several processes, let each hold a part of the base (docs/processes.md)."""
    posts: int = 256
    """Test posts to measure on, at most 256: fewer are quicker and less certain."""
    samples: int = 3
    """Test posts to show with both summaries: the first ones, not the best ones."""
    output_dir: str = "runs"
    """Folder that holds the run folders."""
    run_name: str | None = None
    """Name of the run's folder. Default: model name, date and time."""
    json: bool = False
    """Print one JSON object instead of tables; progress still goes to standard error."""


def main(argv: list[str]) -> None:
    """Train, measure on test posts, and show."""
    arguments = parse(DemoArguments, "ppolm demo", argv)
    if arguments.samples < 0:
        raise ConfigError(f"samples is {arguments.samples}, expected 0 or more.")
    if arguments.posts < 2:
        raise ConfigError(f"posts is {arguments.posts}, expected at least 2: one post has no interval.")
    answer, results, sampled = run_demo(arguments)
    print(json.dumps(answer, indent=1) if arguments.json else show(answer, results, sampled, arguments.samples))


def run_demo(arguments: DemoArguments) -> tuple[dict[str, Any], TrainingResults, Comparison]:
    """Train and measure: all numbers, the run, and the sampled summaries of both policies."""
    config = demo_config(arguments)
    say(f"PPO on the embedded tiny model: seed {config.seed}, {config.max_steps} steps, reward {arguments.reward}.")
    say("Loading ...")
    from ppolm.ppo_trainer import PPOTrainer
    from ppolm.ppo_trainer.run_comparison import RunComparison

    start = time.perf_counter()
    prompts = {name: load_prompts(str(getattr(config, name))) for name in ("prompts", "eval_prompts")}
    results = PPOTrainer(config).train(prompts["prompts"], config.num_epochs, eval_prompts=prompts["eval_prompts"])
    runner, test = RunComparison(results.run_dir), load_prompts(TEST_PROMPTS)[: arguments.posts]
    with tqdm(total=4, desc="testing", unit="policy", disable=not sys.stderr.isatty()) as bar:
        sampled, greedy = runner.compare(test, greedy=(False, True), tick=bar.update)
    seconds = time.perf_counter() - start
    answer = outcome(arguments, results, sampled, greedy) | {"seconds": round(seconds, 1)}
    demo = results.run_dir / "report" / "demo.json"
    join_ranks().do_once(lambda: demo.write_text(json.dumps(answer, indent=1)))
    return answer, results, sampled


def demo_config(arguments: DemoArguments) -> PPOConfig:
    """The demo's settings, overridden by the flags."""
    config = PPOConfig.from_yaml(DEMO)
    return dataclasses.replace(
        config,
        dtype="float32",  # on every device: the reference figures of the demo are float32
        seed=arguments.seed,
        max_steps=config.max_steps if arguments.steps is None else arguments.steps,
        reward=(arguments.reward,),
        engine=arguments.engine,
        shard_base=arguments.shard_base,
        output_dir=arguments.output_dir,
        run_name=arguments.run_name,
    )


def say(line: str) -> None:
    """Print a progress line to standard error."""
    print(line, file=sys.stderr, flush=True)


def outcome(
    arguments: DemoArguments, results: TrainingResults, sampled: Comparison, greedy: Comparison
) -> dict[str, Any]:
    """All numbers of the demo as plain values."""
    return {
        "seed": arguments.seed,
        "reward": arguments.reward,
        "steps": results.steps,
        "verdict": results.verdict,
        "reasons": list(results.reasons),
        "test_posts": len(sampled.after.samples),
        "sampled": numbers(sampled),
        "greedy": numbers(greedy),
        "gap_closed": gap_closed(sampled),
        "kl": sampled.after.metrics["kl"],
        "run_dir": str(results.run_dir),
    }


def gap_closed(comparison: Comparison) -> float:
    """The gain in gold divided by the distance from the SFT model's gold to 1."""
    before, _, change = comparison.intervals()["judge"]
    return change.mean / (1 - before.mean)


def numbers(comparison: Comparison) -> dict[str, Any]:
    """Gold and reward with intervals, and the facts that the judge found, before and after."""
    names = {"judge": "gold", "reward": "reward"}
    table: dict[str, Any] = {
        names[name]: dict(zip(("before", "after", "change"), map(dataclasses.asdict, intervals), strict=True))
        for name, intervals in comparison.intervals().items()
    }
    for key, measurement in (("before", comparison.before), ("after", comparison.after)):
        seen = [judge_summary(sample["prompt"], sample["response"]) for sample in measurement.samples]
        facts = {
            "facts_stated": sum(len(one.covered) for one in seen) / len(seen),
            "wrong_facts": sum(len(one.wrong) for one in seen) / len(seen),
            "length": measurement.metrics["response_length"],
            "ended": measurement.metrics["ended_fraction"],
        }
        for name, value in facts.items():
            table.setdefault(name, {})[key] = value
    return table


def show(answer: dict[str, Any], results: TrainingResults, sampled: Comparison, samples: int) -> str:
    """The outcome as text."""
    lines = ["", f"Test: {answer['test_posts']} posts that no training saw and no setting was chosen on."]
    lines += ["Means with 95 % intervals, by post.", ""]
    lines.append(f"{'':24}{'before (SFT)':>22}{'after (PPO)':>22}{'change':>25}")
    for decoding, name, label in (
        ("sampled", "gold", "gold"),
        ("greedy", "gold", "gold, greedy decoding"),
        ("sampled", "reward", f"reward ({answer['reward']})"),
    ):
        row = answer[decoding][name]
        cells = [interval_text(row[key]) for key in ("before", "after")]
        lines.append(f"{label:24}{cells[0]:>22}{cells[1]:>22}{interval_text(row['change'], '+'):>25}")
    for name, label in (
        ("facts_stated", f"facts stated, of {len(SLOTS)}"),
        ("wrong_facts", "wrong facts"),
        ("length", "length, tokens"),
    ):
        row = answer["sampled"][name]
        lines.append(f"{label:24}{row['before']:>22.2f}{row['after']:>22.2f}{row['after'] - row['before']:>+25.2f}")
    lines.append(f"{'KL to the SFT model':24}{0:>22.2f}{answer['kl']:>22.2f}{answer['kl']:>+25.2f}")
    for old, new in list(zip(sampled.before.samples, sampled.after.samples, strict=True))[:samples]:
        lines += ["", str(old["prompt"])]
        for label, sample in (("before", old), ("after", new)):
            score = judge_summary(sample["prompt"], sample["response"]).score
            lines.append(f"  {label:6} (gold {score:.2f}) {str(sample['response']).strip()}")
    lines += ["", results.summary(), f"Plots:       {results.run_dir / 'report'}", see_it(results.run_dir), "", NEXT]
    return "\n".join(lines)


def interval_text(interval: dict[str, float], sign: str = "") -> str:
    """Such as ``0.550 [0.52, 0.58]``."""
    return f"{interval['mean']:{sign}.3f} [{interval['low']:{sign}.2f}, {interval['high']:{sign}.2f}]"
