"""Sampling in this process: finished responses leave the batch, waiting prompts take their place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from ppolm.base_setup.decode_layers import PAYS_AFTER, DecodeLayers, decoding
from ppolm.base_setup.fused_block import only
from ppolm.data.sequences import split_by_tokens
from ppolm.rollout.kv_sampler import sample_sequences
from ppolm.rollout.sampling import Sampled, Sampling, choose_unchecked, refuse_non_finite
from ppolm.rollout.slot_cache import SlotCache, seen

if TYPE_CHECKING:
    from ppolm.base_setup import BaseModelSetup

PROMPT_TOKENS = 8192
"""Prompt tokens computed at once: bounds memory, and more would not be faster."""

CROWDED = 0.75
"""Rows are moved together once fewer than this share of those computed still run."""


class SlotSampler:
    """One response per prompt from the active role; a prompt that is given several times is computed once.

    Row i of ``uniforms`` decides the draws of prompt i, so a response does not depend on how prompts are grouped.
    """

    def __init__(
        self, setup: BaseModelSetup, prompts: Sequence[Sequence[int]], sampling: Sampling, uniforms: Tensor
    ) -> None:
        self.setup, self.sampling = setup, sampling
        self.prompts = [tuple(prompt) for prompt in prompts]
        self.device = setup.device
        self.uniforms = (uniforms.float() if self.device.type == "mps" else uniforms).to(self.device)
        self.eos_ids = torch.tensor(setup.tokenizer.eos_ids, dtype=torch.long, device=self.device)
        count, limit = len(prompts), sampling.max_new_tokens
        self.tokens = torch.zeros(count, limit, dtype=torch.long, device=self.device)
        self.logprobs = torch.zeros(count, limit, device=self.device)
        self.counts = torch.zeros(count, dtype=torch.long, device=self.device)
        self.ended = torch.zeros(count, dtype=torch.bool, device=self.device)
        width = max(map(len, prompts)) + limit
        self.layers = DecodeLayers() if limit >= PAYS_AFTER else None
        self.cache = SlotCache(min(count, max(1, sampling.batch_tokens // width)), width)
        # Long prompts first, the same prompts side by side, otherwise as given.
        self.waiting = sorted(range(count), key=lambda i: (-len(prompts[i]), self.prompts[i], i), reverse=True)
        self.owners = torch.empty(0, dtype=torch.long, device=self.device)
        """The response that each computed row belongs to."""
        self.columns = torch.empty(0, dtype=torch.long, device=self.device)
        """Where each row's newest token stands, or will."""
        # What decides the next step is known to the host, too: it asks the device once per token.
        self.places: list[int] = []
        """The same columns."""
        self.running: list[bool] = []
        """Whether each row's response goes on."""

    @torch.no_grad()
    def sample(self) -> list[Sampled]:
        """Run until all prompts are answered."""
        while self.waiting or any(self.running):
            self._let_in()
            if any(self.running):
                with decoding(self.layers):
                    self._next_tokens()
            self._let_out()
        ids, logprobs, ended = self.tokens.tolist(), self.logprobs.tolist(), self.ended.tolist()
        return [Sampled(ids[i][:n], logprobs[i][:n], ended[i]) for i, n in enumerate(self.counts.tolist())]

    def _let_in(self) -> None:
        """Compute as many waiting prompts as there are free rows, each prompt once."""
        free = self.cache.rows - len(self.owners)
        if not self.waiting or free == 0:
            return
        entering = [self.waiting.pop() for _ in range(min(free, len(self.waiting)))]
        unique = list(dict.fromkeys(self.prompts[i] for i in entering))
        for group in split_by_tokens([len(prompt) for prompt in unique], PROMPT_TOKENS):
            prompts = [unique[i] for i in group]
            self._read([i for i in entering if self.prompts[i] in prompts], prompts)

    def _read(self, entering: list[int], prompts: list[tuple[int, ...]]) -> None:
        """Compute prompts, give their keys and values a row for each response, and choose the first tokens."""
        place = {prompt: number for number, prompt in enumerate(prompts)}
        lengths = torch.tensor([len(prompt) for prompt in prompts], device=self.device)
        widest = max(map(len, prompts))
        input_ids = torch.full((len(prompts), widest), self.setup.tokenizer.pad_id, dtype=torch.long)
        for row, prompt in enumerate(prompts):
            input_ids[row, : len(prompt)] = torch.tensor(prompt)
        source = torch.tensor([place[self.prompts[i]] for i in entering], device=self.device)
        rows = torch.arange(len(entering), device=self.device) + len(self.owners)
        self.cache.begin_prompts(rows, source)
        ends, positions = (lengths - 1)[:, None], torch.arange(input_ids.shape[1], device=self.device)[None]
        with only(self.setup.last_block, ends):  # of the rest, only what the blocks keep is needed
            hidden = self._forward(input_ids.to(self.device), positions)
        if hidden.shape[1] > 1:
            hidden = hidden.gather(1, ends[..., None].expand(-1, -1, hidden.shape[2]))
        owners = torch.tensor(entering, device=self.device)
        self.owners = torch.cat([self.owners, owners])
        self.columns = torch.cat([self.columns, lengths[source]])
        self.places += [len(self.prompts[i]) for i in entering]
        self.running += [True] * len(entering)
        self._choose(range(len(self.running) - len(entering), len(self.running)), rows, hidden[source, 0])

    def _next_tokens(self) -> None:
        """One more token for every row."""
        newest = self.tokens[self.owners, self.counts[self.owners] - 1]
        reach = max(self.places) + 1
        self.cache.begin_tokens(self.columns, reach)
        hidden = self._forward(newest[:, None], self.columns[:, None], seen(self.columns, reach))
        numbers = [row for row, goes_on in enumerate(self.running) if goes_on]
        all_of_them = len(numbers) == len(self.running)  # which the device can count itself
        rows = torch.arange(len(numbers), device=self.device) if all_of_them else self._index(numbers)
        self.columns[rows] += 1
        for row in numbers:
            self.places[row] += 1
        self._choose(numbers, rows, hidden[rows, -1])

    def _choose(self, numbers: Sequence[int], rows: Tensor, hidden: Tensor) -> None:
        """Choose the next token of some rows from their newest hidden states, and see which have ended."""
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
        """Move the running rows together once enough have finished: it makes room for those that wait, too."""
        alive = sum(self.running)
        if alive == len(self.running) or (alive > CROWDED * len(self.running)):
            return
        holes = [row for row in range(alive) if not self.running[row]]
        movers = [row for row in range(alive, len(self.running)) if self.running[row]]
        if holes:
            targets, sources = self._index(holes), self._index(movers)
            self.cache.move(sources, targets)
            self.owners[targets], self.columns[targets] = self.owners[sources], self.columns[sources]
            for target, source in zip(holes, movers, strict=True):
                self.places[target] = self.places[source]
        self.owners, self.columns = self.owners[:alive], self.columns[:alive]
        self.places, self.running = self.places[:alive], [True] * alive

    def _index(self, rows: list[int]) -> Tensor:
        return torch.tensor(rows, device=self.device)

    def _forward(self, input_ids: Tensor, positions: Tensor, mask: Tensor | None = None) -> Tensor:
        hidden: Tensor = self.setup.blocks(
            input_ids=input_ids,
            position_ids=positions,
            attention_mask=mask,
            past_key_values=self.cache,
            use_cache=True,
        ).last_hidden_state
        return hidden


@torch.no_grad()
def takes_slots(setup: BaseModelSetup, longest: int) -> bool:
    """Whether a model's attention works with our cache: tried on two prompts, not guessed from its name.

    To be asked of the bare base: what adapters have become must not decide it, or a resumed run might decide otherwise.
    """
    window = getattr(setup.text_config, "sliding_window", None)
    if window is not None and longest > window:
        return False  # a short trial would not see it: with our masks tokens look further than the model does
    ids = (torch.arange(9) * 7 % setup.text_config.vocab_size).tolist()
    trial = ([ids[:6], ids[6:]], Sampling(2, greedy=True), torch.zeros(2, 2))
    try:
        sampled = SlotSampler(setup, *trial).sample()
    except (RuntimeError, ValueError, TypeError, IndexError, AttributeError):  # each architecture refuses differently
        return False
    ours, plain = (
        torch.tensor([(sum(one.logprobs), len(one.logprobs)) for one in answers])
        for answers in (sampled, sample_sequences(setup, *trial))
    )
    rounding = 0.01 if setup.dtype == torch.float32 else 0.25
    return torch.allclose(ours, plain, rtol=rounding, atol=rounding)
