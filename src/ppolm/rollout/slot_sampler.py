"""Sampling in this process: finished responses leave the batch, and waiting prompts take their place."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from ppolm.batches.one_copy import on_device
from ppolm.batches.sequences import split_by_tokens
from ppolm.kernels.decode_layers import PAYS_AFTER, DecodeLayers
from ppolm.kernels.fused_block import last_block_at
from ppolm.rollout.sampling import Sampled, Sampling, choose_unchecked, exact_dtype, refuse_non_finite
from ppolm.rollout.sampling_base import SamplingBase
from ppolm.rollout.slot_cache import SlotCache, seen

PROMPT_TOKENS = 8192
"""Prompt tokens computed at once: bounds memory, and more would not be faster."""

REACH = 64
"""Keys that attention reads are counted in multiples of this on a device: kernels want aligned masks, and a shape that
changes at every token could not be reused."""

CROWDED = 0.75
"""Rows are compacted once at most this share of them is still running."""


class SlotSampler:
    """One response per prompt from the active role; a prompt that is given several times is computed once.

    Row i of ``uniforms`` decides the draws of prompt i, so a response does not depend on how prompts are grouped.
    """

    def __init__(
        self, setup: SamplingBase, prompts: Sequence[Sequence[int]], sampling: Sampling, uniforms: Tensor
    ) -> None:
        self.setup, self.sampling = setup, sampling
        # As big-endian bytes: they sort like the ids, are compared in one go, and cache their hash.
        keys = [np.array(prompt, dtype=">i8").tobytes() for prompt in prompts]
        numbers = {key: i for i, key in enumerate(sorted(set(keys), key=lambda key: (-len(key), key)))}
        self.numbers = [numbers[key] for key in keys]
        """The index of each response's prompt among the distinct ones, longest first."""
        self.prompts = [torch.from_numpy(np.frombuffer(key, dtype=">i8").astype(np.int64)) for key in numbers]
        self.device = setup.device
        self.uniforms = uniforms.to(self.device, exact_dtype(self.device))
        self.eos_ids = torch.tensor(setup.tokenizer.eos_ids, dtype=torch.long, device=self.device)
        count, limit = len(prompts), sampling.max_new_tokens
        self.tokens = torch.zeros(count, limit, dtype=torch.long, device=self.device)
        self.logprobs = torch.zeros(count, limit, device=self.device)
        self.counts = torch.zeros(count, dtype=torch.long, device=self.device)
        self.ended = torch.zeros(count, dtype=torch.bool, device=self.device)
        width = self._reach(max(map(len, prompts)) + limit)
        pays = limit >= PAYS_AFTER and setup.capabilities.has("decode_matrices")
        self.layers = DecodeLayers() if pays else None
        self.cache = SlotCache(min(count, max(1, sampling.batch_tokens // width)), width)
        # Taken from the end: the longest prompts first, then by ids, equal prompts in the order given.
        self.waiting = sorted(range(count), key=lambda i: (self.numbers[i], i), reverse=True)
        self.owners = torch.empty(0, dtype=torch.long, device=self.device)
        """The response that each computed row belongs to."""
        self.columns = torch.empty(0, dtype=torch.long, device=self.device)
        """The cache column that each row's newest token goes into."""
        # The host keeps its own copy of what decides the next step, so it reads from the device once per token.
        self.host_columns: list[int] = []
        """The same columns, on the host."""
        self.running: list[bool] = []
        """Whether each row's response is still being sampled."""

    @torch.no_grad()
    def sample(self) -> list[Sampled]:
        """Run until all prompts are answered."""
        while self.waiting or any(self.running):
            self._let_in()
            if any(self.running):
                with self.setup.sampling(self.layers):
                    self._next_tokens()
            self._let_out()
        ids, logprobs, ended = self.tokens.tolist(), self.logprobs.tolist(), self.ended.tolist()
        return [Sampled(ids[i][:n], logprobs[i][:n], ended[i]) for i, n in enumerate(self.counts.tolist())]

    def _let_in(self) -> None:
        """Let in as many waiting responses as there are free rows, computing each prompt once."""
        free = self.cache.rows - len(self.owners)
        if not self.waiting or free == 0:
            return
        entering: dict[int, list[int]] = {}
        for _ in range(min(free, len(self.waiting))):
            response = self.waiting.pop()
            entering.setdefault(self.numbers[response], []).append(response)
        prompts = list(entering)
        for group in split_by_tokens([len(self.prompts[number]) for number in prompts], PROMPT_TOKENS):
            self._read({prompts[i]: entering[prompts[i]] for i in group})

    def _read(self, responses: dict[int, list[int]]) -> None:
        """Compute prompts, copy their keys and values into a row per response, and choose the first tokens."""
        sizes = [len(self.prompts[number]) for number in responses]
        padded = torch.full((len(responses), max(sizes)), self.setup.tokenizer.pad_id, dtype=torch.long)
        for row, number in enumerate(responses):
            padded[row, : len(self.prompts[number])] = self.prompts[number]
        entering = [response for own in responses.values() for response in own]
        sources = [row for row, own in enumerate(responses.values()) for _ in own]
        moved = on_device([padded, *map(torch.tensor, (sizes, sources, entering))], self.device)
        input_ids, lengths, source, owners = moved
        rows = torch.arange(len(entering), device=self.device) + len(self.owners)
        self.cache.begin_prompts(rows, source)
        ends, positions = (lengths - 1)[:, None], torch.arange(input_ids.shape[1], device=self.device)[None]
        with last_block_at(self.setup.last_block, ends):  # elsewhere only keys and values are needed
            hidden = self._forward(input_ids, positions)
        if hidden.shape[1] > 1:
            hidden = hidden.gather(1, ends[..., None].expand(-1, -1, hidden.shape[2]))
        self.owners = torch.cat([self.owners, owners])
        self.columns = torch.cat([self.columns, lengths[source]])
        self.host_columns += [len(self.prompts[self.numbers[i]]) for i in entering]
        self.running += [True] * len(entering)
        self._choose(range(len(self.running) - len(entering), len(self.running)), rows, hidden[source, 0])

    def _next_tokens(self) -> None:
        """One more token for every row."""
        newest = self.tokens[self.owners, self.counts[self.owners] - 1]
        reach = self._reach(max(self.host_columns) + 1)
        self.cache.begin_tokens(self.columns, reach)
        hidden = self._forward(newest[:, None], self.columns[:, None], seen(self.columns, reach))
        numbers = [row for row, goes_on in enumerate(self.running) if goes_on]
        rows = self._running_rows(numbers)
        self.columns[rows] += 1
        for row in numbers:
            self.host_columns[row] += 1
        self._choose(numbers, rows, hidden[rows, -1])

    def _choose(self, numbers: Sequence[int], rows: Tensor, hidden: Tensor) -> None:
        """Choose the next token of some rows from their newest hidden states, and note which have ended."""
        owners = self.owners[rows]
        step = self.counts[owners]
        chosen, logprobs = choose_unchecked(self.setup.project(hidden), self.uniforms[owners, step], self.sampling)
        self.tokens[owners, step], self.logprobs[owners, step] = chosen, logprobs
        self.counts[owners] += 1
        ended = torch.isin(chosen, self.eos_ids)
        self.ended[owners] = ended
        goes_on = ~ended & (step + 1 < self.sampling.max_new_tokens)
        answers, finite = torch.stack([goes_on, logprobs.isfinite()]).tolist()
        refuse_non_finite(all(finite))
        for row, answer in zip(numbers, answers, strict=True):
            self.running[row] = answer

    def _let_out(self) -> None:
        """Compact the running rows once enough have finished, which also makes room for waiting prompts."""
        alive = sum(self.running)
        if alive == len(self.running) or (alive > CROWDED * len(self.running)):
            return
        holes = [row for row in range(alive) if not self.running[row]]
        movers = [row for row in range(alive, len(self.running)) if self.running[row]]
        if holes:
            targets, sources = on_device([torch.tensor(holes), torch.tensor(movers)], self.device)
            self.cache.move(sources, targets)
            self.owners[targets], self.columns[targets] = self.owners[sources], self.columns[sources]
            for target, source in zip(holes, movers, strict=True):
                self.host_columns[target] = self.host_columns[source]
        self.owners, self.columns = self.owners[:alive], self.columns[:alive]
        self.host_columns, self.running = self.host_columns[:alive], [True] * alive

    def _running_rows(self, numbers: Sequence[int]) -> Tensor:
        """The index of the rows ``numbers``, which are all rows whose response goes on.

        A device finds them itself, and is told only how many there are: copying the index would make the host wait.
        """
        if self.device.type == "cpu" and len(numbers) < len(self.running):
            return torch.tensor(numbers)
        places = torch.arange(len(self.running), device=self.device)
        if len(numbers) == len(self.running):
            return places
        over = self.ended[self.owners] | (self.counts[self.owners] >= self.sampling.max_new_tokens)
        return (over * len(places) + places).argsort()[: len(numbers)]

    def _reach(self, columns: int) -> int:
        """How many columns attention reads, or the cache has, if this many are needed."""
        return columns if self.device.type == "cpu" else -(-columns // REACH) * REACH

    def _forward(self, input_ids: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        hidden: Tensor = self.setup.blocks(
            input_ids=input_ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self.cache,
            use_cache=True,
        ).last_hidden_state
        return hidden
