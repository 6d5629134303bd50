"""The reward model: one score for a prompt with its response."""

from __future__ import annotations

import json
import math
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ppolm.base_setup import AdapterSet
from ppolm.base_setup.device import scoring_tokens
from ppolm.batches.packing import Answers
from ppolm.batches.sequences import TokenSequences, cut_middle
from ppolm.data.prompts import preview
from ppolm.errors import ModelError, RewardError
from ppolm.messages import reason
from ppolm.models.base_model import BaseModel, scores_of
from ppolm.models.scalar_head import ScalarHead

NORM_FILE = "reward.json"
LIMITS = ("max_tokens", "max_prompt_tokens")


class RewardModel(BaseModel):
    """score = (w · h_last − mean) / std: the reward adapter with a scalar head, read at the last token.

    ``mean`` and ``std`` are the statistics of the raw score over reference responses. They are saved with the model,
    so that a score means the same wherever it is used: 0 is an average reference response.
    """

    shares_passes = True
    """Called on every process of a job, it computes its share; other rewards are called by the first one alone."""

    def __init__(self, adapters: AdapterSet, token_budget: int, name: str = "reward") -> None:
        super().__init__(adapters, name)
        self.head = adapters.heads[name] = ScalarHead(self.setup.hidden_size, self.setup.device)
        self.token_budget = token_budget
        self.mean, self.std = 0.0, 1.0
        self.max_tokens: int | None = None
        self.max_prompt_tokens: int | None = None
        """What it was trained to read: the middle of a longer prompt is cut, here as in training."""
        self.trained = False
        self.folder = "without a folder"
        """Where it was loaded from, for messages."""

    def __call__(self, prompts: Sequence[object], responses: Sequence[str]) -> list[float]:
        """A score per response, from the sampled token ids where the response carries them."""
        items = [self.encode(*pair) for pair in zip(prompts, responses, strict=True)]
        return self.scores(TokenSequences([one.prompt for one in items], [one.answers[0] for one in items])).tolist()

    def encode(self, prompt: object, response: str) -> Answers:
        """Token ids of a prompt, cut to what the model was trained to read, and of a response."""
        if hasattr(response, "prompt_ids"):
            ids, answer = response.prompt_ids, response.token_ids  # type: ignore[attr-defined]
        else:
            ids = self.setup.tokenizer.encode(prompt)  # type: ignore[arg-type]
            # Plain text counts as a complete answer, as in training; sampled tokens show whether they ended.
            answer = self.setup.tokenizer.encode_answer(prompt, response)  # type: ignore[arg-type]
        limit = min(self.max_tokens or 10**9, self.setup.context_length or 10**9)
        if len(answer) >= limit:
            raise RewardError(
                f"A response has {len(answer)} tokens, and the reward model reads at most {limit} with the prompt. "
                f"Shorten it; it begins {preview(response)}"
            )
        room = min(self.max_prompt_tokens or limit, limit - len(answer))
        return Answers(cut_middle(torch.tensor(ids), room), (torch.tensor(answer, dtype=torch.long),))

    def scores(self, sequences: TokenSequences | Sequence[Tensor]) -> Tensor:
        """Normalised scores [S] of whole token sequences, or of prompts with their answers."""
        if not isinstance(sequences, TokenSequences):
            sequences = _whole(sequences)
        pairs = zip(sequences.contexts, sequences.actions, strict=True)
        if any(len(prompt) + len(answer) == 0 for prompt, answer in pairs):
            raise RewardError("The reward model was given an empty prompt with an empty response: nothing to read.")
        raw = self.score(sequences, self.token_budget, lambda batch: self.head(self.states(batch)), "ends")
        return (raw - self.mean) / self.std

    def score_texts(self, prompts: Sequence[object], responses: Sequence[str]) -> list[float]:
        """Raw scores, on the scale on which σ(s₁ − s₂) is the probability that the first of two answers wins.

        A prompt is computed once for several responses, if the model supports packed sequences and it costs less.
        """
        items = [self.encode(*pair) for pair in zip(prompts, responses, strict=True)]
        packs = self.setup.capabilities.masks("packed_prompts", max(item.size for item in items))
        return self._raw_scores(items, packs).tolist()

    @torch.no_grad()
    def _raw_scores(self, items: Sequence[Answers], packs: bool) -> Tensor:
        count = sum(len(item.answers) for item in items)
        with self.active():  # once for all batches
            tokens = scoring_tokens(self.setup.device, self.token_budget)
            batches = self.passes(items, tokens, "ends", packs)
            own = scores_of(batches, lambda batch: self.head(self.states(batch)), count)
        return self.setup.ranks.sum(own)

    def set_scale(self, references: TokenSequences | Sequence[Tensor]) -> None:
        """Normalise so that scores of reference responses have mean 0 and standard deviation 1."""
        self.mean, self.std = 0.0, 1.0
        raw = self.scores(references).double()
        if len(raw) < 2:
            raise RewardError("One reference response is too few for a scale of scores. Give at least two.")
        self.mean, self.std = float(raw.mean()), float(raw.std().clamp(min=1e-6))
        self.trained = True

    def parameters(self) -> dict[str, Tensor]:
        """Adapter and head."""
        return super().parameters() | {f"head.{name}": value for name, value in self.head.named_parameters()}

    def save(self, folder: str | Path) -> None:
        """Write adapter, head and normalisation."""
        super().save(folder)
        self.head.save(folder)
        (Path(folder) / NORM_FILE).write_text(json.dumps(self._about()))

    def _about(self) -> dict[str, float]:
        limits = {name: getattr(self, name) for name in LIMITS}
        return {"mean": self.mean, "std": self.std} | {k: v for k, v in limits.items() if v is not None}

    def load_head(self, folder: str | Path) -> None:
        """Read head and normalisation."""
        self.folder = str(folder)
        self.head.load(folder)
        try:
            norm = json.loads((Path(folder) / NORM_FILE).read_text())
            self.mean, self.std = float(norm["mean"]), float(norm["std"])
            for name in LIMITS:
                setattr(self, name, None if norm.get(name) is None else int(norm[name]))
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError) as error:
            said = reason(error)
            raise ModelError(f"{folder}/{NORM_FILE} (mean and std of the reward) cannot be read: {said}") from error
        if not self.std > 0:
            raise ModelError(f"{folder}/{NORM_FILE} has std {self.std}, expected a number greater than 0.")
        if not math.isfinite(self.mean) or not math.isfinite(self.std):
            raise ModelError(f"{folder}/{NORM_FILE} has mean {self.mean} and std {self.std}, expected finite numbers.")
        self.trained = True


def _whole(sequences: Sequence[Tensor]) -> TokenSequences:
    """Sequences in which it is not known where the answer begins."""
    return TokenSequences(contexts=sequences, actions=[torch.zeros(0, dtype=torch.long)] * len(sequences))
