"""The one frozen base model that all four roles share, and how it is loaded."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError
from torch import Tensor, nn
from transformers import AutoConfig, AutoModelForCausalLM, AutoTokenizer, PreTrainedModel

from ppolm.base_setup.attention import use_grouped_attention
from ppolm.base_setup.cpu_bfloat16 import make_bfloat16_safe
from ppolm.base_setup.cpu_memory import keep_freed_memory
from ppolm.base_setup.device import DTYPES, Precision, resolve_device, resolve_dtype
from ppolm.base_setup.fused_block import fuse_blocks, only
from ppolm.base_setup.lora_linear import apply_instead
from ppolm.base_setup.products import logits as product_logits
from ppolm.base_setup.products import many_rows_dtype, set_many_rows_dtype
from ppolm.base_setup.tokenizer_setup import TokenizerSetup
from ppolm.config import ModelSettings
from ppolm.data.hub import hub_is_reachable
from ppolm.data.sequences import Microbatch
from ppolm.embedded import model_path
from ppolm.errors import ModelError


class BaseModelSetup:
    """Base weights, tokenizer, device and precision. ``hidden_states`` runs the blocks, ``project`` gives logits."""

    def __init__(self, config: ModelSettings) -> None:
        self.name = config.model_name
        self.device = resolve_device(config.device)
        if self.device.type == "cpu":
            keep_freed_memory()
        source = model_path(self.name)
        self.dtype = resolve_dtype(
            config.dtype, self.device, lambda: empty_model(source, config.trust_remote_code).num_parameters()
        )
        if self.device.type == "cpu" and self.dtype == torch.bfloat16:
            make_bfloat16_safe()
        self.causal_lm = load_causal_lm(source, self.dtype, config.trust_remote_code).to(self.device)
        self.last_block: nn.Module | None = None
        """The last block, if it can be computed at some positions alone."""
        self.causal_lm.name_or_path = self.name  # adapters name their base as the user does
        self.causal_lm.eval().requires_grad_(False)
        self.text_config = self.causal_lm.config.get_text_config()
        eos = self.causal_lm.generation_config.eos_token_id if self.causal_lm.generation_config else None
        eos_ids = [] if eos is None else [eos] if isinstance(eos, int) else list(eos)
        tokenizer = load_pretrained(AutoTokenizer, source, config.trust_remote_code)
        if not tokenizer("any text")["input_ids"]:  # transformers makes an empty one when the files are missing
            raise ModelError(
                f"Model {self.name} has no tokenizer files. Copy tokenizer.json and its config beside the model."
            )
        self.tokenizer = TokenizerSetup(tokenizer, self.text_config.vocab_size, eos_ids)
        self._check_projection()
        use_grouped_attention(self.causal_lm)
        self.last_block = fuse_blocks(self.causal_lm, find_blocks(self.causal_lm)[1])

    @property
    def hidden_size(self) -> int:
        """Width of the last hidden state, which the scalar heads read."""
        return int(self.text_config.hidden_size)

    @property
    def context_length(self) -> int | None:
        """Longest sequence the model has positions for, if it says so."""
        return getattr(self.text_config, "max_position_embeddings", None)

    @property
    def state_dtype(self) -> torch.dtype:
        """Precision of the hidden states: float32 on a CPU, even of weights in bfloat16, where our blocks are used.

        What bfloat16 would round away differs with the batch that a sequence is in, and so between sampling, scoring
        and training.
        """
        return torch.float32 if self.last_block is not None and self.device.type == "cpu" else self.dtype

    @property
    def precision(self) -> dict[str, Precision]:
        """What ``dtype: auto`` and the timing of products chose: a resumed training must go on with the same."""
        mixed = self.state_dtype != self.dtype
        found = {"weights": self.dtype, "products": many_rows_dtype() if mixed else self.dtype}
        names = {dtype: name for name, dtype in DTYPES.items()}
        return {part: names[dtype] for part, dtype in found.items()}

    def use_precision(self, saved: Mapping[str, Precision]) -> None:
        """Compute as the interrupted training did whose ``precision`` this was."""
        weights = self.precision["weights"]
        if saved["weights"] != weights:
            raise ModelError(f"its weights are {saved['weights']}, here {weights}. Set dtype: {saved['weights']}.")
        if self.state_dtype != self.dtype:
            set_many_rows_dtype(DTYPES[saved["products"]])

    def blocks(self, **inputs: Any) -> Any:
        """Run the transformer without its output matrix."""
        if "input_ids" in inputs and self.state_dtype != self.dtype:
            embedded = self.causal_lm.get_input_embeddings()(inputs.pop("input_ids"))
            inputs["inputs_embeds"] = embedded.to(self.state_dtype)
        return self.causal_lm.base_model(**inputs)

    def hidden_states(self, inputs: Tensor, position_ids: Tensor | None = None, mask: Tensor | None = None) -> Tensor:
        """Last hidden states [B, T, d] of right-padded ids [B, T], or of what enters the blocks [B, T, d].

        A mask [B, 1, T, T] is True where a token sees another.

        Under a causal mask no real token sees the padding to its right, so no attention mask is needed and positions
        are simply 0, 1, 2, ...: a row's numbers do not depend on its padding or on its batch-mates.
        """
        given = {"inputs_embeds" if inputs.is_floating_point() else "input_ids": inputs}
        packed = {} if mask is None else {"position_ids": position_ids, "attention_mask": mask}
        return self.blocks(**given, use_cache=False, **packed).last_hidden_state

    def wanted_states(self, inputs: Tensor, batch: Microbatch) -> Tensor:
        """The wanted states [n, d] of a microbatch, from its ids, or from what enters the blocks.

        The last block's output at other positions would be thrown away; it is not computed where the model allows it.
        """
        positions, index = batch.wanted_positions()
        if self.last_block is None or positions.shape[1] == inputs.shape[1]:
            hidden = self.hidden_states(inputs, batch.position_ids, batch.mask)
            return hidden.flatten(0, 1)[batch.state_index]
        with only(self.last_block, positions):
            return self.hidden_states(inputs, batch.position_ids, batch.mask).flatten(0, 1)[index]

    def project(self, hidden: Tensor) -> Tensor:
        """Logits [n, V] of hidden states [n, d], as the model's own head computes them."""
        matrix = self.output_matrix
        if matrix is not None and hidden.dim() == 2:
            ready = apply_instead((self.causal_lm.get_output_embeddings(),), hidden)
            return product_logits(hidden, matrix) if ready is None else ready[0]
        # Asked for anew: an adapter may have wrapped it.
        logits = self.causal_lm.get_output_embeddings()(hidden.to(self.dtype))
        softcap = getattr(self.text_config, "final_logit_softcapping", None)
        return logits if softcap is None else torch.tanh(logits / softcap) * softcap

    @property
    def output_matrix(self) -> Tensor | None:
        """W [V, d], if ``project`` is nothing but the product with it and it is frozen."""
        layer = self.causal_lm.get_output_embeddings()
        plain = type(layer) is nn.Linear and layer.bias is None and not layer.weight.requires_grad
        plain = plain and "forward" not in vars(layer) and not layer._forward_hooks  # nobody changes what it gives
        softcap = getattr(self.text_config, "final_logit_softcapping", None)
        return layer.weight if plain and softcap is None else None

    @torch.no_grad()
    def _check_projection(self) -> None:
        """Refuse an architecture whose logits are more than ``project(hidden_states)``, rather than train on others."""
        ids = torch.arange(4, device=self.device)[None] % self.text_config.vocab_size
        ours, theirs = (
            self.project(self.hidden_states(ids)),
            self.causal_lm(input_ids=ids, attention_mask=torch.ones_like(ids)).logits,
        )
        if ours.shape != theirs.shape or not torch.allclose(ours.float(), theirs.float(), rtol=1e-2, atol=1e-2):
            raise ModelError(
                f"Model {self.name} ({type(self.causal_lm).__name__}) transforms its logits in a way ppolm does not "
                "know. Use another architecture, such as Qwen, Llama, Gemma, GPT-2 or GPT-NeoX."
            )


