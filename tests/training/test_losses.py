"""The pure maths of the update: hand-computed tables, identities and properties."""

from __future__ import annotations

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from ppolm.advantage.ragged import discounted_suffix_sums
from ppolm.reward_kl.kl_divergence import estimate_kl
from ppolm.training.policy_loss import ppo_clip_loss
from ppolm.training.policy_ratio import approx_kl, is_clipped, policy_ratio
from ppolm.training.running_means import DeferredMeans, RunningMeans
from ppolm.training.schedule import learning_rate_factor
from ppolm.training.value_loss import explained_variance

RATIO = torch.tensor([0.5, 0.9, 1.0, 1.1, 2.0, 10.0])
NUMBERS = st.floats(-3, 3, width=32)


def test_ppo_clip_loss_takes_the_worse_of_clipped_and_unclipped() -> None:
    good = ppo_clip_loss(RATIO, torch.ones(6), 0.2, 0.2)  # A = 1: the gain is capped at 1.2
    torch.testing.assert_close(good, torch.tensor([-0.5, -0.9, -1.0, -1.1, -1.2, -1.2]))
    bad = ppo_clip_loss(RATIO, -torch.ones(6), 0.2, 0.2)  # A = -1: the relief is capped at 0.8
    torch.testing.assert_close(bad, torch.tensor([0.8, 0.9, 1.0, 1.1, 2.0, 10.0]))


def test_asymmetric_clip_has_its_own_upper_limit() -> None:
    loss = ppo_clip_loss(RATIO, torch.ones(6), 0.2, 0.5)
    torch.testing.assert_close(loss, torch.tensor([-0.5, -0.9, -1.0, -1.1, -1.5, -1.5]))
    assert is_clipped(RATIO, 0.2, 0.5).tolist() == [True, False, False, False, True, True]


def test_dual_clip_bounds_the_loss_of_bad_actions_only() -> None:
    bad = ppo_clip_loss(RATIO, -torch.ones(6), 0.2, 0.2, dual_clip=3.0)
    torch.testing.assert_close(bad, torch.tensor([0.8, 0.9, 1.0, 1.1, 2.0, 3.0]))
    plain = ppo_clip_loss(RATIO, torch.ones(6), 0.2, 0.2)
    assert torch.equal(ppo_clip_loss(RATIO, torch.ones(6), 0.2, 0.2, dual_clip=3.0), plain)


@given(st.lists(NUMBERS, min_size=1, max_size=20), NUMBERS)
def test_clipping_never_lowers_the_loss(log_ratios: list[float], advantage: float) -> None:
    ratio = torch.tensor(log_ratios).exp()
    clipped = ppo_clip_loss(ratio, torch.full_like(ratio, advantage), 0.2, 0.2)
    assert bool((clipped >= -ratio * advantage - 1e-5).all())


def test_clipped_tokens_have_no_gradient() -> None:
    ratio = torch.tensor([1.5, 1.1], requires_grad=True)
    ppo_clip_loss(ratio, torch.ones(2), 0.2, 0.2).sum().backward()
    assert ratio.grad is not None
    assert ratio.grad.tolist() == [0, -1]


def test_ratio_and_approx_kl_by_hand() -> None:
    new, old = torch.tensor([-1.0, -2.0]), torch.tensor([-1.0, -1.0])
    torch.testing.assert_close(policy_ratio(new, old), torch.tensor([1.0, math.exp(-1)]))
    torch.testing.assert_close(approx_kl(new, old), torch.tensor([0.0, math.exp(-1) - 1 + 1]))


def test_kl_estimators_by_hand() -> None:
    policy, reference = torch.tensor([-1.0, -2.0, -1.0]), torch.tensor([-1.5, -1.0, -1.0])
    torch.testing.assert_close(estimate_kl(policy, reference, "k1"), torch.tensor([0.5, -1.0, 0.0]))
    torch.testing.assert_close(estimate_kl(policy, reference, "k2"), torch.tensor([0.125, 0.5, 0.0]))
    expected = torch.tensor([math.exp(-0.5) - 0.5, math.exp(1.0) - 2.0, 0.0])
    torch.testing.assert_close(estimate_kl(policy, reference, "k3"), expected)
    with pytest.raises(ValueError, match="k1, k2 or k3"):
        estimate_kl(policy, reference, "k4")


