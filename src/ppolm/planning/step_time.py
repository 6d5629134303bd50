"""How long the phases of a PPO step take: pure functions of sizes and speeds.

    generation = prompts / F + s · (L · o + e + max(ops / F, (weights + b · kv · context) / W)),  s = max(T, n / limit)
    scoring    = blocks / (N · F) + logits / (N · F')
    update     = blocks / (N · F) + logits / (N · F')
    exchange   = updates · (8 · A · (N − 1) / N / link + latency)
    shipping   = 4 · A · 2 / disk + load

L blocks, N devices, n response tokens on a device in s steps of b = n / s rows, A parameters of an adapter.
"""

from __future__ import annotations

from dataclasses import dataclass

FLOAT = 4
LOAD = 0.5
"""Seconds in which a server takes a new adapter and proves it: assumed."""


@dataclass(frozen=True)
class Rate:
    """Operations per second that are reached."""

    blocks: float
    """In the blocks."""
    output: float
    """In the output matrix, with what is computed from its logits."""

    def seconds(self, blocks: float, output: float) -> float:
        """Time of so many operations in each."""
        return blocks / self.blocks + output / self.output


@dataclass(frozen=True)
class Speed:
    """What a device reaches in each phase."""

    scoring: Rate
    update: Rate
    bandwidth: float
    """Bytes per second at which weights, keys and values are read for a new token."""
    block_overhead: float
    """Seconds that a block of a new token takes however little it computes: starting its kernels."""
    token_overhead: float
    """The same for what follows the blocks: choosing the token."""
    link: float
    """Bytes per second and direction between devices that train together."""
    latency: float
    """Seconds of one exchange, however little is sent."""
    disk: float = 1e9
    """Bytes per second of the folder that servers read adapters from."""


@dataclass(frozen=True)
class Sampled:
    """What one device or server samples in a step."""

    layers: int
    tokens: float
    """Response tokens in all, n."""
    longest: int
    """Tokens of the longest response, T."""
    limit: int
    """Most rows at once."""
    prompts: float
    """Operations of reading the prompts."""
    block: float
    """Operations of one block for one token."""
    output: float
    """Operations of the output matrix for one token."""
    weights: float
    """Bytes of weights that each step reads."""
    cached: float
    """Bytes of keys and values that each row reads, on average."""

    @property
    def steps(self) -> float:
        """Times that the weights are read: rows that end make room for others, but the longest response takes T."""
        return max(float(self.longest), self.tokens / self.limit)

    @property
    def rows(self) -> float:
        """Rows that are computed at once, on average."""
        return self.tokens / self.steps


def token_seconds(sampled: Sampled, speed: Speed) -> float:
    """One more token of every row: L · o + e + max(ops / F, bytes / W)."""
    computed = speed.scoring.seconds(sampled.rows * sampled.layers * sampled.block, sampled.rows * sampled.output)
    read = (sampled.weights + sampled.rows * sampled.cached) / speed.bandwidth
    return sampled.layers * speed.block_overhead + speed.token_overhead + max(computed, read)


def generation_seconds(sampled: Sampled, speed: Speed) -> float:
    """Prompts at the speed of scoring, then a step for every token."""
    return sampled.prompts / speed.scoring.blocks + sampled.steps * token_seconds(sampled, speed)


def shared_seconds(rate: Rate, blocks: float, output: float, devices: int, gathered: float, speed: Speed) -> float:
    """Passes that devices share; where the base is sharded, the next block is gathered while one is computed."""
    return max(rate.seconds(blocks, output) / devices, gathered / speed.link)


def updates_of(batch: int, minibatch: int, epochs: int) -> int:
    """Optimiser updates of a step, of policy and value."""
    return 2 * epochs * -(-batch // minibatch)


def reduced_bytes(adapter: int, updates: int, devices: int) -> float:
    """Bytes that each device sends to sum gradients in a ring: updates · 8 · A · (N − 1) / N."""
    return updates * 2 * FLOAT * adapter * (devices - 1) / devices


def gathered_bytes(blocks: float, passes: float, devices: int) -> float:
    """Bytes that each device receives to have every block whole in so many passes: passes · blocks · (N − 1) / N."""
    return passes * blocks * (devices - 1) / devices


def exchange_seconds(sent: float, exchanges: int, speed: Speed) -> float:
    """Bytes over the link, and the latency of each exchange."""
    return sent / speed.link + exchanges * speed.latency


def shipping_seconds(adapter: int, speed: Speed) -> float:
    """An adapter in float32 is written once, and read by all servers at the same time: 2 · 4A / disk + load."""
    return 2 * FLOAT * adapter / speed.disk + LOAD
