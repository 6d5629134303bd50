"""Our sampler on many prompts with a shared prefix, as a template gives them; prints one JSON line.

python -m bench.shared_prefix --shape tiny --batch 2000 --longest 300 --response 2
"""

from __future__ import annotations

import json
import os
import time

os.environ.update(HF_HUB_OFFLINE="1", TOKENIZERS_PARALLELISM="false")

import torch
import transformers

from bench.packing import make_model
from bench.shapes import make_prompts, parser
from ppolm.rollout.sampling import Sampling


def main() -> None:
    given = parser(__doc__).parse_args()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(int(given.threads))
    policy = make_model(given.shape)
    (shared,) = make_prompts(given.shape, 1, given.longest, given.longest)
    prompts = [[*shared, 2 + number // 256, 2 + number % 256] for number in range(given.batch)]
    uniforms = torch.rand(len(prompts), given.response, dtype=torch.float64)
    policy.generate(prompts[:2], Sampling(given.response), uniforms)  # warm-up: trials and preparation happen once
    totals = []
    for _ in range(max(1, given.steps - 1)):
        start = time.perf_counter()
        policy.generate(prompts, Sampling(given.response), uniforms)
        totals.append(time.perf_counter() - start)
    print(json.dumps({"config": vars(given), "best_step_s": {"total": round(min(totals), 3)}}))


if __name__ == "__main__":
    main()
