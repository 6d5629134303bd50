"""``ppolm overopt``: one run per kl_coef, and a picture of reward and judge against KL."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING

from ppolm.cli.settings import parse
from ppolm.config import PPOConfig
from ppolm.data.load_rows import load_prompts
from ppolm.embedded import DEMO
from ppolm.errors import ConfigError, RunFolderError
from ppolm.storage.claim import claim_numbered
from ppolm.storage.output_folder import claim_result

if TYPE_CHECKING:
    from ppolm.runs.overopt_report import Curve


@dataclass(frozen=True)
class OveroptArguments:
    """Train once per kl_coef, past every alarm, and draw reward and judge against KL.

    On the embedded world by default. With --config, on any run that has a judge: a reward that is not trained on.
    """

    kl_coefs: tuple[float, ...] = (0.0, 0.05, 0.2)
    """Weights of the KL penalty to try."""
    steps: int = 100
    """PPO steps of each run."""
    eval_every: int = 10
    """PPO steps between evaluations: the points of the curves."""
    seed: int = 0
    """Seed of adapters, sampling and shuffling."""
    config: str | None = None
    """YAML file with the other settings. Default: the demo's."""
    output: str | None = None
    """Folder for the runs and the picture. Default: runs/overopt-<date and time>."""


def main(argv: list[str]) -> None:
    """Run the sweep and print its table."""
    arguments = parse(OveroptArguments, "ppolm overopt", argv)
    config = PPOConfig.from_yaml(arguments.config or DEMO)
    if config.judge is None or config.prompts is None:
        raise ConfigError(f"{arguments.config} needs a judge (a reward that is not trained on) and prompts.")
    if not arguments.kl_coefs:
        raise ConfigError("kl_coefs is empty, so there is nothing to try. Give at least one weight of the KL penalty.")
    if len({f"{kl_coef:g}" for kl_coef in arguments.kl_coefs}) < len(arguments.kl_coefs):  # as in folder names
        raise ConfigError(f"kl_coefs names a value twice: {arguments.kl_coefs}.")
    if arguments.eval_every < 1:
        raise ConfigError(f"eval_every is {arguments.eval_every}, expected at least 1: evaluations are the points.")
    if arguments.output is not None:
        claim = claim_result(Path(arguments.output))
    else:
        claim = claim_numbered(Path(f"runs/overopt-{datetime.now():%Y%m%d-%H%M%S}"), "Give --output.")
    with claim:
        sweep(config, arguments, claim.folder)


def sweep(config: PPOConfig, arguments: OveroptArguments, folder: Path) -> None:
    """One run after the other, in a claimed folder."""
    from ppolm.runs.overopt_report import write_overopt_report

    runs = [
        config.changed(
            kl_coef=kl_coef,
            adaptive_kl=False,
            max_steps=arguments.steps,
            num_epochs=None,  # max_steps ends the run
            eval_every=arguments.eval_every,
            seed=arguments.seed,
            stop_on_alarm=False,
            output_dir=str(folder),
            run_name=f"kl_coef-{kl_coef:g}",
        )
        for kl_coef in arguments.kl_coefs
    ]
    curves = [sweep_one(run) for run in runs]
    print(write_overopt_report(folder, curves))


def sweep_one(config: PPOConfig) -> Curve:
    """One run of the sweep and its evaluations."""
    import sys

    from ppolm.ppo_trainer import PPOTrainer
    from ppolm.runs.overopt_report import Curve
    from ppolm.runs.prompt_schedule import plan_prompts
    from ppolm.storage.metrics_log import read_metrics

    print(f"kl_coef {config.kl_coef:g}", file=sys.stderr)
    split, skip_bad = config.dataset_split, config.skip_bad_rows
    prompts = load_prompts(str(config.prompts), split, skip_bad)
    held_out = None if config.eval_prompts is None else load_prompts(config.eval_prompts, split, skip_bad)
    trainer = PPOTrainer(config)
    if not plan_prompts(config, trainer.generator, prompts, None, held_out).held_out:
        raise ConfigError(
            f"eval_fraction {config.eval_fraction:g} of {len(prompts)} prompts holds none out, so there would be no "
            "points to draw. Raise it, or give eval_prompts."
        )
    results = trainer.train(prompts, config.num_epochs, eval_prompts=held_out)
    evaluations = read_metrics(results.run_dir, "eval")
    if not evaluations:
        raise RunFolderError(f"{results.run_dir}/metrics.jsonl holds no evaluations to draw. Is the disk full?")
    return Curve(config.kl_coef, evaluations)