def find_blocks(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """The list of transformer blocks and the last part of its name: the longest list of modules there is."""
    lists = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        raise ModelError(f"{type(model).__name__} has no list of layers, so it is no transformer that can be trained.")
    name, blocks = max(lists, key=lambda found: len(found[1]))
    return name.rpartition(".")[2], blocks


def empty_model(name: str, trust_remote_code: bool) -> PreTrainedModel:
    """A model as its configuration describes it, of tensors that take no memory and hold nothing."""
    config = load_pretrained(AutoConfig, name, trust_remote_code)
    with torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)


def load_causal_lm(name: str, dtype: torch.dtype, trust_remote_code: bool) -> PreTrainedModel:
    """Any causal language model from a local folder or the Hub."""
    load_pretrained(AutoConfig, name, trust_remote_code)
    model, report = load_pretrained(
        AutoModelForCausalLM, name, trust_remote_code, dtype=dtype, output_loading_info=True
    )
    absent = [*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])]
    if absent:  # transformers fills them with random numbers and goes on
        raise ModelError(f"Model {name} lacks {len(absent)} of its weights (first: {sorted(absent)[0]}). Get it again.")
    return model


def load_pretrained(loader: Any, name: str, trust_remote_code: bool, **options: Any) -> Any:
    """``loader.from_pretrained`` whose failures say what to do about them."""
    local = Path(name).expanduser()
    is_path = local.is_dir() or name.startswith((".", "/", "~")) or name.count("/") > 1
    if is_path:
        check_model_folder(local)
        name = str(local)
    options |= {"trust_remote_code": trust_remote_code, "local_files_only": is_path or not hub_is_reachable()}
    try:
        return loader.from_pretrained(name, **options)
    except (OSError, ValueError, KeyError, RuntimeError, SafetensorError) as error:
        raise ModelError(explain_failure(loader, name, is_path, options["local_files_only"], error)) from error


