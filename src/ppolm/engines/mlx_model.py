"""The base model in MLX, loaded from the same files that torch loaded it from."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import mlx.core as mx
import torch
from mlx import nn
from mlx_lm.utils import load_config, load_model
from transformers.utils import cached_file

from ppolm.base_setup import BaseModelSetup
from ppolm.embedded import model_path
from ppolm.errors import ModelError
from ppolm.messages import reason

DTYPES = {torch.float32: mx.float32, torch.bfloat16: mx.bfloat16, torch.float16: mx.float16}
"""The precision of the copy is that of torch's weights, so that the two agree as well as they can."""


def load_base(setup: BaseModelSetup) -> nn.Module:
    """The frozen base as an MLX model, a second copy of its weights; raises for what MLX cannot load as it is."""
    folder = model_folder(setup.name)
    if mx.default_device().type == mx.cpu:
        mx.disable_compile()  # on a CPU it calls a C++ compiler, and loads libraries from a folder that all users share
    try:
        config = load_config(folder)
        refuse_quantised(config, setup.name)
        model, _ = load_model(folder, model_config=older_names(config))
    except ModelError:
        raise
    except Exception as error:  # mlx-lm has no errors of its own: an unknown architecture is a ValueError, say
        raise ModelError(
            f"Model {setup.name} does not load with engine mlx: {reason(error).rstrip('.')}. Set engine: local, or "
            "use a model that mlx-lm knows, such as Qwen, Llama or Gemma."
        ) from error
    model.set_dtype(DTYPES[setup.dtype])
    model.freeze()
    mx.eval(model.parameters())
    return model


def model_folder(name: str) -> Path:
    """The folder of a model: the embedded one, a local one, or where the Hub's files are on this machine."""
    source = model_path(name)
    local = Path(source).expanduser()
    if local.is_dir():
        return local
    # Torch has loaded the model before, so that its files are there, and no network is needed.
    return Path(cached_file(source, "config.json", local_files_only=True)).parent


def older_names(config: dict[str, Any]) -> dict[str, Any]:
    """Settings that transformers 5 writes in a new place, under the names that mlx-lm reads: it has defaults for some,
    and would compute another model without a word."""
    rope = config.get("rope_parameters") or {}
    values = {
        "rope_theta": rope.get("rope_theta"),
        "rope_scaling": rope if rope.get("rope_type", "default") != "default" else None,
        "partial_rotary_factor": rope.get("partial_rotary_factor"),
    }
    return {name: value for name, value in values.items() if value is not None and name not in config}


def refuse_quantised(config: dict[str, Any], name: str) -> None:
    for settings in (config, config.get("text_config") or {}):
        if settings.get("quantization") or settings.get("quantization_config"):
            raise ModelError(
                f"Model {name} is quantised, and engine mlx would compute with other numbers than the trainer does. "
                "Use the model's full weights, or engine: local."
            )
