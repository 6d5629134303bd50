"""Write docs/architectures.md: how ppolm compares with plain transformers and peft on each architecture.

python -m scripts.architecture_table            # all of them, in about five minutes
python -m scripts.architecture_table llama bart # some of them, printed
"""

from __future__ import annotations

import logging
import re
import sys
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from tests.architecture_check import Outcome

PAGE = Path(__file__).resolve().parent.parent / "docs" / "architectures.md"
MARKS = {
    "grouped_attention": "G",
    "fused_blocks": "B",
    "packed_prompts": "P",
    "slot_sampler": "S",
    "shared_trunk": "T",
}
"""The fast paths that depend on the architecture."""
INTRODUCTION = """# Architectures

A tiny random model of each architecture goes through everything that PPO does with a model, and is compared with
plain transformers and peft: eager attention, one sequence at a time, no cache. The comparison covers
log-probabilities of single and of shared prompts, the sampler's log-probabilities, one gradient of the policy, values
and rewards, all with adapters that change the output. An architecture **agrees** if nothing is off by more than 1e-4
(log-probabilities in nats, the rest relative to its size), or by more than twice the distance of the library's own
float32 from float64, where that is larger (hrm_text, on some CPUs). Or it is **refused** when it is loaded,
with the reason.

The faster ways used for it: G grouped attention, B fused blocks, P prompts packed once for all their answers, S slot
sampler, T a trunk that all roles share. The rest is computed by the library's own code. `sampler` says how responses
are drawn: `slots`, `cache` (the library's own), or `whole`, which reads the whole text again for every token.

Made by `python -m scripts.architecture_table`; the test suite recomputes {some} of the rows every time.

| architecture | outcome | faster ways | sampler | why it is refused |
|---|---|---|---|---|
"""
LEFT_OUT = """
## Left out

No tiny model can be made from their configuration alone (a component of another kind is missing, or it does not
shrink); they are tried when they are loaded, like all others: {names}
"""


def row_of(name: str, outcome: Outcome) -> tuple[str, ...]:
    """The cells of an architecture's table row."""
    if outcome.refused is not None:
        reason = re.sub(r"/\S+", "...", outcome.refused).replace("|", "\\|")
        return name, "refused", "", "", reason.split(" Use another")[0][:240]
    ways = "".join(mark for path, mark in MARKS.items() if path in outcome.on)
    return name, "WRONG: " + ", ".join(outcome.wrong) if outcome.wrong else "agrees", ways, outcome.sampler, ""


def read_table() -> dict[str, tuple[str, ...]]:
    """The rows of the page by architecture."""
    lines = [line for line in PAGE.read_text().splitlines() if line.startswith("| ")][1:]
    rows = [tuple(cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]) for line in lines]
    return {row[0]: row for row in rows}


def main() -> None:
    """Check all architectures, or those named on the command line."""
    import torch
    import transformers

    from tests.architecture_check import check_architecture
    from tests.architectures import ALL, LARGEST, VARIANTS, parameters_of
    from tests.whole.test_architectures import IN_THE_SUITE

    torch.set_num_threads(1)
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    logging.disable(logging.WARNING)
    rows, left_out = [], []
    for name in sys.argv[1:] or sorted({*ALL, *VARIANTS}):
        try:
            small = parameters_of(name) <= LARGEST
        except Exception as error:
            print(f"{name}: no tiny model ({type(error).__name__})", file=sys.stderr)
            small = False
        if not small:
            left_out.append(name)
            continue
        outcome = check_architecture(name)
        rows.append(row_of(name, outcome))
        print(" | ".join(rows[-1]), outcome.wrong or "", flush=True)
    if sys.argv[1:]:
        return
    table = "".join(f"| {' | '.join(row)} |\n" for row in rows)
    names = ", ".join(f"`{name}`" for name in left_out)
    PAGE.write_text(INTRODUCTION.format(some=len(IN_THE_SUITE)) + table + LEFT_OUT.format(names=names) + "\n")


if __name__ == "__main__":
    main()
