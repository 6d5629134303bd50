"""Sizes of passes by device: a GPU pays for every pass, and has room for larger ones."""

from __future__ import annotations

import torch

from bench.shapes import model_config
from ppolm.base_setup.device import SCORING_TIMES, pass_cost, scoring_tokens
from ppolm.batches.packing_cost import Cost
from ppolm.batches.sequences import PASS_COST, split_by_tokens

CPU, CUDA, MPS = torch.device("cpu"), torch.device("cuda"), torch.device("mps")
SMALL, LARGE = 15_700_000, 193_000_000
"""Weights of a block of Qwen3-0.6B and of Qwen3-8B."""


def test_a_pass_costs_more_tokens_where_tokens_are_cheap() -> None:
    assert pass_cost(CPU, SMALL) == pass_cost(CPU, LARGE) == PASS_COST
    assert pass_cost(CUDA, SMALL) > PASS_COST > pass_cost(CUDA, LARGE) > 1
    assert pass_cost(CUDA, SMALL) > pass_cost(MPS, SMALL) > 1
    assert pass_cost(CUDA, 10**12) == 1


def test_small_models_are_read_in_fewer_passes_on_a_device() -> None:
    lengths = [300, 300, 150, 150]
    passes = [len(split_by_tokens(lengths, 8192, pass_cost(device, SMALL))) for device in (CPU, CUDA)]
    assert passes == [2, 1]


def test_the_cost_of_a_pass_counts_in_the_choice_of_the_layout() -> None:
    config = model_config("qwen3-0.6b")
    cheap, dear = Cost.of(config), Cost.of(config, start=1000)
    assert dear.of_pass(1, 10, 5, packed=True) - cheap.of_pass(1, 10, 5, packed=True) == 28 * (1000 - PASS_COST)


def test_a_pass_without_gradients_is_larger_on_a_device_alone() -> None:
    assert scoring_tokens(CPU, 2048) == 2048
    assert scoring_tokens(CUDA, 2048) == scoring_tokens(MPS, 2048) == 2048 * SCORING_TIMES
