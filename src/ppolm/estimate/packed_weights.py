"""How many bytes a weight takes in a base that its authors have quantised: read from its configuration."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

NF4 = 0.5 + 1 / 64 + 4 / 16384
"""Bytes of a weight in 4 bits: with one byte of scale for 64 weights, and one float32 for 256 scales."""
Values = Mapping[str, Any]


@dataclass(frozen=True)
class Packed:
    """How the matrices of blocks are stored."""

    method: str
    size: float | None
    """Bytes of a weight with its share of the scales; None if they are not known for this method."""
    experts: bool = True
    """Whether experts are packed, too: some methods pack linear layers only."""


def packed_weights(config: Any) -> Packed | None:
    """How a model's own files pack its weights, or None if they do not."""
    given = getattr(config, "quantization_config", None)
    if given is None:
        return None
    values: Values = given if isinstance(given, Mapping) else given.to_dict()
    method = str(getattr(values.get("quant_method"), "value", values.get("quant_method") or "an unknown method"))
    try:
        size = METHODS[method](values) if method in METHODS else None
    except (AttributeError, KeyError, TypeError, ValueError, ZeroDivisionError):  # a configuration is anybody's text
        size = None
    return Packed(method, size, experts=method != "bitsandbytes")


def _grouped(bits: float, group: Any = None) -> float:
    """Bytes of a weight of so many bits; each group of weights has a scale of 16 bits and a zero."""
    size = int(group or 128)
    return bits / 8 + ((2 + bits / 8) / size if size > 0 else 0.0)


def _bitsandbytes(values: Values) -> float:
    if values.get("load_in_8bit") or values.get("_load_in_8bit"):
        return 1.0
    if not (values.get("load_in_4bit") or values.get("_load_in_4bit")):
        raise ValueError("neither 4 nor 8 bits")
    return NF4 if values.get("bnb_4bit_use_double_quant") else 0.5 + 4 / 64


def _compressed(values: Values) -> float:
    weights = next(iter(values["config_groups"].values()))["weights"]
    return _grouped(float(weights["num_bits"]), weights.get("group_size"))


def _hqq(values: Values) -> float:
    given = values["quant_config"]["weight_quant_params"]
    return _grouped(float(given["nbits"]), given.get("group_size"))


def _named(name: str) -> Callable[[Values], float]:
    """Bits that are part of a word, such as int4 or float8_weight_only."""

    def size(values: Values) -> float:
        found = re.search(r"(?:int|float|fp)(\d+)", str(values[name]).lower())
        if found is None:
            raise ValueError("no number of bits")
        return _grouped(float(found[1]))

    return size


METHODS: dict[str, Callable[[Values], float]] = {
    "bitsandbytes": _bitsandbytes,
    **dict.fromkeys(
        ("gptq", "awq", "auto-round"), lambda values: _grouped(float(values["bits"]), values["group_size"])
    ),
    **dict.fromkeys(("fp8", "fbgemm_fp8", "eetq"), lambda _: 1.0),
    "mxfp4": lambda _: 0.5 + 1 / 32,
    "bitnet": lambda _: 0.25,
    "compressed-tensors": _compressed,
    "hqq": _hqq,
    "quanto": _named("weights"),
    "torchao": _named("quant_type"),
}
"""Bytes of a weight by the method's name in config.json."""
