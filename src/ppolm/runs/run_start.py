"""What comes before the first step of a run: its folder is claimed, and created or resumed."""

from __future__ import annotations

import logging
from datetime import datetime
from pathlib import Path

from ppolm.components import Trainer
from ppolm.config import PPOConfig
from ppolm.config.without_effect import defaults, without_idle
from ppolm.embedded import reward_path
from ppolm.errors import RunFolderError
from ppolm.ranks import Ranks
from ppolm.readiness.stored import doubts_about
from ppolm.runs.abandoned_steps import set_aside
from ppolm.runs.ppo_checkpoint import load_state
from ppolm.runs.prompt_schedule import PromptSchedule
from ppolm.runs.run_folder import IN_USE, RunFolder, tidy_run
from ppolm.runs.run_saver import RunSaver
from ppolm.storage.claim import Claim, claim_numbered, claim_together
from ppolm.storage.prompt_record import write_held_out, write_trained_on
from ppolm.storage.refuse_changes import refuse_changes
from ppolm.storage.starting_point import fill_start, resumed_start, trained_before
from ppolm.storage.stored_run import find_checkpoint, found_start, read_run_config, run_of

log = logging.getLogger(__name__)


def run_path(config: PPOConfig) -> Path:
    """The folder of a new run."""
    name = config.run_name or f"{Path(config.model_name).name}-{datetime.now():%Y%m%d-%H%M%S}"
    return Path(config.output_dir) / name


def reward_doubts(config: PPOConfig) -> tuple[str, ...]:
    """What the reward models' own readiness reports object to, which is also logged as a warning."""
    doubts = {name: doubts_about(Path(reward_path(name))) for name in config.reward_model}
    said = tuple(
        f"The reward model {name} is not ready by its own readiness report, so its scores may not measure what you "
        f"want: {doubt}."
        for name, doubt in doubts.items()
        if doubt
    )
    for doubt in said:
        log.warning(doubt)
    return said


def claim_run(config: PPOConfig, resume: str | Path | None, ranks: Ranks) -> Claim:
    """The exclusive claim to the folder of a new or resumed run, held until the run ends."""

    def take() -> Claim:
        if resume is not None:
            run = run_of(Path(resume))
            read_run_config(run)  # raises before a folder is created for the lock
            return Claim(run, IN_USE)
        return Claim(run_path(config), IN_USE) if config.run_name else claim_numbered(run_path(config), IN_USE)

    return claim_together(take, ranks)


def create_run(folder: RunFolder, trainer: Trainer, schedule: PromptSchedule) -> None:
    """Begin a new run in its folder."""
    start = folder.config.start_from
    seen = trained_before(start)

    def write() -> None:
        folder.create()
        folder.note("capabilities", trainer.models.setup.capabilities.to_dict())
        write_held_out(folder.path, schedule.held_out)
        write_trained_on(folder.path, seen | {prompt.key for prompt in schedule.train})

    def fill(copy: Path) -> None:
        trainer.models.policy.save(copy / "policy")
        if folder.config.start_value:
            trainer.models.value.save(copy / "value")
        if trainer.models.sft.adapter is not None and folder.config.start_reference == "kept":
            trainer.models.sft.save(copy / "reference")
        fill_start(copy, str(start))

    folder.ranks.do_once(write)
    if start is not None:
        folder.keep_start(fill)


def resume_run(saver: RunSaver, path: Path) -> Path | None:
    """Continue the run or checkpoint at ``path``; returns the folder that files of later steps moved to, if any."""
    folder, trainer, schedule = saver.folder, saver.trainer, saver.schedule
    ranks, config = folder.ranks, folder.config
    ranks.do_once(lambda: tidy_run(folder.claim))
    run, checkpoint = ranks.once(lambda: find_checkpoint(path))
    folder.config = config = resumed_start(config, run)
    refuse_changes(read_run_config(run).to_dict(), config, run)
    progress = load_state(trainer, saver.others, checkpoint)
    refuse_changes(without_idle(found_start(progress["config"], run), defaults(config)), config, checkpoint)
    if progress["prompts"] != schedule.fingerprint:
        raise RunFolderError(f"Run {run} was started with other prompts. Resume it with the same ones.")
    if config.lr_schedule != "constant" and progress["total_steps"] != schedule.total_steps:
        raise RunFolderError(
            f"Run {run} was started for {progress['total_steps']} steps, and its {config.lr_schedule} "
            f"schedule depends on that; it cannot become {schedule.total_steps}. Start a new run."
        )
    ranks.do_once(folder.reopen)
    seen = {int(row["step"]) for row in (saver.evaluator.history if saver.evaluator else [])}
    saver.saved = saver.progress
    return ranks.once(lambda: set_aside(run, checkpoint, trainer.step, seen))
