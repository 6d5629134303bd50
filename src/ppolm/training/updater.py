"""One optimiser and its safety rules: exact gradient accumulation, clipping, and skipping non-finite updates."""

from __future__ import annotations

import logging
import math
from collections.abc import Callable, Iterable, Mapping
from typing import TypeVar

import torch
from torch import Tensor

from ppolm.errors import TrainingDivergedError
from ppolm.ranks import Ranks
from ppolm.state import State
from ppolm.training.running_means import DeferredMeans

log = logging.getLogger(__name__)
Batch = TypeVar("Batch")


class Updater:
    """AdamW over named parameters. An update with a non-finite loss or gradient is skipped and counted."""

    def __init__(
        self,
        name: str,
        parameters: Mapping[str, Tensor],
        learning_rate: float,
        adam_eps: float,
        weight_decay: float,
        max_grad_norm: float,
        max_skipped: int,
        ranks: Ranks | None = None,
    ) -> None:
        """``ranks`` are the processes that share the batches of an update; all of them take the same step."""
        self.name, self.ranks = name, ranks or Ranks()
        self.parameters = dict(parameters)
        self.peak = learning_rate
        fused = all(value.device.type == "cuda" for value in self.parameters.values()) or None  # one kernel for all
        self.optimizer = torch.optim.AdamW(
            self.parameters.values(), lr=learning_rate, eps=adam_eps, weight_decay=weight_decay, fused=fused
        )
        self.max_grad_norm, self.max_skipped = max_grad_norm, max_skipped
        self.skipped, self.skipped_in_a_row = 0, 0
        self.losses: list[float] = []
        """The loss of each batch of the last update; of several processes, the sum over all of them."""

    @property
    def learning_rate(self) -> float:
        """The rate of the next update."""
        return float(self.optimizer.param_groups[0]["lr"])

    def set_learning_rate(self, factor: float) -> None:
        """Use this share of the peak rate from now on."""
        for group in self.optimizer.param_groups:
            group["lr"] = self.peak * factor

    def update(
        self,
        batches: Iterable[Batch],
        loss: Callable[[Batch], Tensor],
        veto: Callable[[], bool] = lambda: False,
        metrics: DeferredMeans | None = None,
    ) -> float | None:
        """Sum the gradients of ``loss`` over ``batches`` and step once; returns the gradient norm, None without a step.

        Each loss is already divided by the whole minibatch's token count, so the sum is the minibatch's gradient
        however it was split. ``veto`` is called once all losses are known, and ``metrics`` are read along with them.
        """
        self.optimizer.zero_grad(set_to_none=True)
        parts = []
        for batch in batches:
            part = loss(batch)
            part.backward()
            parts.append(part.detach())
        if self.ranks.shares:
            parts = [self._share(parts)]
        clipped = torch.nn.utils.clip_grad_norm_(self.parameters.values(), self.max_grad_norm)
        # All numbers are read at once, and only now: reading after each batch would leave the device idle in between.
        *self.losses, norm = (metrics or DeferredMeans()).read_with(torch.stack([*parts, clipped]))
        wrong = [value for value in self.losses if not math.isfinite(value)]
        if wrong:
            self._skip(f"loss is {wrong[0]}")
            return None
        if veto():
            self.optimizer.zero_grad(set_to_none=True)
            return None
        if not math.isfinite(norm):
            self._skip(f"gradient norm is {norm}")
            return None
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        self.skipped_in_a_row = 0
        return float(norm)

    def _share(self, parts: list[Tensor]) -> Tensor:
        """Replace the gradients of this process's batches by those of all; returns the loss of all batches.

        One exchange, before anything is decided: a process that returned early would keep the others waiting. A number
        that is not finite stays so in the sum, so that all processes skip the update, or none does.
        """
        values = list(self.parameters.values())
        gradients = [torch.zeros_like(value) if value.grad is None else value.grad for value in values]
        loss = torch.stack(parts).sum() if parts else torch.zeros((), device=values[0].device)
        flat = torch.cat([*(gradient.float().flatten() for gradient in gradients), loss.float()[None]])
        *shares, loss = self.ranks.sum(flat).split([*(value.numel() for value in values), 1])
        for value, share in zip(values, shares, strict=True):
            value.grad = share.view_as(value).to(value.dtype)
        return loss[0]

    def _skip(self, reason: str) -> None:
        self.optimizer.zero_grad(set_to_none=True)
        self.skipped += 1
        self.skipped_in_a_row += 1
        log.warning("%s update skipped (%s), %d in a row", self.name, reason, self.skipped_in_a_row)
        if self.skipped_in_a_row >= self.max_skipped:
            raise TrainingDivergedError(
                f"{self.skipped_in_a_row} {self.name} updates in a row were not finite (the last: {reason})."
            )

    def state_dict(self) -> State:
        """The optimiser's moments by parameter and kind, the counts of skipped updates, and the peak learning rate."""
        states = self.optimizer.state_dict()["state"]
        names = list(self.parameters)
        moments = {f"{names[i]}/{key}": value for i, state in states.items() for key, value in state.items()}
        counts = {"skipped": self.skipped, "skipped_in_a_row": self.skipped_in_a_row}
        return {"moments": moments, **counts, "peak": self.peak}

    def load_state_dict(self, state: State) -> None:
        """Resume from a checkpoint."""
        numbers = {name: i for i, name in enumerate(self.parameters)}
        moments: dict[int, dict[str, Tensor]] = {}
        for path, value in state["moments"].items():
            name, _, key = path.rpartition("/")
            moments.setdefault(numbers[name], {})[key] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": moments, "param_groups": groups})
        self.skipped, self.skipped_in_a_row = int(state["skipped"]), int(state["skipped_in_a_row"])
        self.peak = float(state.get("peak", self.peak))  # earlier versions could not change it
