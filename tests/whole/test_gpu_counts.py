"""What a GPU would have to do per token, per pass and per update, counted on the emulated device.

Nothing here may grow: each number is a launch of a kernel, or a time in which the device has nothing to do.
"""

from __future__ import annotations

import json

import pytest

from tests.warm import run_warm

Counts = dict[str, dict[str, int]]
LAYERS = 3


@pytest.fixture(scope="module")
def found() -> dict[int, Counts]:
    """The counts of models with one block and with ``LAYERS`` more."""
    counts = {}
    for layers in (1, 1 + LAYERS):
        counts[layers] = json.loads(run_warm("bench.gpu_counts", "--json", "--layers", str(layers)))
    return counts


def per_block(found: dict[int, Counts], phase: str, what: str) -> float:
    more, less = found[1 + LAYERS][phase].get(what, 0), found[1][phase].get(what, 0)
    return (more - less) / LAYERS


@pytest.mark.parametrize("phase", ["a generated token", "the same, after one of 8 rows has ended"])
def test_a_generated_token_waits_once_and_casts_nothing_in_a_block(found: dict[int, Counts], phase: str) -> None:
    counts = found[1 + LAYERS][phase]
    assert (counts["reads"], counts["writes"]) == (1, 0)
    assert per_block(found, phase, "casts") == 0
    assert per_block(found, phase, "kernels") <= 29
    assert per_block(found, phase, "  clone") == 0, "keys and values are copied for every query head"
    assert per_block(found, phase, "  cat") == 4, "layers that read the same input are one matrix beside its adapters"
    assert per_block(found, phase, "  attention") == 1
    assert counts.get("  pad_mask", 0) == 0, "a mask of this width is copied in every block"


def test_a_scored_microbatch_reads_nothing_and_is_copied_once(found: dict[int, Counts]) -> None:
    first, further = (found[1 + LAYERS][f"scoring, {name} microbatch"] for name in ("one", "each further"))
    assert (first["reads"], first["writes"]) == (1, 1)
    assert (further["reads"], further["writes"]) == (0, 1)
    assert further["nonzero"] == 0
    assert per_block(found, "scoring, one microbatch", "kernels") <= 50
    assert first["  maximum"] == 1, "the vocabulary is several tiles, with a running maximum for each"
    assert first.get("  pad_mask", 0) <= 1, "only the last block has a mask of its own"


@pytest.mark.parametrize(("model", "kernels"), [("policy", 134), ("value", 134)])
def test_an_update_is_one_transfer_of_numbers_and_one_step_of_the_optimiser(
    found: dict[int, Counts], model: str, kernels: int
) -> None:
    first, further = (found[1 + LAYERS][f"a {model} update, {name} microbatch"] for name in ("one", "each further"))
    assert (first["reads"], first["writes"]) == (1, 2)
    assert (further["reads"], further["writes"]) == (0, 2)
    assert first["  _fused_adamw_"] == 1
    assert per_block(found, f"a {model} update, one microbatch", "kernels") <= kernels
    assert per_block(found, f"a {model} update, one microbatch", "casts") <= 22
