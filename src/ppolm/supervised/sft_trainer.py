"""Supervised fine-tuning: the loss is on the completion only."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import torch
from torch import Tensor

from ppolm.base_setup import AdapterSet, BaseModelSetup, new_lora_config
from ppolm.config import SFTConfig
from ppolm.data.examples import Demonstration
from ppolm.data.sequences import Microbatch, TokenSequences
from ppolm.models.full_model import FullModel
from ppolm.models.language_model import LanguageModel
from ppolm.supervised.supervised_trainer import SupervisedTrainer
from ppolm.supervised.tokens import completion_ids, refuse_long

Pair = tuple[Tensor, Tensor]
"""Token ids of a prompt and of its completion, EOS included."""


class SFTTrainer(SupervisedTrainer[Pair]):
    """Minimises −log π(completion | prompt) per token. The result is a PEFT adapter, or a whole model folder."""

    name = "sft"
    model: LanguageModel

    def __init__(
        self, config: SFTConfig, rows: Sequence[Demonstration], held_out: Sequence[Demonstration] | None = None
    ) -> None:
        setup = BaseModelSetup(config)
        adapters = AdapterSet(setup)
        if config.train == "all":
            model: LanguageModel = FullModel(adapters)
        else:
            with torch.random.fork_rng():
                torch.manual_seed(config.seed)
                adapters.create("sft", new_lora_config(config))
            model = LanguageModel(adapters, "sft")

        def encode(demonstrations: Sequence[Demonstration]) -> list[Pair]:
            tokens = setup.tokenizer
            pairs = [
                (torch.tensor(tokens.encode(row.prompt.content)), completion_ids(tokens, row.completion))
                for row in demonstrations
            ]
            refuse_long([len(prompt) + len(completion) for prompt, completion in pairs], setup.context_length)
            return pairs

        super().__init__(config, model, encode(rows), None if held_out is None else encode(held_out))

    def batch(self, rows: list[Pair]) -> tuple[Iterable[Microbatch], Callable[[Microbatch], Tensor]]:
        """Microbatches, and −Σ log π / tokens of the whole batch."""
        sequences = _sequences(rows)
        count = sum(map(len, sequences.actions))
        setup = self.model.setup
        microbatches = sequences.microbatches(self.config.microbatch_tokens, setup.tokenizer.pad_id, setup.device)
        return microbatches, lambda batch: -self.model.token_logprobs(batch, temperature=1.0)[0].sum() / count

    def measure(self) -> dict[str, float]:
        """Loss per completion token."""
        logprobs = self.model.logprobs(_sequences(self.held_out), 1.0, self.config.microbatch_tokens)
        return {"loss": float(-logprobs.double().mean())}


def _sequences(rows: Sequence[Pair]) -> TokenSequences:
    return TokenSequences([prompt for prompt, _ in rows], [completion for _, completion in rows])
