"""The one frozen base model that all four roles share: its weights, its tokenizer, and forward passes through it."""

from __future__ import annotations

import dataclasses
import logging
import math
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn
from transformers import AutoTokenizer

from ppolm.base_setup.block_weights import BlockWeights
from ppolm.base_setup.capabilities import Capabilities, check_padding, find_capabilities
from ppolm.base_setup.context import context_length
from ppolm.base_setup.device import (
    DTYPES,
    Precision,
    pass_cost,
    product_precision,
    resolve_device,
    resolve_dtype,
    state_precision,
)
from ppolm.base_setup.known_masks import known_rows
from ppolm.base_setup.load_model import (
    blaming,
    empty_model,
    find_blocks,
    find_transformer,
    load_causal_lm,
    load_pretrained,
)
from ppolm.base_setup.own_rounding import own_rounding
from ppolm.base_setup.tokenizer_setup import TokenizerSetup
from ppolm.base_setup.trial_text import Trial, run_plain
from ppolm.batches.sequences import Microbatch
from ppolm.config import ModelSettings
from ppolm.config.compared import compared
from ppolm.embedded import model_path
from ppolm.errors import ModelError
from ppolm.kernels.attention import MASKED
from ppolm.kernels.cpu_bfloat16 import make_bfloat16_safe
from ppolm.kernels.cpu_threads import WIDTH_OF_A_THREAD, use_threads
from ppolm.kernels.fused_block import last_block_at
from ppolm.kernels.lora_linear import apply_prepared
from ppolm.kernels.output_head import OutputHead, find_head
from ppolm.kernels.products import ComputeMode, PreparedLayers, computing, current_mode
from ppolm.kernels.products import logits as product_logits
from ppolm.kernels.recompute import recomputing
from ppolm.kernels.replaced_forward import find as find_stand_in
from ppolm.ranks import join_ranks

if TYPE_CHECKING:
    from ppolm.base_setup.sharded_base import ShardedBlocks

log = logging.getLogger(__name__)


