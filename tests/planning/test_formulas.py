"""The formulas of a step's time and traffic: hand-computed values, identities, and calibration from known speeds."""

from __future__ import annotations

import dataclasses

import pytest
import torch

from ppolm.planning.calibrate import rate_of
from ppolm.planning.hardware import KNOWN, published_speed, serving_speed
from ppolm.planning.step_time import (
    LOAD,
    Rate,
    Sampled,
    Speed,
    exchange_seconds,
    gathered_bytes,
    generation_seconds,
    reduced_bytes,
    shared_seconds,
    shipping_seconds,
    token_seconds,
    updates_of,
)

SPEED = Speed(
    scoring=Rate(blocks=100.0, output=50.0),
    update=Rate(blocks=80.0, output=40.0),
    bandwidth=1000.0,
    block_overhead=0.01,
    token_overhead=0.5,
    link=10.0,
    latency=0.1,
    disk=4.0,
)
SAMPLED = Sampled(
    layers=4, tokens=80.0, longest=10, limit=8, prompts=300.0, block=2.0, output=5.0, weights=100.0, cached=1.0
)


def test_a_token_waits_for_products_or_for_memory_whichever_is_slower() -> None:
    assert (SAMPLED.steps, SAMPLED.rows) == (10.0, 8.0)
    products = 8 * 4 * 2.0 / 100 + 8 * 5.0 / 50
    assert token_seconds(SAMPLED, SPEED) == pytest.approx(4 * 0.01 + 0.5 + products)
    slow = dataclasses.replace(SPEED, bandwidth=10.0)
    assert token_seconds(SAMPLED, slow) == pytest.approx(4 * 0.01 + 0.5 + (100 + 8 * 1.0) / 10)


def test_generation_is_prompts_and_a_step_for_every_token() -> None:
    assert generation_seconds(SAMPLED, SPEED) == pytest.approx(300 / 100 + 10 * token_seconds(SAMPLED, SPEED))


def test_rows_that_do_not_fit_wait_and_responses_that_end_early_make_room() -> None:
    crowded = dataclasses.replace(SAMPLED, limit=4)
    assert (crowded.steps, crowded.rows) == (20.0, 4.0)
    short = dataclasses.replace(SAMPLED, tokens=40.0)  # half as long on average, but one of them takes 10 steps
    assert (short.steps, short.rows) == (10.0, 4.0)


def test_devices_share_passes_and_gathering_a_base_hides_behind_them() -> None:
    assert shared_seconds(SPEED.scoring, 100.0, 50.0, 1, 0.0, SPEED) == 2.0
    assert shared_seconds(SPEED.scoring, 100.0, 50.0, 4, 0.0, SPEED) == 0.5
    assert shared_seconds(SPEED.scoring, 100.0, 50.0, 4, 4.0, SPEED) == 0.5
    assert shared_seconds(SPEED.scoring, 100.0, 50.0, 4, 30.0, SPEED) == 3.0, "the network is slower"


def test_gradients_are_summed_once_per_update_of_each_model() -> None:
    assert updates_of(batch=32, minibatch=8, epochs=4) == 2 * 4 * 4
    assert updates_of(batch=9, minibatch=8, epochs=1) == 4
    assert reduced_bytes(adapter=1000, updates=32, devices=4) == 32 * 8 * 1000 * 3 / 4
    assert reduced_bytes(adapter=1000, updates=32, devices=1) == 0
    assert exchange_seconds(100.0, 32, SPEED) == pytest.approx(100 / 10 + 3.2)


def test_a_sharded_base_is_received_but_for_the_own_share_in_every_pass() -> None:
    assert gathered_bytes(blocks=800.0, passes=3, devices=8) == 3 * 700
    assert gathered_bytes(blocks=800.0, passes=3, devices=1) == 0


def test_an_adapter_is_written_and_read_before_it_is_loaded() -> None:
    assert shipping_seconds(10, SPEED) == pytest.approx(2 * 4 * 10 / 4 + LOAD)


@pytest.mark.parametrize("output", [1.0, 20.0, 300.0])
def test_calibration_finds_the_speeds_that_two_times_come_from(output: float) -> None:
    known = Rate(blocks=70.0, output=30.0)
    blocks = (100.0, 400.0)
    found = rate_of(blocks, output, (known.seconds(blocks[0], output), known.seconds(blocks[1], output)))
    assert found.blocks == pytest.approx(70.0)
    assert found.seconds(1000.0, output) == pytest.approx(known.seconds(1000.0, output), rel=0.03)


def test_calibration_survives_a_larger_model_that_seemed_faster() -> None:
    found = rate_of((100.0, 400.0), 20.0, (3.0, 2.0))
    assert 0 < found.blocks < float("inf")
    assert 0 < found.output < float("inf")


def test_published_figures_are_reduced_to_what_is_assumed_to_be_reached() -> None:
    for hardware in KNOWN.values():
        speed = published_speed(hardware, torch.bfloat16, kernels=30)
        served = serving_speed(speed)
        assert speed.update.blocks < speed.scoring.blocks < hardware.flops
        assert speed.bandwidth < hardware.bandwidth
        assert hardware.available < hardware.memory
        assert (served.block_overhead, served.bandwidth) == (0.0, speed.bandwidth)
    far, near = (published_speed(KNOWN["h100-80gb"], torch.bfloat16, hosts) for hosts in (2, 1))
    assert far.link < near.link


@pytest.mark.parametrize(
    ("name", "dtype", "fused", "flops"),
    [
        ("gpu-24gb", torch.bfloat16, True, 165.2e12),
        ("gpu-24gb", torch.float16, False, 165.2e12),
        ("gpu-24gb", torch.float32, True, 82.6e12),
        ("a100-80gb", torch.float32, True, 19.5e12),
        ("h100-80gb", torch.float32, False, 67e12),
        ("laptop", torch.float32, True, 0.768e12),
        ("laptop", torch.bfloat16, True, 0.768e12),
        ("laptop", torch.bfloat16, False, 0.192e12),
        ("laptop", torch.float16, False, 0.384e12),
    ],
)
def test_products_are_as_fast_as_the_precision_is_on_that_hardware(
    name: str, dtype: torch.dtype, fused: bool, flops: float
) -> None:
    hardware = KNOWN[name]
    assert not torch.backends.cuda.matmul.allow_tf32, "float32 would be faster with TF32"
    speed = published_speed(hardware, dtype, fused=fused)
    assert speed.scoring.blocks == pytest.approx(hardware.scoring * flops)
    assert speed.update.blocks == pytest.approx(hardware.update * flops)
