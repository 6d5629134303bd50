"""What may be continued: finding and checking checkpoints, configurations and the best policy of a run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppolm.config import ModelSettings
from ppolm.errors import RunFolderError
from ppolm.runs.atomic import recover_folder, verify_folder
from ppolm.runs.run_folder import read_run_config

MAY_CHANGE = frozenset(
    {"output_dir", "run_name", "prompts", "eval_prompts", "num_epochs", "max_steps", "patience", "device"}
    | {"stop_on_alarm"}
    | {"checkpoint_every", "keep_checkpoints", "table_every", "samples_per_step", "tensorboard"}
    | {"microbatch_tokens", "rollout_tokens", "max_skipped_updates"}
    | {"on_reward_error", "default_reward", "reward_timeout", "reward_retries"}
    | {"feedback_store", "human_timeout", "human_fallback", "skip_bad_rows"}
)
"""Settings that a resumed run may change: where and how long it runs, what it writes, how much memory it takes, and
what happens when a reward fails or people do not answer. The prompts themselves are compared by their content, the
length of a run with a learning-rate schedule by its steps."""


def refuse_changes(
    saved: Mapping[str, Any], config: ModelSettings, where: Path, may_change: frozenset[str] = MAY_CHANGE
) -> None:
    """Raise if the configuration differs from a saved one in anything that changes the numbers of a step."""
    wanted = config.to_dict()
    changed = [
        f"{name} {saved.get(name)!r} -> {wanted[name]!r}"
        for name in wanted
        if saved.get(name) != wanted[name] and name not in may_change
    ]
    if changed:
        raise RunFolderError(
            f"{where} was started with another configuration: {'; '.join(changed)}. Resume it with its own settings, "
            "or start a new run."
        )


def run_of(path: Path) -> Path:
    """The run folder of a path that names a run or one of its checkpoints."""
    return path.parent.parent if path.parent.name == "checkpoints" else path


def find_checkpoint(path: Path) -> tuple[Path, Path]:
    """Run folder and checkpoint of a path that names either: the newest checkpoint, if it is a run. It is verified."""
    run, checkpoint = run_of(path), path
    if run == path:
        read_run_config(path)
        found = sorted((path / "checkpoints").glob("step-*"))
        if not found:
            raise RunFolderError(f"Run {path} has no checkpoint to go on from. Start a new run.")
        checkpoint = found[-1]
    elif not path.is_dir():
        raise RunFolderError(f"Checkpoint {path} does not exist.")
    try:
        verify_folder(checkpoint)
    except RunFolderError as error:
        others = [other for other in sorted(checkpoint.parent.glob("step-*")) if other != checkpoint]
        hint = f"Resume from an earlier one: --resume {others[-1]}" if others else "Start a new run."
        raise RunFolderError(f"Checkpoint {error} {hint}") from None
    return run, checkpoint


def find_best(run: Path) -> Path:
    """The folder of a run's best policy, verified."""
    read_run_config(run)
    recover_folder(run / "best")
    if not (run / "best").is_dir():
        raise RunFolderError(f"Run {run} has no best/ yet: it was stopped before its first evaluation.")
    verify_folder(run / "best")
    return run / "best"
