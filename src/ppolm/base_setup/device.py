"""Which device and precision a run uses."""

from collections.abc import Callable
from typing import Literal

import torch

from ppolm.base_setup.machine_memory import machine_free, machine_size
from ppolm.batches.sequences import PASS_COST
from ppolm.errors import ConfigError
from ppolm.kernels.cpu_bfloat16 import multiplies_bfloat16
from ppolm.messages import brief, reason
from ppolm.ranks.join import processes_here


def resolve_device(name: str, local_rank: int = 0) -> torch.device:
    """``auto`` picks CUDA, then Apple MPS, then CPU; anything else must name a device that really works.

    Of several processes on one machine each takes the GPU of its own number, ``local_rank``.
    """
    if name in ("auto", "cuda") and torch.cuda.is_available() and local_rank:
        if local_rank >= torch.cuda.device_count():
            raise ConfigError(
                f"Process {local_rank} of this machine has no GPU of its own: there are {torch.cuda.device_count()}. "
                "Start as many processes as there are GPUs, or set device: cpu."
            )
        return torch.device("cuda", local_rank)
    if name == "auto":
        if torch.cuda.is_available():
            return torch.device("cuda")
        return torch.device("mps" if torch.backends.mps.is_available() else "cpu")
    try:
        device = torch.device(name)
        # Read a number back: the device "meta" creates tensors, but they hold nothing.
        torch.zeros(1, device=device).item()
    except Exception as error:  # each kind of device fails in its own way
        said = reason(error, 100)
        raise ConfigError(f"device is {brief(name)}, which cannot be used here ({said}). Use auto or cpu.") from None
    return device


Precision = Literal["float32", "bfloat16", "float16"]
DTYPES: dict[Precision, torch.dtype] = {
    "float32": torch.float32,
    "bfloat16": torch.bfloat16,
    "float16": torch.float16,
}
"""Precisions by their names in settings and checkpoints."""
LARGE = 100_000_000
"""Number of parameters from which bfloat16 may pay off on a CPU: below it, converting costs more than it saves."""


def resolve_dtype(
    name: Precision | Literal["auto"], device: torch.device, parameters: Callable[[], int]
) -> torch.dtype:
    """``auto``: bfloat16 on CUDA, or float16 where it is missing; for large models bfloat16 on MPS where it works, and
    on a CPU if it is faster or memory is short; else float32."""
    if name != "auto":
        return DTYPES[name]
    if device.type == "cuda":
        return half_precision(device)
    if device.type == "mps":
        return half_precision(device) if parameters() >= LARGE else torch.float32
    return torch.bfloat16 if device.type == "cpu" and _pays(parameters()) else torch.float32


def half_precision(device: torch.device) -> torch.dtype:
    """The 16 bits in which a device stores the base: bfloat16, float16 where a GPU has none; float32 if neither works.

    Older GPUs, such as T4 and V100, only emulate bfloat16, slowly.
    """
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float16
    return torch.bfloat16 if device.type == "cpu" or multiplies(torch.bfloat16, device) else torch.float32


def multiplies(dtype: torch.dtype, device: torch.device) -> bool:
    """Whether a device multiplies matrices of a precision: older versions of macOS have no bfloat16."""
    try:
        left, right = (torch.full(shape, 0.5, dtype=dtype, device=device) for shape in ((2, 8), (3, 8)))
        return bool((torch.nn.functional.linear(left, right).float().cpu() == 2).all())
    except (RuntimeError, TypeError, ValueError):
        return False


def state_precision(weights: torch.dtype, device: torch.device, fused: bool) -> torch.dtype:
    """The precision of the hidden states of a model whose weights have this one.

    float32 with our fused blocks on a CPU, where bfloat16 rounding would depend on the batch that a sequence is in, and
    so differ between sampling, scoring and training; and wherever weights are float16, which large states and small
    gradients leave on either side.
    """
    return torch.float32 if fused and (device.type == "cpu" or weights == torch.float16) else weights


def _pays(parameters: int) -> bool:
    """Whether a model of this size should be in bfloat16 on this CPU."""
    if parameters < LARGE:
        return False
    memory = memory_size(torch.device("cpu"))
    short = memory is not None and 4 * parameters > memory / 4
    return short or multiplies_bfloat16()


def product_precision(weights: torch.dtype, device: torch.device) -> torch.dtype:
    """The precision of products of many float32 states with weights of lower precision."""
    narrow = weights == torch.bfloat16 and device.type == "cpu" and multiplies_bfloat16()
    return torch.bfloat16 if narrow else torch.float32


GAPS = 0.1
"""Fraction of memory lost to allocator fragmentation, fitted to two measured peaks."""
PROGRAM = 600 * 2**20
"""Bytes of Python, torch and its libraries, or of a device's own context: a typical value."""
BLOCK_KERNELS = 50
"""Kernels of a block in a pass without gradients (``python -m bench.gpu_counts``)."""
LAUNCH_FLOPS = {"cuda": 5e8, "mps": 1e8}
"""Operations in products that a device could do in the time that it takes to start a kernel: about 5 µs at 100 TFLOPS,
and 10 µs at 10 TFLOPS. Typical figures, not measured here."""
SCORING_TIMES = 4
"""How many times as many tokens as in training a device reads in a pass without gradients, which keeps the tensors of
one block at a time. On a CPU a larger pass would not be faster."""


def pass_cost(device: torch.device, block_weights: int) -> int:
    """Padding tokens that cost as much as one more forward pass: starting kernels takes as long for a small pass.

    On a device this many tokens take 2 · block_weights operations each in the time of starting a block's kernels.
    """
    if device.type == "cpu":
        return PASS_COST
    launches = BLOCK_KERNELS * LAUNCH_FLOPS.get(device.type, LAUNCH_FLOPS["cuda"])
    return max(1, int(launches / (2 * max(block_weights, 1))))


def scoring_tokens(device: torch.device, token_budget: int) -> int:
    """Tokens of a pass without gradients, if one with gradients may have ``token_budget``."""
    return token_budget if device.type == "cpu" else SCORING_TIMES * token_budget


def memory_size(device: torch.device) -> int | None:
    """Bytes of memory that this process may use on a device, if known.

    A GPU is its own. The processes of one machine share its memory evenly, and so that of a Mac, which is the GPU's.
    """
    try:
        if device.type == "cuda":
            return int(torch.cuda.get_device_properties(device).total_memory)
        if device.type == "mps":  # the system keeps a part for itself
            return int(torch.mps.recommended_max_memory()) // processes_here()
    except (AssertionError, AttributeError, RuntimeError):  # a driver that does not say
        return None
    return _share(machine_size())


def free_memory(device: torch.device) -> int | None:
    """The same of what is left beside what all programs use now; of a CPU, with what the system can free."""
    try:
        if device.type == "cuda":
            return int(torch.cuda.mem_get_info(device)[0])
        if device.type == "mps":
            return int(torch.mps.recommended_max_memory() - torch.mps.driver_allocated_memory()) // processes_here()
    except (AssertionError, AttributeError, RuntimeError):  # a driver that does not say
        return memory_size(device)
    return _share(machine_free())


def _share(found: int | None) -> int | None:
    return None if found is None else found // processes_here()
