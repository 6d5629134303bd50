"""Supervised fine-tuning: the loss is on the completion only."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ppolm.base_setup import AdapterSet, BaseModelSetup, new_lora_config
from ppolm.base_setup.recomputation import plan_recomputation
from ppolm.batches.packing import Answers
from ppolm.batches.sequences import Microbatch
from ppolm.config import SFTConfig
from ppolm.data.examples import Demonstration
from ppolm.models.full_finetune_model import FullFinetuneModel
from ppolm.models.language_model import LanguageModel
from ppolm.storage.starting_point import starting_adapter
from ppolm.supervised.supervised_trainer import SupervisedTrainer
from ppolm.supervised.tokens import encode_rows


@dataclass(frozen=True)
class Demonstrated:
    """Token ids of a demonstration, and the key of its prompt."""

    tokens: Answers
    prompt_key: bytes


class SFTTrainer(SupervisedTrainer[Demonstrated]):
    """Minimises −log π(completion | prompt) per token. The result is a PEFT adapter, or a whole model folder."""

    name = "sft"
    model: LanguageModel

    def __init__(
        self, config: SFTConfig, rows: Sequence[Demonstration], held_out: Sequence[Demonstration] | None = None
    ) -> None:
        if config.train == "all" and config.dtype == "auto":
            config = dataclasses.replace(config, dtype="float32")  # bfloat16 weights would round away such small steps
        start = starting_adapter(config)  # before anything large is loaded
        setup = BaseModelSetup(config)
        adapters = AdapterSet(setup)
        if config.train == "all":
            model: LanguageModel = FullFinetuneModel(adapters)
            plan_recomputation(adapters, [None], config)
        else:
            with torch.random.fork_rng():
                torch.manual_seed(config.seed)
                if start is None:
                    adapters.create("sft", new_lora_config(config, setup.causal_lm))
                else:
                    adapters.load("sft", start)
            adapters.share_trunk(["sft"], config.trunk_mib)
            plan_recomputation(adapters, ["sft"], config)
            model = LanguageModel(adapters, "sft")

        def encode(demonstrations: Sequence[Demonstration]) -> list[Demonstrated]:
            encoded = encode_rows(demonstrations, lambda row: (row.prompt, (row.completion,)), setup, config)
            return [Demonstrated(tokens, row.prompt.key) for row, tokens in encoded]

        super().__init__(config, model, encode(rows), None if held_out is None else encode(held_out))

    def answers_of(self, row: Demonstrated) -> Answers:
        """Token ids of prompt and completion."""
        return row.tokens

    def prompt_key(self, row: Demonstrated) -> bytes:
        """The key of the completion's prompt."""
        return row.prompt_key

    def batch(self, rows: list[Demonstrated]) -> tuple[Iterable[Microbatch], Callable[[Microbatch], Tensor]]:
        """Microbatches, and −Σ log π / tokens of the whole batch."""
        count = sum(len(row.tokens.answers[0]) for row in rows)
        return self.microbatches(rows), lambda batch: self._loss(batch) / count

    def measure(self) -> dict[str, float]:
        """Loss per completion token."""
        with torch.no_grad():
            own = [(float(self._loss(batch)), len(batch.actions)) for batch in self.microbatches(self.held_out)]
        losses = [one for part in self.ranks.gather(own) for one in part]
        return {"loss": sum(loss for loss, _ in losses) / sum(count for _, count in losses)}

    def _loss(self, batch: Microbatch) -> Tensor:
        return -self.model.token_logprobs(batch, temperature=1.0)[0].sum()

    def microbatches(self, rows: Sequence[Demonstrated]) -> Iterable[Microbatch]:
        """Forward passes with shared prompts, packed rows or padding, whichever is cheapest."""
        return self.model.passes([row.tokens for row in rows], self.config.microbatch_tokens, "actions")
