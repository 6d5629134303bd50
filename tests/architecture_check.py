"""Compares everything that PPO computes with one architecture to plain transformers and peft."""

from __future__ import annotations

import copy
import tempfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch
from peft import PeftModel
from torch import Tensor
from transformers import AutoModelForCausalLM

from ppolm.base_setup.load_model import find_blocks, find_transformer
from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.base_setup.trunk import Trunk, trunk_refusal
from ppolm.batches import packing_cost
from ppolm.batches.sequences import TokenSequences
from ppolm.config import PPOConfig
from ppolm.errors import ModelError
from ppolm.rollout.sampling import Sampling
from tests.architectures import VOCABULARY, make_architecture

TEMPERATURE, NEW_TOKENS, BUDGET = 0.7, 10, 256
AGREES = 1e-4
"""Largest difference that counts as rounding: in nats for log-probabilities, relative to their size for the rest. Where
the library's own float32 rounds more than that, the limit is twice its rounding."""


@dataclass(frozen=True)
class Outcome:
    """The result for one architecture."""

    refused: str | None = None
    """The message with which it is refused."""
    off: dict[str, float] | None = None
    """How far each of our numbers is off; None if it is refused."""
    on: tuple[str, ...] = ()
    """The fast paths in use."""
    sampler: str = ""
    rounding: float = 0.0
    """Distance of the library's float32 from float64, relative to the states; measured if something is off."""

    @property
    def wrong(self) -> dict[str, float]:
        """What is off by more than rounding."""
        limit = max(AGREES, 2 * self.rounding)
        return {name: value for name, value in (self.off or {}).items() if not value <= limit}


def check_architecture(name: str) -> Outcome:
    """Make a tiny model, load it as PPO does, and compare."""
    with tempfile.TemporaryDirectory() as place:
        folder = make_architecture(name, Path(place) / "model")
        config = PPOConfig(
            model_name=str(folder), device="cpu", lora_r=4, max_new_tokens=NEW_TOKENS, microbatch_tokens=BUDGET
        )
        try:
            models = setup_models(config)
        except ModelError as error:
            return Outcome(refused=" ".join(str(error).split()).replace(str(folder), "MODEL"))
        return _compare(models, folder, Path(place))


def _compare(models: Models, folder: Path, place: Path) -> Outcome:
    assert models.reward is not None
    roles = {"policy": models.policy, "value": models.value, "reward": models.reward}
    with torch.random.fork_rng():
        torch.manual_seed(1)
        for name, role in roles.items():
            for parameter in role.parameters().values():
                torch.nn.init.normal_(parameter, std=0.15)
            models.adapters.save(name, place / name)
    plain = Plain(folder, place)
    # The first sequences have one answer per prompt; with the rest, some prompts have several.
    prompts = [_tokens(length, i) for i, length in enumerate((5, 17, 9, 2))]
    answers = [_tokens(length, 50 + i) for i, length in enumerate((12, 3, 7, 1, 9, 6))]
    alone, shared = TokenSequences(prompts, answers[:4]), TokenSequences([*prompts, *prompts[:2]], answers)
    expected = plain.logprobs(shared)
    with patch.object(packing_cost, "PAYS", 1e9):  # forces packing, which would not pay for such short answers
        return _outcome(models, plain, prompts, alone, shared, expected)


def _outcome(
    models: Models,
    plain: Plain,
    prompts: list[Tensor],
    alone: TokenSequences,
    shared: TokenSequences,
    expected: Tensor,
) -> Outcome:
    assert models.reward is not None
    off = {
        "log-probabilities": _gap(models.policy.logprobs(alone, TEMPERATURE, BUDGET), expected[: alone.starts[-1]]),
        "shared prompts": _gap(models.policy.logprobs(shared, TEMPERATURE, BUDGET), expected),
        "sampler": _sampler_gap(models, plain, [*prompts, prompts[1]]),
        "policy gradient": _gradient_gap(models, plain, shared),
        "values": _relative(models.value.values(shared, BUDGET), plain.values(shared, models.value.head)),
        "rewards": _relative(models.reward.scores(shared), plain.scores(shared, models.reward.head)),
    }
    found = models.setup.capabilities
    models.adapters.activate(None)
    blocks = find_blocks(models.setup.causal_lm)[1]
    trunk = len(blocks) > 1 and trunk_refusal(models.setup, Trunk(models.setup, blocks, 1, 0)) is None
    on = tuple(path for path in found.on if path != "shared_trunk" or trunk)
    rounding = plain.rounding(shared) if max(off.values()) > AGREES else 0.0
    return Outcome(off=off, on=on, sampler=found.sampler_for(17 + NEW_TOKENS), rounding=rounding)


