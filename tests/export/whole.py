"""Models to export that no training made: a folder as it is, with all its weights."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM

from ppolm.config import SFTConfig
from ppolm.export.export import save_around
from ppolm.export.gguf_file import write_gguf
from ppolm.export.gguf_vocabulary import Vocabulary
from ppolm.export.merge import merge
from ppolm.export.source import Source


def whole_model(folder: Path) -> Source:
    """What `ppolm sft --train all` leaves: the folder itself is the model."""
    return Source(folder, SFTConfig(model_name=str(folder), train="all"), None, {})


def gguf_of(folder: Path, target: Path, kind: str = "float32") -> Vocabulary:
    """A GGUF file ``model.gguf`` of a model folder, with its configuration and tokenizer beside it."""
    merged = merge(whole_model(folder))
    target.mkdir(exist_ok=True)
    said = write_gguf(merged, target / "model.gguf", kind, "a model")
    save_around(merged, target, str(folder))
    return said


@torch.no_grad()
def log_softmax_of(folder: Path, ids: list[int], gguf: bool = False, beside: bool = True) -> torch.Tensor:
    """log π [T, V] of a folder in plain transformers; ``beside``: with the configuration beside the GGUF file."""
    options: dict[str, Any] = {}
    if gguf:
        options = {"gguf_file": "model.gguf"} | ({"config": AutoConfig.from_pretrained(folder)} if beside else {})
    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32, **options).eval()
    logits: torch.Tensor = model(torch.tensor([ids])).logits[0]
    return logits.log_softmax(-1)
