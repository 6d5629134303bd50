"""The reward model: one score for a prompt with its response."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import torch
from torch import Tensor

from ppolm.base_setup import AdapterSet
from ppolm.data.sequences import TokenSequences
from ppolm.errors import ModelError, RewardError
from ppolm.models.base_model import BaseModel
from ppolm.models.scalar_head import ScalarHead

NORM_FILE = "reward.json"


class RewardModel(BaseModel):
    """score = (w · h_last − mean) / std: the reward adapter with a scalar head, read at the last token.

    ``mean`` and ``std`` are the statistics of the raw score over reference responses. They are saved with the model,
    so that a score means the same wherever it is used: 0 is an average reference response.
    """

    def __init__(self, adapters: AdapterSet, token_budget: int) -> None:
        super().__init__(adapters, "reward")
        self.head = adapters.heads["reward"] = ScalarHead(self.setup.hidden_size, self.setup.device)
        self.token_budget = token_budget
        self.mean, self.std = 0.0, 1.0
        self.trained = False

    def __call__(self, prompts: Sequence[object], responses: Sequence[str]) -> list[float]:
        """A score per response, from the sampled token ids where the response carries them."""
        return self.scores([self._ids(*pair) for pair in zip(prompts, responses, strict=True)]).tolist()

    def _ids(self, prompt: object, response: str) -> Tensor:
        sampled = getattr(response, "prompt_ids", None)
        if sampled is not None:
            return torch.tensor([*sampled, *response.token_ids])  # type: ignore[attr-defined]
        encode = self.setup.tokenizer.encode
        continuation = self.setup.tokenizer.tokenizer(response, add_special_tokens=False)["input_ids"]
        return torch.tensor([*encode(prompt), *continuation])  # type: ignore[arg-type]

    def scores(self, sequences: Sequence[Tensor]) -> Tensor:
        """Normalised scores [S] of whole token sequences."""
        if any(len(ids) == 0 for ids in sequences):
            raise RewardError("The reward model was given an empty prompt with an empty response: nothing to read.")
        raw = self.score(_ends(sequences), self.token_budget, lambda batch: self.head(self.states(batch)))
        return (raw - self.mean) / self.std

    def raw_scores(self, sequences: Sequence[Tensor]) -> Tensor:
        """Scores [S] before normalisation, by one forward pass, with gradients if the role is trainable."""
        longest = max(map(len, sequences))
        (batch,) = _ends(sequences).microbatches(
            longest * len(sequences), self.setup.tokenizer.pad_id, self.setup.device
        )
        scores = self.head(self.states(batch))
        return scores[batch.rows.argsort().to(scores.device)]

    def set_scale(self, references: Sequence[Tensor]) -> None:
        """Normalise so that scores of reference responses have mean 0 and deviation 1."""
        self.mean, self.std = 0.0, 1.0
        raw = self.scores(references).double()
        self.mean, self.std = float(raw.mean()), float(raw.std().clamp(min=1e-6))
        self.trained = True

    def parameters(self) -> dict[str, Tensor]:
        """Adapter and head."""
        return super().parameters() | {f"head.{name}": value for name, value in self.head.named_parameters()}

    def save(self, folder: str | Path) -> None:
        """Write adapter, head and normalisation."""
        super().save(folder)
        self.head.save(folder)
        (Path(folder) / NORM_FILE).write_text(json.dumps({"mean": self.mean, "std": self.std}))

    def load_head(self, folder: str | Path) -> None:
        """Read head and normalisation."""
        self.head.load(folder)
        try:
            norm = json.loads((Path(folder) / NORM_FILE).read_text())
            self.mean, self.std = float(norm["mean"]), float(norm["std"])
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise ModelError(f"{folder}/{NORM_FILE} (mean and std of the reward) cannot be read: {error}") from error
        if not self.std > 0:
            raise ModelError(f"{folder}/{NORM_FILE} has std {self.std}, expected a number greater than 0.")
        self.trained = True


def _ends(sequences: Sequence[Tensor]) -> TokenSequences:
    """Sequences with a placeholder action: the state "before" it is the one after the last real token."""
    placeholder = torch.zeros(1, dtype=torch.long)
    return TokenSequences(contexts=sequences, actions=[placeholder] * len(sequences))
