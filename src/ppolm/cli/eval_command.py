"""``ppolm eval``."""

from __future__ import annotations

import dataclasses
import json
import logging
import sys
from dataclasses import dataclass
from pathlib import Path

import tyro
from tqdm import tqdm

from ppolm.cli.settings import SamplingArguments, parse
from ppolm.config import PPOConfig
from ppolm.data.load_rows import load_prompts
from ppolm.data.prompts import Prompt, preview
from ppolm.errors import ConfigError
from ppolm.ranks import join_ranks
from ppolm.ranks.checksums import digest

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class EvalArguments(SamplingArguments):
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
    from ppolm.ppo_trainer.run_comparison import RunComparison
    from ppolm.storage.code_consent import ask_consent
    from ppolm.storage.stored_run import read_run_config

    run = Path(arguments.run)
    join_ranks().do_once(lambda: ask_consent(run, read_run_config(run), argv, "eval"))
    runner = RunComparison(run, arguments.policy, arguments.reward, arguments.judge, arguments.given())
    prompts = prompts_to_use(run, runner.config, arguments.prompts)
    join_ranks().agree("prompts", digest([prompt.key for prompt in prompts]))
    try:
        with tqdm(total=2, desc="measuring", unit="policy", disable=not sys.stderr.isatty()) as bar:
            (comparison,) = runner.compare(prompts, tick=bar.update)
    finally:
        runner.release()
    before, after = comparison.before.metrics, comparison.after.metrics
    intervals = comparison.intervals()
    if arguments.json:
        changes = {name: dataclasses.asdict(change) for name, (_, _, change) in intervals.items()}
        counts = {"prompts": len(set(comparison.clusters)), "responses": len(prompts)}
        print(json.dumps({**counts, "reference": before, "policy": after, "change": changes}, indent=1))
        return
    print(f"{comparison.stands_on}, policy {runner.policy}\n")
    print(f"{'':18}{'reference':>12}{'policy':>12}")
    for name, number in after.items():
        if name != "step":
            print(f"{name:18}{format(before[name], '.4g') if name in before else '-':>12}{number:>12.4g}")
    for name, (_, _, change) in intervals.items():
        print(f"\nchange of the {name}: {change} (95 % interval, by prompt)")
    shown = zip(comparison.before.samples, comparison.after.samples, strict=True)
    for old, new in list(shown)[: arguments.samples]:
        print(f"\nprompt     {preview(old['prompt'])}\nreference  {old['response']!r}\npolicy     {new['response']!r}")


def prompts_to_use(run: Path, config: PPOConfig, source: str | None) -> list[Prompt]:
    """The prompts asked for, or those the run held out: stored with it, since its data files may have changed."""
    from ppolm.runs.prompt_schedule import different_prompts
    from ppolm.storage.prompt_record import read_held_out, read_trained_on

    if source is None:
        held_out = read_held_out(run)
        if not held_out:
            raise ConfigError("The run held out no prompts. Give --prompts.")
        return held_out
    prompts = different_prompts(load_prompts(source, config.dataset_split, config.skip_bad_rows))
    seen = read_trained_on(run)
    trained = sum(prompt.key in seen for prompt in prompts)
    if trained:
        log.warning(
            "%d of these %d prompts were trained on, so the result partly measures memorisation.", trained, len(prompts)
        )
    return prompts
