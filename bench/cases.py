"""The shapes on which ppolm and its peer are compared, and the speed-up to reach."""

from __future__ import annotations

from dataclasses import dataclass, field

SMALL = ["--shape", "small", "--epochs", "4"]
RAGGED = [*SMALL, "--shortest", "75", "--longest", "300", "--response", "53", "--batch", "32", "--micro", "8"]
LARGE = ["--shape", "qwen3-0.6b", "--dtype", "bfloat16", "--epochs", "1", "--batch", "8"]
SUMMARY = [*LARGE, "--shortest", "200", "--longest", "400", "--response", "53", "--micro", "2"]
LEAN = ["--microbatch-tokens", "1024"]


@dataclass(frozen=True)
class Case:
    """Flags for both sides, additional flags for ours, and the ratio to reach."""

    name: str
    what: str
    flags: list[str]
    target: float
    ours: list[str] = field(default_factory=list)
    steps: int = 3


CASES = (
    Case("A", "4.2M, prompt 64, response 53, batch 8", [*SMALL, "--batch", "8"], 1.5, steps=8),
    Case("B", "4.2M, prompts 75 to 300, response 53, batch 32", RAGGED, 1.8),
    Case("B, K = 4", "B with 4 samples per prompt", [*RAGGED, "--samples", "4"], 3.5),
    Case("B, top 2", "B with the top half of the layers trained", RAGGED, 3.0, ["--layers", "2"]),
    Case("B, both", "B with both", [*RAGGED, "--samples", "4"], 5.0, ["--layers", "2"]),
    Case("F", "0.6B in bfloat16, prompt 64, response 10, batch 8", [*LARGE, "--response", "10"], 1.2, LEAN, steps=2),
    Case(
        "F, top 8",
        "F with the top 8 of 28 layers trained",
        [*LARGE, "--response", "10"],
        3.0,
        [*LEAN, "--layers", "8"],
        steps=2,
    ),
    Case("G", "F with 53 response tokens", [*LARGE, "--response", "53"], 1.5, LEAN, steps=2),
    Case("T", "0.6B in bfloat16, prompts 200 to 400, response 53, batch 8", SUMMARY, 1.2, LEAN, steps=2),
    Case(
        "T, K = 4, top 8",
        "T with two prompts of four samples each, and the top 8 layers",
        [*SUMMARY, "--samples", "4"],
        5.0,
        [*LEAN, "--layers", "8"],
        steps=2,
    ),
)
FEW = [*SMALL, "--shortest", "75", "--longest", "300", "--response", "53", "--batch", "8", "--micro", "8"]
QUICK = (
    Case("A", "4.2M, prompt 64, response 53, batch 8", [*SMALL, "--batch", "8"], 1.5, steps=4),
    Case("B, both, 8", "B with both and a batch of 8", [*FEW, "--samples", "4"], 3.0, ["--layers", "2"], steps=2),
)
"""The cases of ``--quick``."""

GENERATION = {
    "4.2M, prompts 75 to 300, up to 128 tokens, 32 at once": [
        *("--shape", "small", "--shortest", "75", "--longest", "300", "--response", "128", "--batch", "32")
    ],
    "the same, 4 samples per prompt": [
        *("--shape", "small", "--shortest", "75", "--longest", "300", "--response", "128", "--batch", "32"),
        *("--samples", "4"),
    ],
    "0.6B in bfloat16, prompts 64 to 200, up to 64 tokens, 8 at once": [
        *("--shape", "qwen3-0.6b", "--dtype", "bfloat16", "--shortest", "64", "--longest", "200"),
        *("--response", "64", "--batch", "8", "--ending", "0.02", "--steps", "3"),
    ],
}
"""Flags of the cases that measure generation alone."""