def check_model_folder(folder: Path) -> None:
    """Raise for a folder that cannot hold a model, with what is missing."""
    if not folder.is_dir():
        raise ModelError(
            f"Model folder {folder} does not exist. Give a folder with config.json, weights and tokenizer."
        )
    if not (folder / "config.json").is_file():
        hint = (
            " It holds a LoRA adapter: give its base as model_name."
            if (folder / "adapter_config.json").exists()
            else ""
        )
        raise ModelError(f"Model folder {folder} has no config.json, so it is not a model.{hint}")
    if not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise ModelError(
            f"Model folder {folder} has no weights (*.safetensors). Copy or download the whole model into it."
        )


def explain_failure(loader: Any, name: str, is_path: bool, offline: bool, error: Exception) -> str:
    """One sentence about why ``name`` did not load, and what to do."""
    what = {AutoConfig: "config", AutoTokenizer: "tokenizer"}.get(loader, "model")
    reason = str(error).strip().splitlines()[0] if str(error).strip() else type(error).__name__
    if "trust_remote_code" in str(error):
        return f"Model {name} needs its own Python code. If you trust it, set trust_remote_code: true."
    if is_path:
        if isinstance(error, json.JSONDecodeError):
            reason = "a JSON file in it is damaged"
        return f"The {what} in folder {name} cannot be loaded: {reason}"
    if offline:
        return (
            f"Model {name} is not in the local cache and the Hugging Face Hub cannot be reached. Connect to the "
            "network, or set model_name to a local folder that holds the model (config.json, *.safetensors, tokenizer)."
        )
    return f"Model {name} cannot be loaded as a causal language model: {reason} Check the name, or give a local folder."
