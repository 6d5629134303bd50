"""Training and sampling work on any device, give the same numbers as on the CPU, and seldom wait for the device.

The devices are emulated (emulated_device.py) in a separate process. Numbers are equal up to rounding: on the CPU
ppolm's own attention and torch's fused one are used, which devices do not have. Even without these the last bits
differed.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
import torch

from ppolm.base_setup import device as device_room
from ppolm.base_setup.device import LARGE, multiplies, resolve_dtype
from ppolm.cli.demo_command import DemoArguments, demo_config
from tests.warm import run_warm

DEVICES = ("cuda:0", "mps:0")
SCENARIOS = ("sft", "reward", "readiness", "ppo", "resume", "generate", "samplers", "fallbacks", "saving")
BUDGET = {
    "ten_tokens": {"reads": 10, "writes": 0, "copies": 10},
    "ten_tokens_after_an_end": {"reads": 10, "writes": 0, "copies": 10},
    "policy_update": {"reads": 1, "writes": 4},
    "value_update": {"reads": 1, "writes": 4},
    "scoring": {"reads": 1, "writes": 2},
    "microbatches": {"of_an_update": 2},
}
"""How often the host may wait for the device. These numbers may be lowered, never raised. ``copies``: one per token is
of the chosen logits, and one more per block would be of its keys and values."""


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The output of the program: all results by device."""
    printed = run_warm("tests.device_program", tmp_path_factory.mktemp("devices"), *DEVICES)
    results: dict[str, Any] = json.loads(printed)
    return results


def differences(one: Any, other: Any, where: str = "") -> list[str]:
    """Where two results differ by more than rounding, which is about 1e-6 for a log-probability."""
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [line for name in one for line in differences(one[name], other[name], f"{where}/{name}")]
    if isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        return [line for i in range(len(one)) for line in differences(one[i], other[i], f"{where}/{i}")]
    if isinstance(one, float) and isinstance(other, float):
        return [] if one == pytest.approx(other, rel=1e-5, abs=5e-6, nan_ok=True) else [f"{where}: {one} {other}"]
    return [] if one == other else [f"{where}: {one!r} {other!r}"]


@pytest.mark.parametrize("scenario", SCENARIOS)
@pytest.mark.parametrize("device", DEVICES)
def test_what_is_trained_and_said_on_a_device_is_what_the_cpu_gives(
    found: dict[str, Any], device: str, scenario: str
) -> None:
    assert differences(found["cpu"][scenario], found[device][scenario]) == []


@pytest.mark.parametrize("device", ["cpu", *DEVICES])
def test_the_fast_paths_are_used_on_every_device(found: dict[str, Any], device: str) -> None:
    fast = {name: found[device][name]["fast"] for name in ("sft", "reward", "ppo")}
    assert fast == {
        "sft": {"last_block": True, "trunk": True, "grouped": True, "packing": True},
        "reward": {"last_block": True, "trunk": True, "grouped": True, "packing": True},
        "ppo": {"last_block": True, "trunk": True, "grouped": True, "packs_prompts": True, "slots": True},
    }


@pytest.mark.parametrize("device", ["cpu", *DEVICES])
def test_a_resumed_training_is_the_uninterrupted_one_to_the_last_bit_on_its_device(
    found: dict[str, Any], device: str
) -> None:
    results, resumed = found[device], found[device]["resume"]
    assert resumed["ppo"] == results["ppo"]["steps"][1:]
    assert resumed["sft"] == results["sft"]["history"]
    assert resumed["reward"] == results["reward"]["history"]


@pytest.mark.parametrize("way", ["from_cpu", "to_cpu"])
@pytest.mark.parametrize("device", DEVICES)
def test_a_training_that_was_interrupted_on_one_device_goes_on_on_another(
    found: dict[str, Any], device: str, way: str
) -> None:
    assert differences(found["cpu"]["resume"], found[device][way]) == []


@pytest.mark.parametrize("what", BUDGET)
@pytest.mark.parametrize("device", DEVICES)
def test_the_host_waits_for_the_device_no_more_often_than_it_must(
    found: dict[str, Any], device: str, what: str
) -> None:
    counted = found[device]["waits"][what]
    assert all(counted[name] <= most for name, most in BUDGET[what].items()), f"{counted}, expected {BUDGET[what]}"


def test_a_gpu_without_bfloat16_stores_the_base_in_float16(monkeypatch: pytest.MonkeyPatch) -> None:
    device = torch.device("cuda")
    for has_it, expected in ((False, torch.float16), (True, torch.bfloat16)):  # a T4, an A100
        monkeypatch.setattr(
            torch.cuda, "is_bf16_supported", lambda including_emulation=True, has=has_it: including_emulation or has
        )
        assert resolve_dtype("auto", device, lambda: pytest.fail("not asked")) == expected


@pytest.mark.parametrize(
    ("works", "size", "expected"),
    [(True, LARGE, torch.bfloat16), (True, 10**6, torch.float32), (False, LARGE, torch.float32)],
)
def test_mps_uses_bfloat16_for_large_models_where_it_works(
    works: bool, size: int, expected: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(device_room, "multiplies", lambda *_: works)
    assert resolve_dtype("auto", torch.device("mps"), lambda: size) == expected


def test_whether_a_device_multiplies_is_tried() -> None:
    assert multiplies(torch.bfloat16, torch.device("cpu"))
    assert not multiplies(torch.bfloat16, torch.device("meta")), "nothing can be read from it"
    assert not multiplies(torch.bool, torch.device("cpu"))


def test_the_demo_computes_in_the_precision_of_its_figures_on_every_device() -> None:
    assert demo_config(DemoArguments()).dtype == "float32"
