"""Settings shared by every command that loads a model, and the methods common to all configurations."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar, get_args

from ppolm.config.limits import LARGEST
from ppolm.config.paths import anchored
from ppolm.config.setting import check_limits, setting
from ppolm.config.validation import check_shards, reject_unknown_keys
from ppolm.config.value_types import coerce_types
from ppolm.config.yaml_io import read_yaml, write_yaml

FastPath = Literal[
    "fused_adapters",
    "grouped_attention",
    "fused_blocks",
    "last_block_alone",
    "packed_prompts",
    "slot_sampler",
    "decode_matrices",
    "shared_trunk",
    "library_cache",
]
"""Names of the fast paths: faster alternatives to running whole texts through the library's own code."""

Settings = TypeVar("Settings", bound="ModelSettings")


@dataclass(frozen=True)
class ModelSettings:
    """The base model and its LoRA adapters; validated on construction, read from and written to YAML."""

    model_name: str = setting("Qwen/Qwen3-0.6B-Base", group="model", not_blank=True, on_resume="fixed")
    """Base model: a local folder, a name on the Hugging Face Hub, or embedded (the tiny model inside ppolm)."""
    lora_r: int = setting(16, group="adapter", at_least=1, on_resume="fixed")
    """Rank of newly created LoRA adapters (a loaded adapter keeps its own rank)."""
    lora_alpha: int = setting(32, group="adapter", at_least=1, on_resume="fixed")
    """LoRA scale: the low-rank product is multiplied by lora_alpha / lora_r."""
    lora_dropout: float = setting(0.1, group="adapter", at_least=0, below=1, on_resume="fixed")
    """LoRA dropout in SFT and reward-model training. PPO runs without dropout, so that the ratio starts at 1."""
    lora_target_modules: tuple[str, ...] = setting(("all-linear",), group="adapter", on_resume="fixed")
    """Modules that get LoRA: "all-linear", or names such as q_proj v_proj."""
    trainable_layers: int | None = setting(None, group="adapter", at_least=1, on_resume="fixed")
    """Put new LoRA adapters on this many top blocks only: gradients stop there, which saves time. None: all blocks."""
    trunk_mib: int = setting(2048, group="machine", at_least=0, on_resume="fixed")
    """MiB for caching the hidden states below the trainable layers; what does not fit is recomputed."""
    gradient_checkpointing: Literal["auto", "on", "off"] = setting("auto", group="machine", on_resume="may change")
    """Keep only the input of each block for the backward pass, which computes the block once more: much less memory,
    the same gradients, about a third more time in updates. auto: for passes that would not fit into the device's
    memory; the log says what was counted."""
    trust_remote_code: bool = setting(False, group="model", on_resume="fixed")
    """Allow the model repository to run its own Python code. Off by default."""
    device: str = setting("auto", group="machine", not_blank=True, on_resume="may change")
    """auto (CUDA, else Apple MPS, else CPU), or a torch device such as cpu, cuda, cuda:1, mps."""
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = setting("auto", group="machine", on_resume="fixed")
    """Precision of the frozen base. auto: bfloat16 on CUDA, or float16 on devices without it; for large models bfloat16
    on MPS where it works, and on a CPU if it is faster or memory is short; otherwise float32."""
    base_bits: Literal[4] | None = setting(None, group="machine", on_resume="fixed")
    """4: store the matrices of the frozen base in 4 bits (NF4 of bitsandbytes, extra bits), which are computed with in
    dtype. None: in dtype."""
    shard_base: bool = setting(False, group="machine", on_resume="may change")
    """Of several processes, let each hold a part of every block of the base (FSDP2), for a base that fits on no device.
    Sampling needs all of it on each of them, or engine vllm. No effect with one process."""
    threads: int | None = setting(None, group="machine", at_least=1, on_resume="may change")
    """CPU threads. None: as many as a model of this width can use, unless OMP_NUM_THREADS is set."""
    plain: bool = setting(False, group="machine", on_resume="may change")
    """Use only the library's own code (including its KV cache) and none of our fast paths, as a baseline."""
    without: tuple[FastPath, ...] = setting((), group="machine", on_resume="may change")
    """Fast paths to turn off: fused_adapters, grouped_attention, fused_blocks, last_block_alone, packed_prompts,
    slot_sampler, decode_matrices, shared_trunk, library_cache."""
    seed: int = setting(0, group="run", at_least=0, at_most=LARGEST, on_resume="fixed")
    """Random seed for adapter initialisation, sampling and shuffling."""

    def __post_init__(self) -> None:
        coerce_types(self)
        check_limits(self)
        check_shards(self)

    @property
    def fast_paths_off(self) -> tuple[FastPath, ...]:
        """The fast paths that are turned off."""
        ours = [path for path in get_args(FastPath) if path != "library_cache"] if self.plain else []
        return tuple(dict.fromkeys((*ours, *self.without)))

    @classmethod
    def from_dict(cls: type[Settings], values: Mapping[str, Any]) -> Settings:
        """Build from a mapping; an unknown key raises an error that suggests the closest known one."""
        reject_unknown_keys(values, [field.name for field in dataclasses.fields(cls)])
        return cls(**values)

    @classmethod
    def from_yaml(cls: type[Settings], path: str | Path, under: Mapping[str, Any] | None = None) -> Settings:
        """Read a YAML file; settings it does not mention are those of ``under``, or keep their defaults.

        Relative paths in it are resolved against its own folder first, then against the current folder.
        """
        return cls.from_dict({**(under or {}), **anchored(read_yaml(path), Path(path).parent)})

    def anchored(self: Settings) -> Settings:
        """The same settings with every file and folder as an absolute path, for storing with a run."""
        values = anchored({field.name: getattr(self, field.name) for field in dataclasses.fields(self)})
        return dataclasses.replace(self, **values)

    def to_dict(self) -> dict[str, Any]:
        """The settings as plain values that YAML and JSON can hold."""
        values = dataclasses.asdict(self)
        return {name: list(value) if isinstance(value, tuple) else value for name, value in values.items()}

    def to_yaml(self, path: str | Path) -> None:
        """Write all settings, in field order."""
        write_yaml(path, self.to_dict())
