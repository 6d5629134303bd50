"""How much of a rounding reaches a model's output: measured, because it differs tenfold from model to model."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from ppolm.base_setup.load_model import find_blocks
from ppolm.base_setup.trial_text import Trial, plain_logits
from ppolm.kernels.rounding import Rounding

if TYPE_CHECKING:
    from ppolm.base_setup.base_setup import BaseModelSetup

TIMES = 3
"""How often a trial text is computed with other roundings. Single tokens scatter, their root mean square does not."""


@torch.no_grad()
def own_rounding(setup: BaseModelSetup, trial: Trial) -> Rounding:
    """What two correct computations of this model may differ by. In float32 that is the same for every model."""
    if setup.dtype == torch.float32:
        return Rounding()

    def rounded(seed: int) -> Tensor:
        with rounded_once_more(setup.causal_lm, seed):
            return plain_logits(setup, trial.items)

    return Rounding.of(map(rounded, range(TIMES)), trial.logits)


@contextmanager
def rounded_once_more(model: Any, seed: int) -> Iterator[None]:
    """Change the embedded tokens and the output of each block by up to half a step of their precision, at random."""
    random = torch.Generator().manual_seed(seed)  # on the CPU: the same numbers on every device

    def change(states: Tensor) -> Tensor:
        half = torch.finfo(states.dtype).eps / 2
        factors = 1 + half * (2 * torch.rand(states.shape, generator=random) - 1)
        return (states.float() * factors.to(states.device)).to(states.dtype)

    def hook(_: nn.Module, __: Any, output: Any) -> Any:
        return change(output) if isinstance(output, Tensor) else (change(output[0]), *output[1:])

    parts = (model.get_input_embeddings(), *find_blocks(model)[1])
    handles = [part.register_forward_hook(hook) for part in parts]
    try:
        yield
    finally:
        for handle in handles:
            handle.remove()
