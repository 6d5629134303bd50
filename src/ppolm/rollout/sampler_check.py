"""Whether a sampler gives the log-probabilities of a loaded model: tested, not guessed from its name."""

from __future__ import annotations

import torch

from ppolm.batches.sequences import TokenSequences
from ppolm.names import SamplerKind
from ppolm.rollout.samplers import sample
from ppolm.rollout.sampling import Sampling
from ppolm.rollout.sampling_base import SamplingBase

PROMPT_LENGTHS = (11, 4, 4, 7)
"""Two are the same prompt, and they do not all fit in the cache at once."""
NEW_TOKENS = 12


@torch.no_grad()
def sampler_refusal(setup: SamplingBase, kind: SamplerKind) -> str | None:
    """Why a sampler must not be used with the bare base, or None.

    Every log-probability it gives is compared with that of the same token when the whole text is processed at once. To
    be called before adapters are added: a decision that depended on their weights might change in a resumed run.
    """
    random = torch.Generator().manual_seed(1)
    prompts = [torch.randint(setup.text_config.vocab_size, (length,), generator=random) for length in PROMPT_LENGTHS]
    prompts[2] = prompts[1]
    uniforms = torch.rand(len(prompts), NEW_TOKENS, generator=random, dtype=torch.float64)
    width = max(PROMPT_LENGTHS) + NEW_TOKENS
    sampling = Sampling(NEW_TOKENS, batch_tokens=3 * width)
    sampled = sample(kind, setup, [prompt.tolist() for prompt in prompts], sampling, uniforms)
    actions = [torch.tensor(one.token_ids) for one in sampled]
    size, differences = 0.0, []
    rows = TokenSequences(prompts, actions)
    given = torch.cat([torch.tensor(one.logprobs) for one in sampled])
    for batch in rows.microbatches(10**6, setup.tokenizer.pad_id, setup.device):
        logits = setup.project(setup.wanted_states(batch.input_ids, batch)).float()
        whole = logits.log_softmax(-1).gather(-1, batch.actions[:, None]).squeeze(-1).cpu()
        size = max(size, float(logits.std(-1).mean()))
        differences.append(given[batch.rows] - whole)
    found = torch.cat(differences)
    # In bfloat16 a single token may be off by several roundings of the largest logit; the root mean square is not.
    off = float(found.abs().max() if setup.dtype == torch.float32 else found.pow(2).mean().sqrt())
    limit = setup.rounding.mean * max(1.0, size)
    return None if off <= limit else f"log-probabilities off by {off:.1g}, {limit:.1g} is rounding"
