"""Who answers in a chat: a policy and its reference, or a bare model alone."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ppolm.base_setup import AdapterSet, BaseModelSetup
from ppolm.config import PPOConfig
from ppolm.engines.build_engine import release_engine
from ppolm.errors import RunFolderError
from ppolm.export.source import Source, find_source
from ppolm.models import SFTModel
from ppolm.models.language_model import LanguageModel
from ppolm.names import EMBEDDED
from ppolm.ppo_trainer.side_by_side import SideBySide
from ppolm.rollout.sampling import Sampling
from ppolm.storage.output_folder import DONE
from ppolm.storage.prompt_record import HELD_OUT, read_held_out
from ppolm.storage.stored_run import run_above, run_of, run_of_best

POLICY, REFERENCE, MODEL = "policy", "reference", "model"


@dataclass(frozen=True)
class Partners:
    """Those who answer by name, the policy first."""

    config: PPOConfig
    setup: BaseModelSetup
    engines: Mapping[str, Any]
    """What each samples with: a role, which streams, or an engine of another kind, which answers in one piece."""
    chats: bool
    """Whether it was trained on chats, or is a bare model with a chat template."""
    examples: Sequence[Any] = ()
    """Prompts that it was not trained on, to try."""

    def answer(self, name: str, prompt: Sequence[int], sampling: Sampling, uniforms: Tensor) -> Iterator[int]:
        """Token ids of an answer, one by one where the engine allows it; ``uniforms`` [max_new_tokens]."""
        engine = self.engines[name]
        if isinstance(engine, LanguageModel):
            yield from engine.stream(prompt, sampling, uniforms)
        else:
            yield from engine.generate([list(prompt)], sampling, uniforms[None])[0].token_ids

    def release(self) -> None:
        """Remove what an engine has put elsewhere."""
        for engine in self.engines.values():
            release_engine(engine)


def find_partners(name: str, given: Mapping[str, Any], flags: Sequence[str] = ()) -> Partners:
    """A run or one of its checkpoints, the folder of ``ppolm sft``, or a model; ``given``: settings to use instead."""
    path = run_of_best(Path(name))
    if (path / DONE).is_file():
        return _supervised(find_source(path, flags, "chat"), given)
    if (run_of(path) / "config.yaml").is_file():
        return _run(path, given, flags)
    if name != EMBEDDED and path.is_dir() and not (path / "config.json").is_file():
        hint = run_above(path) or " Give a run, one of its checkpoints, the folder of ppolm sft, or a model."
        raise RunFolderError(f"{path} is neither a run nor a model: it has no config.yaml and no config.json.{hint}")
    return _model(PPOConfig(model_name=name, max_new_tokens=256).changed(**given))


def _run(path: Path, given: Mapping[str, Any], flags: Sequence[str]) -> Partners:
    run = run_of(path)
    both = SideBySide(run, "best" if run == path else str(path), given, flags, "chat")
    examples = read_held_out(run) if (run / HELD_OUT).is_file() else []
    engines = {POLICY: both.engine, REFERENCE: both.reference}
    return Partners(both.config, both.setup, engines, both.chat, [prompt.content for prompt in examples])


def _supervised(source: Source, given: Mapping[str, Any]) -> Partners:
    """An SFT adapter beside its base, or a model that SFT made."""
    base = source.config.model_name if source.adapter is not None else source.model
    config = PPOConfig(model_name=base, trust_remote_code=source.config.trust_remote_code, max_new_tokens=256)
    config = config.changed(**given)
    if source.adapter is None:
        return _model(config)
    adapters = AdapterSet(BaseModelSetup(config))
    adapters.load("sft", source.adapter)
    engines = {POLICY: SFTModel(adapters), REFERENCE: LanguageModel(adapters, None)}
    return Partners(config, adapters.setup, engines, adapters.setup.tokenizer.has_template)


def _model(config: PPOConfig) -> Partners:
    setup = BaseModelSetup(config)
    return Partners(config, setup, {MODEL: SFTModel(AdapterSet(setup))}, setup.tokenizer.has_template)


def draws(seed: int, turn: int, count: int) -> Tensor:
    """Random numbers [count] of one turn of a conversation: the same seed and turn, the same numbers."""
    return torch.rand(count, generator=torch.Generator().manual_seed(seed * 1_000_003 + turn), dtype=torch.float64)
