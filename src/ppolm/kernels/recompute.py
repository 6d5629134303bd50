"""Gradient checkpointing: a block keeps only its input for the backward pass, which computes the block once more.

What autograd would have kept of a block, about twenty times its input, then exists for one block at a time.
"""

from __future__ import annotations

import functools
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from ppolm.kernels.products import computing, current_mode
from ppolm.kernels.replaced_forward import find, pass_on, standing_in


@contextmanager
def recomputing(blocks: Iterable[nn.Module]) -> Iterator[None]:
    """Let blocks keep only their inputs inside a ``with``. A block that only passes on its input is left alone.

    The backward pass may run outside it, but with the same role active and in the same training mode.
    """
    with ExitStack() as stack:
        for block in blocks:
            own = find(block) or functools.partial(type(block).forward, block)
            if own is not pass_on:
                stack.enter_context(standing_in([block], _Recomputed(block, own)))
        yield


class _Recomputed:
    """The forward of a block whose inner results are discarded, and computed again by the backward pass."""

    def __init__(self, block: nn.Module, own: Any) -> None:
        self.block, self.own = block, own

    def __call__(self, *given: Any, **named: Any) -> Any:
        mode = current_mode()

        def run(*given: Any, **named: Any) -> Any:
            with computing(mode):  # the backward pass runs outside the context of the forward pass
                return self.own(*given, **named)

        # Only dropout draws random numbers, and reading a device's generator makes the host wait for it.
        drops = self.block.training
        return checkpoint(run, *given, use_reentrant=False, preserve_rng_state=drops, **named)
