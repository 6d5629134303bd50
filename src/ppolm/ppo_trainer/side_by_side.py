"""A run's policy and its reference answer the same prompt, and each token says what both thought of it."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ppolm.base_setup import AdapterSet, BaseModelSetup
from ppolm.config import PPOConfig
from ppolm.data.prompts import Prompt
from ppolm.engines.build_engine import build_engine
from ppolm.errors import DataError
from ppolm.models import PolicyModel, SFTModel
from ppolm.ppo_trainer.run_comparison import policy_folders, read_state
from ppolm.reward_kl.kl_divergence import add_kl_to_sa_pairs
from ppolm.rollout.generated_text import GeneratedText
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling
from ppolm.runs.chat_prompts import as_chat, trained_on_chats
from ppolm.storage.code_consent import ask_consent
from ppolm.storage.stored_run import read_run_config
from ppolm.token_attribution.token_attribution import TokenAttributor

COLUMNS = ("logprob_policy", "logprob_ref", "kl")
"""What is said of every token, by the names of the table."""


@dataclass(frozen=True)
class Answer:
    """A response, token by token."""

    text: str
    ended: bool
    pieces: Sequence[str]
    """The text of each token, special ones included."""
    token_ids: Sequence[int]
    special: Sequence[int]
    """Positions of tokens that are no text, such as the end."""
    columns: Mapping[str, Sequence[float]]
    """``COLUMNS``, a number per token."""


@dataclass(frozen=True)
class Answers:
    """What policy and reference answered, and how they were asked."""

    prompt: Prompt
    prompt_text: str
    """The prompt as the model read it, with its special tokens."""
    prompt_tokens: int
    sampling: Sampling
    policy: Answer
    reference: Answer


class SideBySide:
    """Loads policy and reference of a run, and nothing else: no value model, no reward, no code of the user's."""

    def __init__(
        self,
        run: Path,
        which: str = "best",
        machine: Mapping[str, Any] = MappingProxyType({}),
        flags: Sequence[str] = (),
        command: str = "generate --run",
    ) -> None:
        """``which``: best, last, or a checkpoint folder; ``machine``: settings that take the place of the run's.

        ``flags`` are what was typed after ``command``: whoever names code there agrees to it.
        """
        config = read_run_config(run)
        ask_consent(run, config, flags, command, rewards=False)
        adapter, _, state = policy_folders(run, which)
        self.step = read_state(state).get("step")
        """PPO steps that the policy was trained for, if its folder says so."""
        self.chat = trained_on_chats(run / "best")
        """Whether the run was trained on chats, so that text is what a user says in one."""
        self.config: PPOConfig = config.changed(**machine)
        adapters = AdapterSet(BaseModelSetup(self.config))
        if self.config.reference_adapter is not None:
            adapters.load("sft", self.config.reference_adapter)
        adapters.load("policy", adapter)
        self.setup, self.policy, self.reference = adapters.setup, PolicyModel(adapters), SFTModel(adapters)
        self.engine = build_engine(self.config, self.policy)
        """What the policy answers with. An engine serves the policy only, so the reference answers by itself."""

    def answer(self, prompt: Prompt, sampling: Sampling, seed: int, chat: bool | None = None) -> Answers:
        """Both answer with the same random numbers. ``chat``: text as a chat; None: as the run was trained."""
        asked = as_chat(prompt) if (self.chat if chat is None else chat) else prompt
        sampling = self._fitting(asked, sampling)
        texts, logprobs = [], []
        for engine in (self.engine, self.reference):
            sampled, numbers = Generator(engine, self.setup, sampling, seed).generate([asked])
            texts += sampled
            logprobs += numbers
        scorer = TokenAttributor(
            self.policy, self.reference, sampling.temperature, self.config.microbatch_tokens, "always"
        )
        pairs = add_kl_to_sa_pairs(scorer.extract_pairs(texts, logprobs), self.config.kl_estimator)
        columns = {name: pairs.column(name).tolist() for name in COLUMNS}
        split = len(texts[0].token_ids)
        policy = self._answer(texts[0], {name: numbers[:split] for name, numbers in columns.items()})
        reference = self._answer(texts[1], {name: numbers[split:] for name, numbers in columns.items()})
        ids = texts[0].prompt_ids
        read = self.setup.tokenizer.decode_prompt(ids)
        return Answers(asked, read, len(ids), sampling, policy, reference)

    def _fitting(self, prompt: Prompt, sampling: Sampling) -> Sampling:
        """As many new tokens as the model's context leaves room for."""
        tokens, context = len(self.setup.tokenizer.encode(prompt.content)), self.setup.context_length
        if context is None or tokens + sampling.max_new_tokens <= context:
            return sampling
        if tokens >= context:
            raise DataError(
                f"The prompt has {tokens} tokens, and the model reads {context} with its answer. Shorten the prompt."
            )
        return dataclasses.replace(sampling, max_new_tokens=context - tokens)

    def _answer(self, text: GeneratedText, columns: Mapping[str, Sequence[float]]) -> Answer:
        marks = {*self.setup.tokenizer.tokenizer.all_special_ids, *self.setup.tokenizer.eos_ids}
        special = [at for at, token in enumerate(text.token_ids) if token in marks]
        return Answer(str(text), text.ended, text.tokens, text.token_ids, special, columns)
