"""Base and adapter as one model: merged in float32, rounded once."""

from __future__ import annotations

import json
import struct
from collections import Counter
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import torch
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from torch import nn
from transformers import AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from ppolm.base_setup.adapter_forms import read_adapter_config
from ppolm.base_setup.load_model import blaming, load_causal_config, load_causal_lm, load_pretrained
from ppolm.errors import ModelError
from ppolm.export.source import Source
from ppolm.messages import brief, reason

STORED = {"F32": torch.float32, "BF16": torch.bfloat16, "F16": torch.float16}
"""Types of weights by their names in safetensors files."""
LARGEST_HEADER = 100 << 20


@dataclass(frozen=True)
class Merged:
    """A whole model with float32 weights, which nothing has rounded yet, and its tokenizer."""

    model: PreTrainedModel
    tokenizer: PreTrainedTokenizerBase
    stored: torch.dtype
    """The precision that the base is stored in."""


def merge(source: Source) -> Merged:
    """Load the unquantised base on the CPU, in float32, and add the adapter to its weights."""
    trust, name = source.config.trust_remote_code, source.model
    refuse_packed(load_causal_config(name, trust), name)
    model: Any = load_causal_lm(name, torch.float32, trust, torch.device("cpu"))
    tokenizer = load_pretrained(AutoTokenizer, name, trust)
    stored = stored_dtype(name, trust)
    if source.adapter is not None:
        model = add_adapter(model, source.adapter)
    bad = next((key for key, weight in model.named_parameters() if not weight.isfinite().all()), None)
    if bad is not None:
        raise ModelError(f"{source.folder} gives weights that are not finite ({bad}): it has diverged or is damaged.")
    return Merged(model.eval().requires_grad_(False), tokenizer, stored)


def refuse_packed(config: Any, name: str) -> None:
    """Raise for a base whose files are quantised: what is merged into rounded weights would be rounded again."""
    packed = getattr(config, "quantization_config", None)
    if packed is not None:
        kind = packed.get("quant_method") if isinstance(packed, dict) else getattr(packed, "quant_method", None)
        raise ModelError(
            f"Model {name} is stored quantised ({brief(str(kind))}), so an adapter cannot be merged into it exactly. "
            "Export with --format adapter, or train on the unquantised base (base_bits: 4 packs it while it loads)."
        )


def add_adapter(model: PreTrainedModel, folder: Path) -> PreTrainedModel:
    """The model with an adapter's product added to its weights."""
    read_adapter_config(folder)
    try:
        adapted = PeftModel.from_pretrained(model, str(folder))
        untie(adapted)
        merged: PreTrainedModel = adapted.merge_and_unload()
    except Exception as error:  # PEFT does not check its files, so bad ones may raise anything
        raise ModelError(f"Adapter {folder} does not merge into its base: {reason(error)}") from error
    return merged


def untie(adapted: PeftModel) -> None:
    """Give the output matrix weights of its own if only one of it and the embedding is adapted."""
    model: Any = adapted.get_base_model()
    ends = (model.get_input_embeddings(), model.get_output_embeddings())
    weights = [end.get_base_layer().weight if isinstance(end, BaseTunerLayer) else end.weight for end in ends]
    if weights[0] is not weights[1] or not any(isinstance(end, BaseTunerLayer) for end in ends):
        return
    output: Any = ends[1].get_base_layer() if isinstance(ends[1], BaseTunerLayer) else ends[1]
    output.weight = nn.Parameter(weights[1].detach().clone(), requires_grad=False)
    model.config.get_text_config().tie_word_embeddings = model.config.tie_word_embeddings = False


def rounded(model: PreTrainedModel, dtype: torch.dtype) -> PreTrainedModel:
    """The model with its weights in ``dtype``; tied weights stay one."""
    if dtype == torch.float16:
        refuse_overflow(model)
    for weight in model.parameters():
        if weight.is_floating_point():
            weight.data = weight.data.to(dtype)
    model.config.dtype = dtype
    return model


def refuse_overflow(model: PreTrainedModel) -> None:
    """Raise if a weight is too large for float16."""
    for name, weight in model.named_parameters():
        if float(weight.abs().max()) > torch.finfo(torch.float16).max:
            raise ModelError(f"Weight {name} is beyond what float16 can hold. Use --dtype bfloat16 or float32.")


def save_merged(merged: Merged, dtype: torch.dtype, folder: Path, name: str) -> None:
    """Write a folder that plain transformers loads; a large model in several files."""
    with blaming(name):
        rounded(merged.model, dtype).save_pretrained(str(folder))
        merged.tokenizer.save_pretrained(str(folder))


def stored_dtype(name: str, trust_remote_code: bool) -> torch.dtype:
    """The precision of most of a model's weights in its files; of one from the Hub, what its configuration says."""
    counted: Counter[torch.dtype] = Counter()
    folder = Path(name).expanduser()
    for file in sorted(folder.glob("*.safetensors")) if folder.is_dir() else ():
        counted.update(_count(file))
    if counted:
        return counted.most_common(1)[0][0]
    said = load_causal_config(name, trust_remote_code).dtype
    return said if isinstance(said, torch.dtype) and said in STORED.values() else torch.float32


def _count(file: Path) -> Counter[torch.dtype]:
    """Weights by precision, from the header of a safetensors file, which has been loaded already."""
    with file.open("rb") as stream:
        (length,) = struct.unpack("<Q", stream.read(8))
        header = json.loads(stream.read(min(length, LARGEST_HEADER)))
    found: Counter[torch.dtype] = Counter()
    for key, tensor in header.items():
        if key != "__metadata__" and tensor["dtype"] in STORED:
            found[STORED[tensor["dtype"]]] += prod(tensor["shape"])
    return found
