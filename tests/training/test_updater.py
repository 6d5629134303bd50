"""The optimiser step: exact sums, clipping, and nothing that is not finite."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import Tensor

from ppolm.errors import TrainingDivergedError
from ppolm.training.running_means import DeferredMeans
from ppolm.training.updater import Updater


def make_updater(value: list[float], max_grad_norm: float = 1.0, max_skipped: int = 3) -> tuple[Updater, Tensor]:
    parameter = torch.tensor(value, requires_grad=True)
    return Updater("policy", {"w": parameter}, 0.1, 1e-5, 0.0, max_grad_norm, max_skipped), parameter


def test_gradients_of_all_parts_are_summed_before_one_step() -> None:
    updater, parameter = make_updater([1.0, 2.0], max_grad_norm=100.0)
    seen: list[Tensor] = []
    parameter.register_hook(lambda gradient: seen.append(gradient.clone()))
    norm = updater.update([3.0, 4.0], lambda factor: factor * parameter.sum())
    assert len(seen) == 2
    assert norm == pytest.approx(7 * math.sqrt(2))


def test_the_norm_that_is_reported_is_the_one_before_clipping() -> None:
    updater, parameter = make_updater([0.0], max_grad_norm=1e-3)
    clipped: list[float] = []
    step = updater.optimizer.step

    def spy() -> None:
        assert parameter.grad is not None
        clipped.append(float(parameter.grad))
        step()

    updater.optimizer.step = spy  # type: ignore[method-assign, assignment]
    assert updater.update([5.0], lambda factor: factor * parameter.sum()) == pytest.approx(5)
    assert clipped == pytest.approx([1e-3], rel=1e-2)


@pytest.mark.parametrize("kind", ["loss", "gradient"])
def test_a_loss_or_gradient_that_is_not_finite_is_skipped_counted_and_stops_after_several(kind: str) -> None:
    updater, parameter = make_updater([0.0, 1.0])

    def loss(_: int) -> Tensor:
        # The root of 0 is finite, but its slope is not.
        return parameter.sum() * math.nan if kind == "loss" else parameter.abs().sqrt().sum()

    before = parameter.detach().clone()
    assert updater.update([0], loss) is None
    assert updater.update([0], loss) is None
    assert (updater.skipped, updater.skipped_in_a_row) == (2, 2)
    assert torch.equal(parameter.detach(), before)
    assert updater.update([0], lambda _: parameter.square().sum()) is not None  # a good one starts the count anew
    assert (updater.skipped, updater.skipped_in_a_row) == (2, 0)
    with torch.no_grad():
        parameter.copy_(before)
    updater.update([0], loss)
    updater.update([0], loss)
    with pytest.raises(TrainingDivergedError, match="3 policy updates in a row were not finite"):
        updater.update([0], loss)


def test_a_veto_leaves_the_parameters_alone_and_counts_nothing() -> None:
    updater, parameter = make_updater([1.0])
    assert updater.update([1.0], lambda factor: factor * parameter.sum(), veto=lambda: True) is None
    assert parameter.tolist() == [1.0]
    assert parameter.grad is None
    assert updater.skipped == 0


def test_metrics_of_an_update_are_read_along_with_its_losses(monkeypatch: pytest.MonkeyPatch) -> None:
    updater, parameter = make_updater([1.0, 2.0])
    metrics, reads = DeferredMeans(), list[int]()
    plain = Tensor.tolist

    def read(tensor: Tensor) -> Any:
        reads.append(len(tensor))
        return plain(tensor)

    def loss(factor: float) -> Tensor:
        part = factor * parameter.sum()
        metrics.add({"mean": part.detach()}, weight=factor, largest={"top": part.detach()})
        return part

    monkeypatch.setattr(Tensor, "tolist", read)
    updater.update([3.0, 4.0], loss, metrics=metrics)
    assert updater.losses == [9.0, 12.0]
    assert metrics.means() == {"mean": (3 * 9 + 4 * 12) / 7}
    assert metrics.largest("top") == 12.0
    assert reads == [3 + 2 * 2], "two losses and a norm, and twice a mean and a largest value"


def test_only_on_cuda_one_kernel_updates_all_weights() -> None:
    assert make_updater([1.0])[0].optimizer.defaults["fused"] is None