class Plain:
    """transformers and peft as they are: eager attention, one sequence at a time, no cache."""

    def __init__(self, folder: Path, adapters: Path) -> None:
        options: dict[str, Any] = {"dtype": torch.float32}
        try:
            base = AutoModelForCausalLM.from_pretrained(folder, attn_implementation="eager", **options)
        except ValueError:  # it has no eager attention
            base = AutoModelForCausalLM.from_pretrained(folder, **options)
        self.model = PeftModel.from_pretrained(base.eval(), str(adapters / "policy"), adapter_name="first")
        self.model.load_adapter(str(adapters / "value"), "second")
        self.model.load_adapter(str(adapters / "reward"), "third")
        self.model.eval()

    def logprobs(self, sequences: TokenSequences, gradients: bool = False) -> Tensor:
        """log π(a|s) of every action."""
        self.model.set_adapter("first")
        found = []
        for prompt, answer in zip(sequences.contexts, sequences.actions, strict=True):
            with torch.set_grad_enabled(gradients):
                logits = self.model(input_ids=torch.cat([prompt, answer])[None], use_cache=False).logits[0].double()
                wanted = (logits / TEMPERATURE).log_softmax(-1)[len(prompt) - 1 : len(prompt) - 1 + len(answer)]
                found.append(wanted.gather(-1, answer[:, None]).squeeze(-1))
        return torch.cat(found)

    def gradients(self, sequences: TokenSequences, weights: Tensor) -> dict[str, Tensor]:
        """d Σ w log π / dθ for every parameter of the policy, by our names."""
        self.model.set_adapter("first")
        (self.logprobs(sequences, gradients=True) * weights).sum().backward()
        named = self.model.named_parameters()
        return {name.replace(".first", ".policy"): value.grad for name, value in named if value.grad is not None}

    @torch.no_grad()
    def states(self, sequences: TokenSequences, adapter: str) -> list[Tensor]:
        """Hidden states [t, d] of each whole sequence."""
        self.model.set_adapter(adapter)
        inner = find_transformer(self.model.base_model.model)
        pairs = zip(sequences.contexts, sequences.actions, strict=True)
        return [inner(input_ids=torch.cat(pair)[None], use_cache=False).last_hidden_state[0] for pair in pairs]

    def rounding(self, sequences: TokenSequences) -> float:
        """How far float32 is from float64: a model that applies its blocks repeatedly amplifies rounding errors."""
        exact = copy.deepcopy(self)
        exact.model.double()
        pairs = zip(self.states(sequences, "second"), exact.states(sequences, "second"), strict=True)
        return max(_relative(one.double(), other) for one, other in pairs)

    @torch.no_grad()
    def values(self, sequences: TokenSequences, head: Any) -> Tensor:
        """V(s) before every action."""
        states = zip(self.states(sequences, "second"), sequences.contexts, sequences.actions, strict=True)
        return torch.cat([head(one[len(p) - 1 : len(p) - 1 + len(a)]) for one, p, a in states])

    @torch.no_grad()
    def scores(self, sequences: TokenSequences, head: Any) -> Tensor:
        """A score at the end of every sequence."""
        return torch.cat([head(one[-1:]) for one in self.states(sequences, "third")])


def _tokens(count: int, seed: int) -> Tensor:
    return torch.randint(3, VOCABULARY, (count,), generator=torch.Generator().manual_seed(seed))


def _gap(ours: Tensor, plain: Tensor) -> float:
    """Largest difference in nats; relative for log-probabilities far from 0."""
    return float(((ours.double() - plain.double()).abs() / plain.double().abs().clamp(min=5)).max()) * 5


def _relative(ours: Tensor, plain: Tensor) -> float:
    return float((ours - plain).abs().max() / plain.abs().max().clamp(min=1e-6))


def _sampler_gap(models: Models, plain: Plain, prompts: list[Tensor]) -> float:
    uniforms = torch.rand(len(prompts), NEW_TOKENS, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    given = [prompt.tolist() for prompt in prompts]
    sampled = models.policy.generate(given, Sampling(NEW_TOKENS, temperature=TEMPERATURE), uniforms)
    drawn = TokenSequences(prompts, [torch.tensor(one.token_ids) for one in sampled])
    return _gap(torch.cat([torch.tensor(one.logprobs) for one in sampled]), plain.logprobs(drawn))


def _gradient_gap(models: Models, plain: Plain, sequences: TokenSequences) -> float:
    weights = torch.randn(sequences.starts[-1], generator=torch.Generator().manual_seed(4))
    expected = plain.gradients(sequences, weights)
    with models.policy.active(trainable=True):
        for batch in models.policy.microbatches(sequences, BUDGET // 4):
            (models.policy.token_logprobs(batch, TEMPERATURE)[0] * weights[batch.rows]).sum().backward()
    size = max(float(value.abs().max()) for value in expected.values())
    zero = torch.zeros(())
    own = {name: zero if value.grad is None else value.grad for name, value in models.policy.parameters().items()}
    assert own.keys() >= expected.keys()
    return max(float((own[name] - expected.get(name, zero)).abs().max()) for name in own) / size
