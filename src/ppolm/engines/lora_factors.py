"""The two factors of every LoRA layer of a role, as another library needs them."""

from __future__ import annotations

import re
from dataclasses import dataclass

from torch import Tensor

from ppolm.errors import ModelError
from ppolm.models.base_model import BaseModel

PARAMETER = re.compile(r"base_model\.model\.(?P<layer>.+)\.(?P<kind>lora_\w+)\.(?P<adapter>\w+)(?P<rest>\.\w+)?")
"""The full name of an adapter's parameter, as PEFT composes it."""
KINDS = {
    "lora_A.weight": "",
    "lora_B.weight": "",
    "lora_magnitude_vector": "DoRA (use_dora), which rescales the base's own weights",
    "lora_embedding_A": "an adapter on the embeddings",
    "lora_embedding_B": "an adapter on the embeddings",
    "lora_B.bias": "a bias (lora_bias)",
}
"""What PEFT keeps for a layer; those with words are not plain LoRA."""


@dataclass(frozen=True)
class LoraFactors:
    """A layer y = x Wᵀ + s (x Aᵀ) Bᵀ: its path in the base, and the adapter's own tensors, not copies of them."""

    layer: str
    a: Tensor  # [r, d_in]
    b: Tensor  # [d_out, r]
    scale: float
    """s, as PEFT computed it: alpha / r or, with rsLoRA, alpha / √r, of this layer's own rank and alpha."""


def lora_factors(role: BaseModel, engine: str) -> list[LoraFactors]:
    """The factors of every layer that a role's adapter changes; raises if the adapter is more than plain LoRA."""
    found: dict[str, dict[str, Tensor]] = {}
    adapter = ""
    for name, value in role.parameters().items():
        match = PARAMETER.fullmatch(name)
        kind = f"{match['kind']}{match['rest'] or ''}" if match else name
        words = KINDS.get(kind, KINDS.get(match["kind"], kind) if match else kind)
        if match is None or words:
            raise ModelError(
                f"The policy's adapter has {words} ({name}), which engine {engine} cannot apply. Use an adapter "
                "without it, or engine: local."
            )
        found.setdefault(match["layer"], {})[kind] = value
        adapter = match["adapter"]
    return [
        LoraFactors(layer, both["lora_A.weight"], both["lora_B.weight"], _scale(role, layer, adapter))
        for layer, both in found.items()
    ]


def _scale(role: BaseModel, layer: str, adapter: str) -> float:
    module = role.adapters.model.get_submodule(f"base_model.model.{layer}")
    return float(module.scaling[adapter])