class BaseModelSetup:
    """Base weights, tokenizer, device and precision. ``hidden_states`` runs the blocks, ``project`` gives logits."""

    def __init__(self, config: ModelSettings) -> None:
        self.name = config.anchored().model_name
        self.ranks = join_ranks()
        """The processes that share this job's passes."""
        self.ranks.agree_on(" in their settings", compared(config))  # before they do different things
        self.device = resolve_device(config.device, self.ranks.local_rank)
        source = model_path(self.name)
        self.dtype = self._choose_dtype(config, source)
        self.shards: ShardedBlocks | None = None
        """The blocks, if their weights are dealt out over the processes."""
        self.causal_lm = self._load_base(config, source)
        self.transformer = find_transformer(self.causal_lm)
        self.text_config = self.causal_lm.config.get_text_config()
        if self.device.type == "cpu":
            use_threads(config.threads, int(getattr(self.text_config, "hidden_size", WIDTH_OF_A_THREAD)))
        with blaming(self.name):
            self.context_length = context_length(self.text_config)
            """Longest sequence the model has positions for, if it says so."""
            self.tokenizer = self._load_tokenizer(source, config.trust_remote_code)
        many_rows = self.ranks.once(lambda: product_precision(self.dtype, self.device))
        self.mode = ComputeMode(many_rows, owner=object())
        self.fused = False
        """Whether our fused blocks are in use."""
        self.last_block: nn.Module | None = None
        """The last block, if it can be computed only at some positions."""
        self.recomputes_above = math.inf
        """Tokens of a pass with gradients above which its blocks keep only their inputs (see recomputation)."""
        self.capabilities = Capabilities()
        with blaming(self.name):
            trial = run_plain(self)
        self._check_finite(trial)
        self.hidden_size = trial.states.shape[1]
        """Width of the last hidden state, which the scalar heads read."""
        self.head = self._find_head(trial)
        self.rounding = own_rounding(self, trial)  # by how much two correct computations of it may differ
        check_padding(self, trial)
        self.capabilities = find_capabilities(self, trial, config.fast_paths_off)
        self.trial = trial
        self.ranks.agree("what the model can do", self.capabilities.to_dict())
        self._say_how()

    def _say_how(self) -> None:
        """Log how the model is computed."""
        if self.dtype == torch.float16 and not self.fused:
            log.warning(
                "%s computes in float16 throughout, because its blocks are the library's own: numbers beyond 65504 and "
                "gradients below 6e-8 are lost. Set dtype: float32 if updates are skipped.",
                self.name,
            )
        log.info("%s is computed with %s", self.name, self.capabilities)

    def _choose_dtype(self, config: ModelSettings, source: str) -> torch.dtype:
        """The precision of the weights, chosen by one process for all: where timing decides, they could differ."""

        def parameters() -> int:
            return empty_model(source, config.trust_remote_code).num_parameters()

        return self.ranks.once(lambda: resolve_dtype(config.dtype, self.device, parameters))

    def _load_base(self, config: ModelSettings, source: str) -> Any:
        """The model, frozen, on its device."""
        if self.device.type == "cpu" and self.dtype == torch.bfloat16:
            make_bfloat16_safe()
        given = (source, self.dtype, config.trust_remote_code, self.device)
        if config.shard_base and self.ranks.shares:
            from ppolm.base_setup.sharded_base import load_sharded

            model, self.shards = load_sharded(*given, self.ranks)
        else:
            model = load_causal_lm(*given, config.base_bits)
        model.name_or_path = self.name  # saved adapters name their base as the user does
        return model.eval().requires_grad_(False)

    def _load_tokenizer(self, source: str, trust_remote_code: bool) -> TokenizerSetup:
        eos = self.causal_lm.generation_config.eos_token_id if self.causal_lm.generation_config else None
        eos_ids = [] if eos is None else [eos] if isinstance(eos, int) else list(eos)
        tokenizer = load_pretrained(AutoTokenizer, source, trust_remote_code)
        if not tokenizer("any text")["input_ids"]:  # transformers creates an empty one when the files are missing
            raise ModelError(
                f"Model {self.name} has no tokenizer files. Copy tokenizer.json and its config beside the model."
            )
        return TokenizerSetup(tokenizer, self.text_config.vocab_size, eos_ids)

    def _check_finite(self, trial: Trial) -> None:
        if not trial.logits.isfinite().all():
            hint = " Set dtype: float32, which reaches further." if self.dtype == torch.float16 else ""
            raise ModelError(
                f"Model {self.name} gives logits that are not finite in {self.precision['weights']}.{hint}"
            )

    def _find_head(self, trial: Trial) -> OutputHead:
        """How logits follow from hidden states; an architecture for which this is unknown is refused."""
        kind, output = type(self.causal_lm).__name__, self.causal_lm.get_output_embeddings()
        if output is None:
            raise ModelError(f"Model {self.name} ({kind}) has no output matrix, so it is not a language model.")
        head = None
        if getattr(output, "in_features", self.hidden_size) == self.hidden_size:
            with torch.no_grad():
                product = output(trial.states.to(self.device, self.dtype)).float().cpu()
            head = find_head(product, trial.logits, self.text_config, self.dtype)
        if head is None:
            raise ModelError(
                f"Model {self.name} ({kind}) does more to its hidden states than multiply them by its output matrix, "
                "scale and cap them. Use another architecture, such as Qwen, Llama, Gemma, GPT-2 or GPT-NeoX."
            )
        return head

    @cached_property
    def pass_cost(self) -> int:
        """Padding tokens that cost as much as one more forward pass."""
        return pass_cost(self.device, round(BlockWeights.of(self.text_config, self.block_list).active))

    @property
    def state_dtype(self) -> torch.dtype:
        """Precision of the hidden states: float32 on a CPU with our blocks, even if the weights are bfloat16."""
        return state_precision(self.dtype, self.device, self.fused)

    @property
    def precision(self) -> dict[str, Precision]:
        """The precision of weights and products (what ``dtype: auto`` chose): a resumed training must use the same."""
        mixed = self.state_dtype != self.dtype
        found = {"weights": self.dtype, "products": self.mode.many_rows if mixed else self.dtype}
        names = {dtype: name for name, dtype in DTYPES.items()}
        return {part: names[dtype] for part, dtype in found.items()}

    def use_precision(self, saved: Mapping[str, Precision]) -> None:
        """Compute as the interrupted training did, given its ``precision``."""
        weights = self.precision["weights"]
        if saved["weights"] != weights:
            raise ModelError(f"its weights are {saved['weights']}, here {weights}. Set dtype: {saved['weights']}.")
        if self.state_dtype != self.dtype:
            self.mode = dataclasses.replace(self.mode, many_rows=DTYPES[saved["products"]])
            self.capabilities = dataclasses.replace(self.capabilities, products=saved["products"])

    def sampling(self, prepared: PreparedLayers | None) -> AbstractContextManager[None]:
        """A context for sampling one token at a time, with prepared layers if there are any."""
        return computing(dataclasses.replace(self.mode, sampling=True, prepared=prepared))

    def computing(self) -> AbstractContextManager[None]:
        """A context for computing anything with this model: in its own mode, whatever other models do."""
        mode = current_mode()
        return computing(mode if mode.sampling and mode.owner is self.mode.owner else self.mode)

    def whole(self) -> AbstractContextManager[None]:
        """A context in which this process has all weights of a sharded base; to be entered by all processes."""
        return nullcontext() if self.shards is None else self.shards.whole()

    def blocks(self, padded: bool = False, **inputs: Any) -> Any:
        """Run the transformer without its output matrix.

        ``padded`` says whether an ``attention_mask`` [B, T] hides anything: asking the device would be a wait.
        """
        if self.shards is not None and not self.ranks.shares and not self.shards.are_whole:
            raise ModelError(
                "One process cannot compute with a sharded base alone: the others hold the rest of its weights. Leave "
                "shard_base out, or what asks the model here (such as human_fallback: model)."
            )
        if "input_ids" in inputs and self.state_dtype != self.dtype:
            embedded = self.causal_lm.get_input_embeddings()(inputs.pop("input_ids"))
            inputs["inputs_embeds"] = embedded.to(self.state_dtype)
        mask = inputs.get("attention_mask")
        eager = self.causal_lm.config._attn_implementation not in MASKED
        if mask is not None and mask.dim() == 4 and (eager or self.device.type != "cpu"):
            # Eager attention adds its mask to the scores, where True would count as 1. The kernels of a GPU do, too:
            # they would convert it in every block.
            lowest = torch.finfo(self.state_dtype).min if eager else -torch.inf
            inputs["attention_mask"] = torch.zeros_like(mask, dtype=self.state_dtype).masked_fill_(~mask, lowest)
        rows = nullcontext() if self.device.type == "cpu" else known_rows(padded)
        with self.computing(), self._recomputing(inputs), rows:
            return self.transformer(**inputs)

    def _recomputing(self, inputs: Mapping[str, Any]) -> AbstractContextManager[None]:
        """Gradient checkpointing for a pass that would keep too much; nothing changes without gradients."""
        given = inputs["input_ids"] if "input_ids" in inputs else inputs["inputs_embeds"]
        recomputes = torch.is_grad_enabled() and given.shape[0] * given.shape[1] > self.recomputes_above
        return recomputing(self.block_list) if recomputes else nullcontext()

    @cached_property
    def block_list(self) -> nn.ModuleList:
        """The transformer blocks, with their adapters."""
        return find_blocks(self.causal_lm)[1]

    def hidden_states(self, inputs: Tensor, position_ids: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Last hidden states [B, T, d] of right-padded ids [B, T], or of inputs to the blocks [B, T, d].

        A mask [B, 1, T, T] is True where a token sees another.

        Under a causal mask no real token sees the padding to its right, so no attention mask is needed and positions
        are simply 0, 1, 2, ...: a row's numbers do not depend on its padding or on its batch-mates.
        """
        given: dict[str, Any] = {"inputs_embeds" if inputs.is_floating_point() else "input_ids": inputs}
        if mask is not None:
            given |= {"position_ids": position_ids, "attention_mask": mask}
        return self.blocks(**given, use_cache=False).last_hidden_state

    def wanted_states(self, inputs: Tensor, batch: Microbatch) -> Tensor:
        """The wanted states [n, d] of a microbatch, from its ids, or from inputs to the blocks.

        Where the model allows it, the last block is computed only at the wanted positions: the rest would be discarded.
        """
        positions, index = batch.wanted_positions()
        if self.last_block is None or positions.shape[1] == inputs.shape[1]:
            hidden = self.hidden_states(inputs, batch.position_ids, batch.mask)
            return hidden.flatten(0, 1)[batch.state_index]
        with last_block_at(self.last_block, positions):
            return self.hidden_states(inputs, batch.position_ids, batch.mask).flatten(0, 1)[index]

    def project(self, hidden: Tensor) -> Tensor:
        """Logits [n, V] of hidden states [n, d], as the model's own head computes them."""
        output = self.causal_lm.get_output_embeddings()  # looked up every time: an adapter may have wrapped it
        matrix = self.plain_matrix
        if matrix is None:
            return self.head.finish(output(hidden.to(self.dtype)))
        with self.computing():
            ready = apply_prepared((output,), hidden)
            return self.head.finish(product_logits(hidden, matrix) if ready is None else ready[0])

    def project_all(self, hidden: Tensor) -> Tensor:
        """Logits [n, V] on the CPU, from hidden states on any device."""
        with torch.no_grad():
            return self.project(hidden.to(self.device, self.state_dtype)).float().cpu()

    @property
    def plain_matrix(self) -> Tensor | None:
        """W [V, d], if the output layer is just a product with it and it is frozen."""
        layer = self.causal_lm.get_output_embeddings()
        plain = type(layer) is nn.Linear and layer.bias is None and not layer.weight.requires_grad
        plain = plain and find_stand_in(layer) is None and not layer._forward_hooks  # nothing changes its output
        return layer.weight if plain else None

    @property
    def output_matrix(self) -> Tensor | None:
        """W [V, d], if logits are just ``head.scale`` times the product with it."""
        return None if self.head.softcap is not None else self.plain_matrix