def test_k1_and_k3_average_to_the_true_kl_and_k2_is_close() -> None:
    generator = torch.Generator().manual_seed(0)
    policy = torch.tensor([0.5, 0.3, 0.2]).log()
    reference = torch.tensor([0.4, 0.4, 0.2]).log()
    true = float((policy.exp() * (policy - reference)).sum())
    tokens = torch.multinomial(policy.exp(), 200_000, replacement=True, generator=generator)
    for name, tolerance in (("k1", 0.05), ("k3", 0.02), ("k2", 0.1)):
        estimate = float(estimate_kl(policy[tokens], reference[tokens], name).mean())
        assert estimate == pytest.approx(true, rel=tolerance)


@given(st.lists(NUMBERS, min_size=1, max_size=20))
def test_k2_and_k3_are_never_negative(differences: list[float]) -> None:
    x = torch.tensor(differences)
    assert bool((estimate_kl(x, torch.zeros_like(x), "k2") >= 0).all())
    assert bool((estimate_kl(x, torch.zeros_like(x), "k3") >= -1e-6).all())


@given(st.lists(st.lists(NUMBERS, min_size=1, max_size=30), min_size=1, max_size=6), st.floats(0, 1))
def test_suffix_sums_equal_a_slow_loop(sequences: list[list[float]], discount: float) -> None:
    expected: list[float] = []
    for sequence in sequences:
        following, sums = 0.0, []
        for value in reversed(sequence):
            following = value + discount * following
            sums.append(following)
        expected += reversed(sums)
    flat = torch.tensor([value for sequence in sequences for value in sequence], dtype=torch.float64)
    offsets = torch.tensor([0, *[len(sequence) for sequence in sequences]]).cumsum(0)
    before = flat.clone()
    ours = discounted_suffix_sums(flat, offsets, discount)
    torch.testing.assert_close(ours, torch.tensor(expected, dtype=torch.float64), rtol=1e-9, atol=1e-9)
    assert torch.equal(flat, before)


def test_explained_variance_is_1_for_truth_0_for_a_constant_and_negative_for_worse() -> None:
    target = torch.tensor([1.0, 2.0, 3.0, 4.0])
    assert explained_variance(target, target) == 1
    assert explained_variance(target + 5, target) == 1  # a constant error does not count: it is the variance that does
    assert explained_variance(torch.zeros(4), target) == 0
    assert explained_variance(-target, target) == pytest.approx(-3)
    assert explained_variance(target, torch.ones(4)) == 0


@pytest.mark.parametrize(
    ("schedule", "factors"),
    [
        ("constant", [0.5, 1, 1, 1, 1, 1]),
        ("linear", [0.5, 1, 1, 0.75, 0.5, 0.25]),
        ("cosine", [0.5, 1, 1, 0.853553, 0.5, 0.146447]),
    ],
)
def test_schedules_by_hand(schedule: str, factors: list[float]) -> None:
    ours = [learning_rate_factor(step, 6, schedule, warmup_steps=2) for step in range(6)]
    assert ours == pytest.approx(factors, abs=1e-6)
    assert learning_rate_factor(100, None, schedule, 2) == 1  # a run of unknown length stays at its peak


def test_running_means_are_weighted_and_nan_without_values() -> None:
    means = RunningMeans()
    means.add({"loss": 1.0}, weight=3)
    means.add({"loss": 5.0, "norm": 2.0}, weight=1)
    assert means.means() == {"loss": 2.0, "norm": 2.0}
    assert math.isnan(means.mean("absent"))


def test_means_that_are_read_late_are_those_that_are_read_at_once() -> None:
    late, at_once = DeferredMeans(), RunningMeans()
    assert late.means() == {}
    assert late.largest("gap") == 0.0
    for weight, loss, gap in ((3, 0.1, 0.7), (1, 0.3, 0.2), (2, 0.7, 0.5)):
        numbers = {"loss": torch.tensor(loss)}
        late.add(numbers, weight, largest={"gap": torch.tensor(gap)})
        at_once.add({"loss": float(numbers["loss"])}, weight)
        assert late.means() == at_once.means()
        assert late.largest("gap") == float(torch.tensor(0.7))
