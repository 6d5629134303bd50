"""PARITY, advantages: ``test_parity_NN`` covers line NN of the list of details an RLHF-PPO must get right."""

from __future__ import annotations

import numpy as np
import torch
from hypothesis import given
from hypothesis import strategies as st

from ppolm.advantage import compute_gae_advantages, compute_td_errors
from ppolm.advantage.gae_advantage import gae
from ppolm.reward_kl import adjust_rewards_with_kl
from tests.closeness import assert_rounding


def test_parity_08_the_score_sits_on_the_last_action_token_and_lambda_discounts_from_there() -> None:
    rows = [{"step": t, "kl": 0.0, "value": 0.0} for t in range(4)]
    pairs = adjust_rewards_with_kl(rows, [1.0], kl_coef=0.1)
    assert pairs.column("reward").tolist() == [0, 0, 0, 1]
    advantage = compute_gae_advantages(pairs, gamma=0.9, lam=0.5).column("advantage")
    torch.testing.assert_close(advantage, torch.tensor([0.45**3, 0.45**2, 0.45, 1.0]))


@st.composite
def ragged(draw: st.DrawFn) -> tuple[list[int], np.ndarray, np.ndarray]:
    lengths = draw(st.lists(st.integers(1, 40), min_size=1, max_size=8))
    seed = draw(st.integers(0, 2**32 - 1))
    random = np.random.default_rng(seed)
    return lengths, random.normal(size=sum(lengths)), random.normal(size=sum(lengths))


@given(ragged(), st.floats(0, 1), st.floats(0, 1))
def test_parity_11_gae_equals_a_slow_loop_on_ragged_input(
    data: tuple[list[int], np.ndarray, np.ndarray], gamma: float, lam: float
) -> None:
    lengths, rewards, values = data
    expected, start = [], 0
    for length in lengths:
        advantages, following, next_value = np.zeros(length), 0.0, 0.0
        for t in reversed(range(length)):
            delta = rewards[start + t] + gamma * next_value - values[start + t]
            following = delta + gamma * lam * following
            next_value, advantages[t] = values[start + t], following
        expected.append(advantages)
        start += length
    offsets = torch.tensor([0, *np.cumsum(lengths)])
    ours, returns = gae(torch.tensor(rewards), torch.tensor(values), offsets, gamma, lam)
    np.testing.assert_allclose(ours.numpy(), np.concatenate(expected), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(returns.numpy(), np.concatenate(expected) + values, rtol=1e-5, atol=1e-5)


@given(ragged())
def test_parity_11_lambda_0_is_the_td_error_and_lambda_1_is_return_minus_value(
    data: tuple[list[int], np.ndarray, np.ndarray],
) -> None:
    lengths, rewards, values = data
    steps = [t for length in lengths for t in range(length)]
    rows = [
        {"step": s, "reward": r, "value": v} for s, r, v in zip(steps, rewards.tolist(), values.tolist(), strict=True)
    ]
    pairs = compute_td_errors(rows, gamma=0.9)
    torch.testing.assert_close(compute_gae_advantages(pairs, 0.9, 0.0).column("advantage"), pairs.column("td_error"))
    ends = torch.tensor(np.cumsum(lengths)) - 1
    last = pairs.column("td_error")[ends]  # terminal V = 0: only reward minus value is left
    torch.testing.assert_close(last, (pairs.column("reward") - pairs.column("value"))[ends])
    monte_carlo = torch.cat([part.flip(0).cumsum(0).flip(0) for part in torch.tensor(rewards).split(lengths)])
    advantage = compute_gae_advantages(pairs, 1.0, 1.0).column("advantage")
    assert_rounding(advantage, (monte_carlo - torch.tensor(values)).float())
