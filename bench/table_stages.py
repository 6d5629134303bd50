"""Time of KL, reward adjustment, TD errors, GAE and reward-to-go on a million rows.

make bench
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable

import torch

from ppolm.advantage import add_reward_to_go, compute_gae_advantages, compute_td_errors
from ppolm.reward_kl import add_kl_to_sa_pairs, adjust_rewards_with_kl
from ppolm.token_attribution import SAPairs


def random_table(rows: int, longest: int) -> tuple[SAPairs, list[float]]:
    """A ragged table of about ``rows`` rows, and a score per sequence."""
    random = torch.Generator().manual_seed(0)
    lengths = torch.randint(1, longest + 1, (2 * rows // longest,), generator=random)
    offsets = torch.cat([torch.zeros(1, dtype=torch.long), lengths.cumsum(0)])
    count, sequences = int(offsets[-1]), len(lengths)
    columns = {name: torch.randn(count, generator=random) for name in ("logprob_policy", "logprob_ref", "value")}
    owner = torch.repeat_interleave(torch.arange(sequences), lengths)
    keys = {"prompt_idx": owner, "step": torch.arange(count) - offsets[owner], "action_id": torch.zeros_like(owner)}
    table = SAPairs({**keys, **columns}, offsets, torch.ones(sequences, dtype=torch.bool))
    return table, torch.randn(sequences, generator=random).tolist()


def measure(rows: int, longest: int, repeats: int) -> dict[str, float]:
    """Median seconds of each stage."""
    table, scores = random_table(rows, longest)
    stages: dict[str, Callable[[SAPairs], SAPairs]] = {
        "kl": add_kl_to_sa_pairs,
        "adjust": lambda pairs: adjust_rewards_with_kl(pairs, scores, 0.1),
        "td_error": lambda pairs: compute_td_errors(pairs, 0.99),
        "gae": lambda pairs: compute_gae_advantages(pairs, 0.99, 0.95),
        "reward_to_go": lambda pairs: add_reward_to_go(pairs, 0.99),
    }
    seconds: dict[str, list[float]] = {name: [] for name in stages}
    for _ in range(repeats):
        pairs = table
        for name, stage in stages.items():
            start = time.perf_counter()
            pairs = stage(pairs)
            seconds[name].append(time.perf_counter() - start)
    medians = {name: statistics.median(times) for name, times in seconds.items()}
    return {"rows": len(table), "sequences": table.num_sequences, **medians, "total": sum(medians.values())}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--longest", type=int, default=106, help="sequences have 1 to this many tokens")
    parser.add_argument("--repeats", type=int, default=7)
    parser.add_argument("--threads", type=int, default=2)
    arguments = parser.parse_args()
    torch.set_num_threads(arguments.threads)
    figures = measure(arguments.rows, arguments.longest, arguments.repeats)
    print(json.dumps({name: round(value, 4) for name, value in figures.items()}))


if __name__ == "__main__":
    main()
