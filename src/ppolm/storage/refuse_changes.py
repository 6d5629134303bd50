"""Which settings an interrupted training may be continued with."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from ppolm.config import ModelSettings
from ppolm.config.places import anchored
from ppolm.errors import RunFolderError

MAY_CHANGE = frozenset(
    {"output_dir", "run_name", "prompts", "eval_prompts", "num_epochs", "max_steps", "patience", "device"}
    | {"stop_on_alarm"}
    | {"checkpoint_every", "keep_checkpoints", "table_every", "samples_per_step", "tensorboard"}
    | {"microbatch_tokens", "rollout_tokens", "max_skipped_updates", "threads", "plain", "without"}
    | {"on_reward_error", "default_reward", "reward_timeout", "reward_retries"}
    | {"feedback_store", "human_timeout", "human_fallback", "skip_bad_rows"}
)
"""Settings that a resumed run may change: where and how long it runs, what it writes, how much memory it takes, by
which code it is computed, and what happens when a reward fails or people do not answer. The prompts themselves are
compared by their content, the length of a run with a learning-rate schedule by its steps."""


def refuse_changes(
    saved: Mapping[str, Any], config: ModelSettings, where: Path, may_change: frozenset[str] = MAY_CHANGE
) -> None:
    """Raise if the configuration differs from a saved one in anything that changes the numbers of a step."""
    wanted, saved = config.anchored().to_dict(), anchored(saved)  # the same place may be written in several ways
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
