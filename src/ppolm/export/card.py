"""README.md of an export: what the model is, how it was made, how good it is and how that is known, how to load it.

No path of this machine, no key and no prompt gets into it: it is meant for others.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from huggingface_hub import ModelCard, ModelCardData

from ppolm.config import PPOConfig, SFTConfig
from ppolm.config.secrets import is_url
from ppolm.export.loading_code import loading_code
from ppolm.export.source import Source
from ppolm.names import EMBEDDED
from ppolm.runs.report_text import NAME, SENTENCE, setting_text, visible
from ppolm.runs.run_facts import RunFacts, read_facts
from ppolm.runs.run_figures import final_figures
from ppolm.runs.run_warnings import warnings_of

"""In a run that was started from another one: which, and which came before that."""
PPO_SETTINGS = (
    *("learning_rate", "batch_size", "minibatch_size", "ppo_epochs", "kl_coef", "kl_estimator", "kl_placement"),
    *("clip_epsilon", "gamma", "lam", "lora_r", "lora_alpha", "trainable_layers", "max_new_tokens", "temperature"),
    *("top_k", "top_p", "missing_eos_penalty", "normalize_rewards", "dtype", "base_bits", "seed"),
)
SFT_SETTINGS = (
    *("train", "learning_rate", "lr_schedule", "num_epochs", "batch_size", "lora_r", "lora_alpha", "trainable_layers"),
    *("max_tokens", "dtype", "base_bits", "seed"),
)
OF_THE_TRAINING = ("value_accuracy",)
"""Figures that say nothing of the exported model."""
VERDICTS = {
    "improved": "On held-out prompts the reward rose by more than chance explains.",
    "unclear": "The reward rose on held-out prompts, but that may be chance.",
    "unchanged": "The reward did not rise on held-out prompts.",
    "suspect": "The reward rose, but the texts became worse: it may have been gamed.",
    "collapsed": "The training collapsed; the best policy from before is exported.",
    "over-optimised": "The reward rose further than what it stands for; the best policy from before is exported.",
}


@dataclass(frozen=True)
class Wishes:
    """What the user said about the card."""

    licence: str | None = None
    base_name: str | None = None
    """What the base is called on the Hub."""
    hub_name: str | None = None
    """What the export will be called there."""


def card_text(
    source: Source, kind: str, files: Sequence[str], precision: str, notes: Sequence[str], wishes: Wishes
) -> str:
    """The whole file. ``notes``: what a reader must know of this export."""
    base = wishes.base_name or source.base_label
    on_hub = wishes.base_name or (None if source.base_is_local else source.config.model_name)
    data = ModelCardData(
        base_model=on_hub,
        library_name="peft" if kind == "adapter" else "transformers",
        license=wishes.licence,
        pipeline_tag="text-generation",
        tags=["ppolm", "ppo" if source.is_run else "sft", *([kind] if kind in ("adapter", "gguf") else [])],
    )
    body = "\n".join(_body(source, kind, files, precision, notes, wishes, base))
    return ModelCard(f"---\n{data.to_yaml()}\n---\n\n{body}\n").content


def _body(
    source: Source,
    kind: str,
    files: Sequence[str],
    precision: str,
    notes: Sequence[str],
    wishes: Wishes,
    base: str,
) -> Iterator[str]:
    config = source.config
    forms = {"merged": "whole model", "adapter": "LoRA adapter", "gguf": "whole model as GGUF"}
    stored = f", weights in {precision}" if precision else ""
    made = "PPO (reinforcement learning from feedback)" if source.is_run else "supervised fine-tuning"
    yield from (f"# {_word(source.name)}", "")
    yield from (f"`{_word(base)}` after {made} with ppolm: a {forms[kind]}{stored}.", "")
    for note in notes:
        yield from (f"> {note}", "")
    yield from ("## Load it", "", "```python", *loading_code(kind, files, base, config, wishes.hub_name), "```", "")
    if isinstance(config, PPOConfig):
        yield from _run(source, config)
    elif isinstance(config, SFTConfig):
        yield from _supervised(source, config)
    yield from ("## Licence", "", _licence(wishes.licence, base), "")


def _run(source: Source, config: PPOConfig) -> Iterator[str]:
    facts, step = read_facts(source.name, source.folder), source.about.get("step")
    yield from ("## Is it better?", "")
    verdict = str(facts.verdict["word"])
    yield from (f"**{verdict.capitalize()}.** {VERDICTS.get(verdict, 'No verdict was reached.')}", "")
    reasons = [*facts.verdict["reasons"], *facts.alarms, *_doubts(facts)]
    yield from (*(f"- {_line(reason)}" for reason in reasons), "")
    yield from _figures(facts, step if isinstance(step, int) else None)
    yield from ("## How it was made", "")
    yield from _made(
        {
            "prompts": _places([config.prompts] if config.prompts else []) or "given in Python",
            "held-out prompts": _places([config.eval_prompts] if config.eval_prompts else []),
            "reward": _rewards(config),
            "judge (measured, never trained on)": _places([config.judge] if config.judge else []) or "none",
            "reference": _reference(config),
            "PPO steps": f"{step if isinstance(step, int) else 'unknown'} of {facts.glance.total_steps or 'unknown'}",
            "came from": facts.came_from,
        }
    )
    yield from _settings({**config.to_dict()}, PPO_SETTINGS)


def _reference(config: PPOConfig) -> str:
    if config.start_from is not None and config.start_reference == "policy":
        return "the policy that it started from"
    return "the base" if config.sft_adapter is None else f"the SFT adapter {_place(config.sft_adapter)}"


def _doubts(facts: RunFacts) -> list[str]:
    return warnings_of(facts.train, facts.evaluations, facts.settings)


def _figures(facts: RunFacts, step: int | None) -> Iterator[str]:
    """Before and after, with 95 % intervals where the spread is known."""
    figures = final_figures(facts.evaluations, step)
    if not any(row["best"] for row in figures):
        yield from ("This policy was not evaluated.", "")
        return
    number = facts.evaluations[0].get("num_prompts")
    yield from (f"On {number or 'the'} held-out prompts; in brackets 95 % intervals.", "")
    yield from ("| | before | after |", "|---|---:|---:|")
    for row in figures:
        if row["name"] in OF_THE_TRAINING:
            continue
        yield f"| {row['label']} | {_figure(row['first'])} | {_figure(row['best'])} |"
    yield ""
    for name, gain in facts.gains.items() if step == facts.glance.best_step else ():
        low, high = gain["low"], gain["high"]
        yield f"Change of the {name}, prompt by prompt: {gain['mean']:+.3g} [{low:+.3g}, {high:+.3g}].  "
    yield ""


def _figure(one: Mapping[str, float] | None) -> str:
    if one is None:
        return "–"
    return f"{one['value']:.4g}" + (f" [{one['low']:.3g}, {one['high']:.3g}]" if "low" in one else "")


def _supervised(source: Source, config: SFTConfig) -> Iterator[str]:
    rows = [row for row in source.about.get("validation", ()) if isinstance(row, dict) and "loss" in row]
    yield from ("## Is it better?", "")
    if rows:
        best = min(rows, key=lambda row: row["loss"])
        held_out = source.about.get("validation_rows", "held-out")
        yield f"Validation loss per token, on {held_out} rows: {rows[0]['loss']:.4f} before, {best['loss']:.4f} after."
        yield ""
    yield from ("## How it was made", "")
    yield from _made({"data": _places(config.data), "rows": source.about.get("training_rows", "unknown")})
    yield from _settings(config.to_dict(), SFT_SETTINGS)


def _made(rows: Mapping[str, Any]) -> Iterator[str]:
    yield from ("| | |", "|---|---|")
    yield from (f"| {name} | {_cell(value)} |" for name, value in rows.items() if value)
    yield ""


def _settings(settings: Mapping[str, Any], names: Sequence[str]) -> Iterator[str]:
    yield from ("| setting | |", "|---|---|")
    yield from (f"| `{name}` | {_cell(setting_text(settings[name]))} |" for name in names if name in settings)
    yield ""


def _rewards(config: PPOConfig) -> str:
    named = [_reward_model(config) if name == "model" else _place(name) for name in config.reward]
    if len(named) == 1:
        return named[0]
    weights = config.reward_weights or [1.0] * len(named)
    return ", ".join(f"{weight:g} x {name}" for name, weight in zip(named, weights, strict=True))


def _reward_model(config: PPOConfig) -> str:
    own = config.model_name == EMBEDDED and not config.reward_model  # the embedded model has one of its own
    if own or config.reward_model == (EMBEDDED,):
        return "the embedded reward model"
    return f"reward model {_places(config.reward_model)}".strip()


def _places(names: Iterable[str]) -> str:
    return ", ".join(map(_place, names))


def _place(name: str) -> str:
    """A file, folder or address as others may see it: no folders of this machine, nothing after a question mark."""
    if is_url(name):
        scheme, _, rest = name.partition("://")
        return _word(f"{scheme}://{rest.rpartition('@')[2].partition('?')[0]}")
    rooted = name.startswith(("/", "~", ".")) or name[1:3] in (":\\", ":/")
    return _word(name.replace("\\", "/").rstrip("/").rpartition("/")[2] if rooted else name)


def _word(text: str) -> str:
    return visible(text, NAME, keep="").replace("`", "'")


def _line(text: str) -> str:
    return visible(text, SENTENCE, keep="").replace("<", "&lt;")


def _cell(value: Any) -> str:
    return _line(str(value)).replace("|", "\\|")


def _licence(licence: str | None, base: str) -> str:
    if licence is None:
        return f"Unknown. What you may do with it depends first of all on the licence of `{_word(base)}`."
    return f"`{licence}`."
