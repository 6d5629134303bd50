"""What a loaded model is asked for: answers of a policy beside its reference, or scores of a reward model.

Runs in the model's own process (model_worker.py). What it is asked comes from a page, so everything is checked here.
"""

from __future__ import annotations

import dataclasses
import json
import math
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

from ppolm.config import ModelSettings
from ppolm.data.prompts import Prompt, as_prompt
from ppolm.errors import ConfigError, DataError
from ppolm.messages import brief, is_utf8
from ppolm.ppo_trainer.side_by_side import Answer, SideBySide
from ppolm.readiness.removals import MOST_REMOVALS, Removals, removals
from ppolm.rollout.sampling import Sampling
from ppolm.storage.code_consent import ask_consent
from ppolm.storage.output_folder import DONE
from ppolm.supervised.load_reward import load_reward_model

LONGEST_PROMPT = 200_000
LONGEST_ANSWER = 50_000
"""Characters: enough for the contexts of today's models, and not for what would keep one busy for an hour."""
MOST_NEW_TOKENS = 2048
SAMPLING = ("temperature", "top_k", "top_p", "max_new_tokens")
UNITS = ("sentence", "token")
REMOVAL_SECONDS = 60.0


class Jobs(Protocol):
    """A loaded model and what it does."""

    def about(self) -> dict[str, Any]:
        """What was loaded, for the page."""

    def run(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Answer what was asked; raises PpolmError with a sentence if it cannot be."""


class TryJobs:
    """Policy and reference of a run."""

    def __init__(self, run: Path, which: str, device: str) -> None:
        # Whatever sampled in the run: its servers may be gone, and MLX may not be installed here.
        self.loaded = SideBySide(run, which, {"device": device, "engine": "local"})

    def about(self) -> dict[str, Any]:
        """The run's own settings, which hold unless others are asked for."""
        config, setup = self.loaded.config, self.loaded.setup
        return {
            "model_name": setup.name,
            "step": self.loaded.step,
            "chat": self.loaded.chat,
            "device": str(setup.device),
            "context_length": setup.context_length,
            "sampling": {name: getattr(config, name) for name in SAMPLING},
        }

    def run(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Both answers to ``prompt``, with the run's settings or those that are ``asked`` for."""
        began = time.monotonic()
        prompt, seed, chat = read_prompt(asked.get("prompt")), asked.get("seed", 0), asked.get("chat")
        if not isinstance(seed, int) or not 0 <= seed < 2**63:
            raise ConfigError(f"seed is {brief(seed)}, expected a whole number from 0 to 2^63 - 1.")
        if chat not in (None, True, False):
            raise ConfigError(f"chat is {brief(chat)}, expected true, false or nothing (as the run was trained).")
        answers = self.loaded.answer(prompt, self._sampling(asked), seed, chat)
        used = {name: getattr(answers.sampling, name) for name in (*SAMPLING, "greedy")}
        return {
            "prompt": answers.prompt.content,
            "prompt_text": answers.prompt_text,
            "prompt_tokens": answers.prompt_tokens,
            "sampling": {**used, "seed": seed},
            "kl_estimator": self.loaded.config.kl_estimator,
            "policy": as_json(answers.policy),
            "reference": as_json(answers.reference),
            "seconds": time.monotonic() - began,
        }

    def _sampling(self, asked: Mapping[str, Any]) -> Sampling:
        given = {name: asked[name] for name in SAMPLING if asked.get(name) is not None}
        config = self.loaded.config.changed(**given)  # checks types and ranges
        if config.max_new_tokens > MOST_NEW_TOKENS and "max_new_tokens" in given:
            raise ConfigError(f"max_new_tokens is {config.max_new_tokens}, here at most {MOST_NEW_TOKENS:,}.")
        greedy = asked.get("greedy", False)
        if not isinstance(greedy, bool):
            raise ConfigError(f"greedy is {brief(greedy)}, expected true or false.")
        most = min(config.max_new_tokens, MOST_NEW_TOKENS)
        return dataclasses.replace(Sampling.of(config), greedy=greedy, max_new_tokens=most)


class ScoreJobs:
    """A reward model."""

    def __init__(self, folder: Path, device: str) -> None:
        settings = ModelSettings(device=device, trust_remote_code=_trusts_code(folder))
        self.folder, self.model = folder, load_reward_model(str(folder), settings=settings)

    def about(self) -> dict[str, Any]:
        """What it was trained on, and the scale of its scores."""
        model, setup = self.model, self.model.setup
        return {
            "model_name": setup.name,
            "device": str(setup.device),
            "context_length": setup.context_length,
            "mean": model.mean,
            "std": model.std,
        }

    def run(self, asked: Mapping[str, Any]) -> dict[str, Any]:
        """Scores of one or two ``answers`` to ``prompt``; with a ``unit``, the change for every piece left out."""
        began = time.monotonic()
        prompt, answers, unit = read_prompt(asked.get("prompt")), asked.get("answers"), asked.get("unit")
        if not isinstance(answers, list) or not 1 <= len(answers) <= 2:
            raise DataError(f"answers is {brief(answers)}, expected a list of one or two texts.")
        texts = [read_text(text, "An answer", LONGEST_ANSWER) for text in answers]
        if unit is not None and unit not in UNITS:
            raise ConfigError(f"unit is {brief(unit)}, expected {' or '.join(UNITS)}, or nothing.")
        raw = self.model.score_texts([prompt.content] * len(texts), texts)
        results: list[dict[str, Any]] = []
        for text, score in zip(texts, raw, strict=True):
            results.append({"text": text, "raw": score, "score": (score - self.model.mean) / self.model.std})
            if unit is not None:
                found = removals(self.model, prompt.content, text, unit, REMOVAL_SECONDS / len(texts))
                results[-1] |= removals_json(found, unit)
        wins = 1 / (1 + math.exp(min(700.0, raw[1] - raw[0]))) if len(raw) == 2 else None
        return {"answers": results, "first_wins": wins, "unit": unit, "seconds": time.monotonic() - began}


def load_jobs(kind: str, folder: Path, which: str, device: str) -> Jobs:
    """The model that a process was started for."""
    if kind == "reward":
        return ScoreJobs(folder, device)
    return TryJobs(folder, which if which in ("best", "last") else str(folder / "checkpoints" / which), device)


def _trusts_code(folder: Path) -> bool:
    """Whether a reward model's base runs code of its own: only if this user trained it so, else it is refused."""
    try:
        settings = json.loads((folder / DONE).read_text(encoding="utf-8"))["config"]
        trusted, name = settings["trust_remote_code"] is True, str(settings["model_name"])
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return False  # trained elsewhere, or by an older version: without code
    if trusted:
        ask_consent(folder, ModelSettings(model_name=name, trust_remote_code=True), (), "readiness")
    return trusted


def read_prompt(value: Any) -> Prompt:
    """Text or chat messages."""
    prompt = as_prompt(value, "The prompt")
    said = prompt.content if isinstance(prompt.content, str) else "".join(m["content"] for m in prompt.content)
    read_text(said, "The prompt", LONGEST_PROMPT)
    return prompt


def read_text(value: Any, what: str, longest: int) -> str:
    """Text of bounded length."""
    if not isinstance(value, str):
        raise DataError(f"{what} is {brief(value)}, expected text.")
    if len(value) > longest:
        raise DataError(f"{what} has {len(value):,} characters, here at most {longest:,}. Shorten it.")
    if not is_utf8(value):
        raise DataError(f"{what} holds half a character, or bytes that are not UTF-8: {brief(value)}. Remove it.")
    return value


def as_json(answer: Answer) -> dict[str, Any]:
    """An answer by columns, with gaps in the place of numbers that JSON cannot hold."""
    columns = {name: finite(numbers) for name, numbers in answer.columns.items()}
    return {
        "text": answer.text,
        "ended": answer.ended,
        "pieces": list(answer.pieces),
        "token_ids": list(answer.token_ids),
        "special": list(answer.special),
        **columns,
    }


def removals_json(found: Removals, unit: str) -> dict[str, Any]:
    """Pieces and changes, and a sentence if not all of them were measured."""
    total, cut = len(found.parts), None
    if found.measured < total:
        why = f"no more than {MOST_REMOVALS}" if found.measured >= MOST_REMOVALS else "no more in the time there was"
        cut = f"Only the first {found.measured} of {total} {unit}s were left out in turn: {why}."
    changes = finite([math.nan if part.change is None else part.change for part in found.parts])
    return {"pieces": [part.text for part in found.parts], "changes": changes, "cut": cut}


def finite(numbers: Sequence[float]) -> list[float | None]:
    """Numbers, with None where one is infinite or none at all."""
    return [number if math.isfinite(number) else None for number in numbers]
