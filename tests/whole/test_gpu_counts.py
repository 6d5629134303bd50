"""What a GPU would have to do per token, per pass and per update, counted on the emulated device.

Nothing here may grow: each number is a launch of a kernel, or a time in which the device has nothing to do.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.warm import run_warm

Counts = dict[str, dict[str, int]]
FEW = 2
"""Blocks of the smaller model: the first and the last one cost less than those between them."""
LAYERS = 3
"""Blocks that the larger one has more."""
ENDED = "the same, after one of 8 rows has ended"
PAGE = Path(__file__).parents[2] / "docs" / "one-gpu.md"


@pytest.fixture(scope="module")
def found() -> dict[int, Counts]:
    """The counts of models with ``FEW`` blocks and with ``LAYERS`` more."""
    counts = {}
    for layers in (FEW, FEW + LAYERS):
        counts[layers] = json.loads(run_warm("bench.gpu_counts", "--json", "--layers", str(layers)))
    return counts


def per_block(found: dict[int, Counts], phase: str, what: str) -> float:
    more, less = found[FEW + LAYERS][phase].get(what, 0), found[FEW][phase].get(what, 0)
    return (more - less) / LAYERS


def test_the_figures_of_the_page_are_those_that_are_counted(found: dict[int, Counts]) -> None:
    """The page's model has 28 blocks; each costs what one of the blocks here does."""
    rows = [line.split("|")[1:-1] for line in PAGE.read_text(encoding="utf-8").splitlines() if "→ **" in line]
    said = {name.strip(): [_after(cell) for cell in cells] for name, *cells in rows}
    renamed = {"a generated token (8 rows)": "a generated token", "the same, after one of the rows has ended": ENDED}
    columns = ("kernels", "casts", "reads", "writes")
    for name, figures in said.items():
        phase = renamed.get(name, name)
        counted = [found[FEW][phase].get(what, 0) + (28 - FEW) * per_block(found, phase, what) for what in columns]
        assert counted == pytest.approx(figures, rel=0.003), phase
    assert len(said) == len(found[FEW])


def _after(cell: str) -> int:
    return int(cell.split("→")[1].strip(" *").replace(",", ""))


@pytest.mark.parametrize("phase", ["a generated token", ENDED])
def test_a_generated_token_waits_once_and_casts_nothing_in_a_block(found: dict[int, Counts], phase: str) -> None:
    counts = found[FEW + LAYERS][phase]
    assert (counts["reads"], counts["writes"]) == (1, 0)
    assert per_block(found, phase, "casts") == 0
    assert per_block(found, phase, "kernels") <= 29
    assert per_block(found, phase, "  clone") == 0, "keys and values are copied for every query head"
    assert per_block(found, phase, "  cat") == 4, "layers that read the same input are one matrix beside its adapters"
    assert per_block(found, phase, "  attention") == 1
    assert counts.get("  pad_mask", 0) == 0, "a mask of this width is copied in every block"


@pytest.mark.parametrize(("sampler", "writes"), [("the library's cache", 0), ("whole texts", 2)])
def test_a_token_of_a_model_without_the_slot_sampler_waits_for_one_number_too(
    found: dict[int, Counts], sampler: str, writes: int
) -> None:
    counts = found[FEW + LAYERS][f"a token of {sampler}"]
    assert (counts["reads"], counts["nonzero"], counts["writes"]) == (1, 0, writes)


def test_a_microbatch_without_shared_prompts_reads_nothing(found: dict[int, Counts]) -> None:
    counts = found[FEW + LAYERS]["scoring, each further microbatch of whole rows"]
    assert (counts["reads"], counts["nonzero"], counts["writes"]) == (0, 0, 1)


def test_a_scored_microbatch_reads_nothing_and_is_copied_once(found: dict[int, Counts]) -> None:
    first, further = (found[FEW + LAYERS][f"scoring, {name} microbatch"] for name in ("one", "each further"))
    assert (first["reads"], first["writes"]) == (1, 1)
    assert (further["reads"], further["writes"]) == (0, 1)
    assert further["nonzero"] == 0
    assert per_block(found, "scoring, one microbatch", "kernels") <= 50
    assert first["  maximum"] == 1, "the vocabulary is several tiles, with a running maximum for each"
    assert first.get("  pad_mask", 0) <= 1, "only the last block has a mask of its own"


@pytest.mark.parametrize(("model", "kernels"), [("policy", 127), ("value", 127)])
def test_an_update_is_one_transfer_of_numbers_and_one_step_of_the_optimiser(
    found: dict[int, Counts], model: str, kernels: int
) -> None:
    first, further = (found[FEW + LAYERS][f"a {model} update, {name} microbatch"] for name in ("one", "each further"))
    assert (first["reads"], first["writes"]) == (1, 2)
    assert (further["reads"], further["writes"]) == (0, 2)
    assert first["  _fused_adamw_"] == 1
    assert per_block(found, f"a {model} update, one microbatch", "kernels") <= kernels
    assert per_block(found, f"a {model} update, one microbatch", "casts") <= 22
