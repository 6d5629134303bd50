"""Loading a causal language model and its parts from a folder or the Hub; errors say what to do about them."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal

import torch
from torch import nn
from transformers import (
    MODEL_FOR_CAUSAL_LM_MAPPING,
    AutoConfig,
    AutoModelForCausalLM,
    AutoTokenizer,
    PreTrainedConfig,
    PreTrainedModel,
)

from ppolm.base_setup.four_bits import four_bits, has_packed_weights, make_differentiable
from ppolm.data.hub import hub_is_reachable
from ppolm.errors import ModelError, PpolmError
from ppolm.messages import reason


def find_blocks(model: nn.Module) -> tuple[str, nn.ModuleList]:
    """The list of transformer blocks, found as the list with the most weights, and the last part of its name."""
    lists = [(name, module) for name, module in model.named_modules() if isinstance(module, nn.ModuleList)]
    if not lists:
        raise ModelError(f"{type(model).__name__} has no list of layers, so it is no transformer that can be trained.")
    # Not the longest list: a block may have more experts than there are blocks.
    name, blocks = max(lists, key=lambda found: sum(weight.numel() for weight in found[1].parameters()))
    return name.rpartition(".")[2], blocks


def find_transformer(model: PreTrainedModel) -> nn.Module:
    """The part of a causal language model that gives hidden states, without the output matrix."""
    names = (model.base_model_prefix, "model", "transformer", "language_model")
    found = [getattr(model, name, None) for name in names if name]
    inner = next((part for part in found if isinstance(part, nn.Module) and part is not model), None)
    if inner is None:
        raise ModelError(f"{type(model).__name__} has no part that gives hidden states without logits.")
    return inner


@contextlib.contextmanager
def blaming(name: str) -> Iterator[None]:
    """Report any error that a library raises while it uses a model's own files as a fault of the model."""
    try:
        yield
    except (PpolmError, MemoryError):
        raise
    except Exception as error:
        said = f"{type(error).__name__}: {reason(error)}"
        raise ModelError(f"Model {name} cannot be used, its files do not fit together: {said}") from error


def load_causal_config(name: str, trust_remote_code: bool, weights: bool = True) -> PreTrainedConfig:
    """The configuration of a causal language model; raises for any other kind of model, and if it has to have weights
    and has none."""
    config: PreTrainedConfig = load_pretrained(AutoConfig, name, trust_remote_code, weights)
    refuse_other_kinds(config, name)
    return config


def refuse_other_kinds(config: PreTrainedConfig, name: str) -> None:
    """Raise for a configuration of anything but a causal language model."""
    own_code = "AutoModelForCausalLM" in (getattr(config, "auto_map", None) or {})
    if type(config) not in MODEL_FOR_CAUSAL_LM_MAPPING and not own_code:
        raise ModelError(
            f"Model {name} is of type {config.model_type}, which transformers does not load as a causal language "
            "model; it may read images, or translate. Give a model that continues text, such as Qwen, Llama or Gemma."
        )
    if any(kind.endswith("ForMaskedLM") for kind in config.architectures or ()) and not own_code:
        raise ModelError(
            f"Model {name} is of type {config.model_type} and fills gaps in a text ({config.architectures[0]}). Give a "
            "model that continues text, such as Qwen, Llama or Gemma."
        )


def empty_model(name: str, trust_remote_code: bool, weights: bool = True) -> PreTrainedModel:
    """A model as its configuration describes it, with meta tensors, which take no memory and hold nothing."""
    return empty_of(load_causal_config(name, trust_remote_code, weights), name, trust_remote_code)


def empty_of(config: PreTrainedConfig, name: str, trust_remote_code: bool = False) -> PreTrainedModel:
    """The same from a configuration that is loaded already."""
    with blaming(name), torch.device("meta"):
        return AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)


def load_causal_lm(
    name: str, dtype: torch.dtype, trust_remote_code: bool, device: torch.device, bits: Literal[4] | None = None
) -> PreTrainedModel:
    """Any causal language model from a local folder or the Hub, on a device.

    Each weight is read from its file to the device and packed there: the host never holds the whole model.
    """
    config = load_causal_config(name, trust_remote_code)
    # The library's fused attention scales ALiBi's distances differently from its eager attention (Falcon), and before
    # transformers 5.21 it silently ignored the soft cap on attention scores (Gemma 2).
    bounded = getattr(config.get_text_config(), "attn_logit_softcapping", None) is not None
    options: dict[str, Any] = {"dtype": dtype, "output_loading_info": True}
    if bounded or getattr(config, "alibi", False):
        options["attn_implementation"] = "eager"
    if device.type != "cpu" or bits is not None:
        options["device_map"] = {"": device}
    if bits is not None:
        options["quantization_config"] = four_bits(dtype)
    model, report = load_pretrained(AutoModelForCausalLM, name, trust_remote_code, **options)
    absent = [*report["missing_keys"], *(key for key, *_ in report["mismatched_keys"])]
    if absent:  # transformers fills them with random numbers and continues
        raise ModelError(
            f"Model {name} lacks {len(absent)} of its weights (first: {sorted(absent)[0]}). Download or copy it again."
        )
    if not has_packed_weights(model):
        return model.to(device)  # buffers that are in no file
    make_differentiable(model, name)
    return model


def load_pretrained(loader: Any, name: str, trust_remote_code: bool, weights: bool = True, **options: Any) -> Any:
    """``loader.from_pretrained``, with errors that say what to do about them; a folder must have ``weights`` unless
    nothing is computed with them."""
    local = Path(name).expanduser()
    is_path = local.is_dir() or name.startswith((".", "/", "~")) or name.count("/") > 1
    if is_path:
        check_model_folder(local, weights)
        name = str(local)
    options |= {"trust_remote_code": trust_remote_code, "local_files_only": is_path or not hub_is_reachable()}
    try:
        return loader.from_pretrained(name, **options)
    except Exception as error:  # transformers does not check a model's files, so bad ones may raise anything
        raise ModelError(explain_failure(loader, name, is_path, options["local_files_only"], error)) from error


def check_model_folder(folder: Path, weights: bool = True) -> None:
    """Raise for a folder that cannot hold a model, and say what is missing."""
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
    if weights and not any(folder.glob("*.safetensors")) and not any(folder.glob("*.bin")):
        raise ModelError(
            f"Model folder {folder} has no weights (*.safetensors). Copy or download the whole model into it."
        )


def explain_failure(loader: Any, name: str, is_path: bool, offline: bool, error: Exception) -> str:
    """One sentence about why ``name`` did not load, and what to do."""
    what = {AutoConfig: "config", AutoTokenizer: "tokenizer"}.get(loader, "model")
    said = reason(error).rstrip(".") + "."
    if "trust_remote_code" in str(error):
        return f"Model {name} needs its own Python code. If you trust it, set trust_remote_code: true."
    if is_path:
        if isinstance(error, json.JSONDecodeError):
            said = "a JSON file in it is damaged."
        return f"The {what} in folder {name} cannot be loaded: {said}"
    if offline:
        return (
            f"Model {name} is not in the local cache and the Hugging Face Hub cannot be reached. Connect to the "
            "network, or set model_name to a local folder that holds the model (config.json, *.safetensors, tokenizer)."
        )
    return f"Model {name} cannot be loaded as a causal language model: {said} Check the name, or give a local folder."
