"""The plan of a run: memory of each device, and time and traffic of a step, on hardware that need not be here."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from ppolm.base_setup.device import scoring_tokens
from ppolm.config import PPOConfig
from ppolm.estimate.estimate import roles, step_work
from ppolm.estimate.memory import FLOAT, Devices, Lengths, Memory, block_bytes, step_memory
from ppolm.estimate.model_shape import ModelShape
from ppolm.estimate.operations import Work
from ppolm.planning.sampled import sampled_by
from ppolm.planning.serving import Pool, ServerMemory, server_memory
from ppolm.planning.step_time import (
    Speed,
    exchange_seconds,
    gathered_bytes,
    generation_seconds,
    reduced_bytes,
    shared_seconds,
    shipping_seconds,
    updates_of,
)

ID_BYTES, LOGPROB_BYTES = 5, 9
"""Bytes of a token's id and log-probability as processes send them to each other."""
SERVED_BYTES = 40
"""Bytes of a token as a server answers, as text: its id and log-probability."""


@dataclass(frozen=True)
class Case:
    """What is to be planned."""

    config: PPOConfig
    shape: ModelShape
    lengths: Lengths
    response: float
    """Mean length of a response in tokens."""
    dtype: torch.dtype
    device: torch.device
    available: int | None
    """Bytes of memory that a training may use on each device, if known."""
    devices: Devices
    speed: Speed
    program: int
    """Bytes of Python and its libraries, or of a device's own context."""
    pool: Pool | None = None
    rewritten: float = 0.0
    """Bytes that each pass through the blocks writes and reads again, unless ``speed`` was measured with that."""
    notes: tuple[str, ...] = ()
    """What is to be said about how the figures were found."""

    @property
    def tokens(self) -> float:
        """Tokens of one pass over all sequences of a step."""
        config = self.config
        return config.batch_size * (self.lengths.mean / config.samples_per_prompt + self.response)


@dataclass(frozen=True)
class Seconds:
    """Time of a step by phase."""

    generation: float
    scoring: float
    update: float
    exchange: float
    shipping: float
    together: bool = False
    """Whether servers sample the next responses while these are trained on."""

    @property
    def step(self) -> float:
        """All phases, one after the other, unless sampling goes on beside training."""
        sampling, training = self.generation + self.shipping, self.scoring + self.update + self.exchange
        return max(sampling, training) if self.together else sampling + training


@dataclass(frozen=True)
class Traffic:
    """Bytes of a step."""

    gradients: float
    """Sent by each device."""
    base: float
    """Received by each device, where the base is sharded."""
    table: float
    """Sampled tokens and scores, sent by each device."""
    adapters: float
    """Read by all servers together."""
    served: float
    """Prompts and responses between the first process and the servers."""


@dataclass(frozen=True)
class Plan:
    """The figures of a plan."""

    case: Case
    memory: Memory
    server: ServerMemory | None
    work: Work
    seconds: Seconds
    traffic: Traffic

    @property
    def fits(self) -> bool:
        """Whether every device and server has room, as far as is known."""
        here = self.case.available is None or self.memory.peak <= self.case.available
        return here and (self.server is None or self.server.rows > 0)


def make_plan(case: Case) -> Plan:
    """All figures of a case. Every response that is sampled here may take as long as max_new_tokens."""
    config, shape, dtype = case.config, case.shape, case.dtype
    _, adapters = roles(config)
    memory = step_memory(
        *(shape, config, case.lengths, dtype, adapters, case.device, case.available, case.devices), case.program
    )
    work = step_work(shape, config, case.lengths.mean, case.response, dtype, memory.recomputes)
    server = None
    if case.pool is not None:
        server = server_memory(case.pool, shape, case.lengths.longest + config.max_new_tokens)
    traffic = _traffic(case)
    return Plan(case, memory, server, work, _seconds(case, work, traffic, server), traffic)


def _seconds(case: Case, work: Work, traffic: Traffic, server: ServerMemory | None) -> Seconds:
    config, speed, count, pool = case.config, case.speed, case.devices.count, case.pool
    generation = generation_seconds(sampled_by(case, work, server), speed if pool is None else pool.speed)
    scored, trained = work.scored_logits(), work.trained_logits()
    gathered = traffic.base / max(sum(_passes(case)), 1)
    read, updated = (passes * gathered for passes in _passes(case))
    blocks = work.scoring() - scored, work.training() - trained
    again = [passes * case.rewritten / speed.bandwidth for passes in _passes(case)]
    exchanges = updates_of(config.batch_size, config.minibatch_size, config.ppo_epochs) if count > 1 else 0
    return Seconds(
        generation=generation,
        scoring=shared_seconds(speed.scoring, blocks[0], scored, count, read, speed) + again[0],
        update=shared_seconds(speed.update, blocks[1], trained, count, updated, speed) + again[1],
        exchange=exchange_seconds(traffic.gradients + traffic.table, exchanges, speed),
        shipping=0.0 if pool is None else shipping_seconds(case.shape.adapter, speed),
        together=config.async_rollouts,
    )


def _passes(case: Case) -> tuple[float, float]:
    """Times that each device passes through all blocks in scoring, and in updates (forward and backward)."""
    config, count = case.config, case.devices.count
    rewards, _ = roles(config)
    large = scoring_tokens(case.device, config.microbatch_tokens)
    reading = (3 + rewards) * -(-case.tokens // (count * large))
    minibatches = -(-config.batch_size // config.minibatch_size)
    each = -(-case.tokens // (count * minibatches * config.microbatch_tokens))
    return reading, 2 * 2 * config.ppo_epochs * minibatches * each


def _traffic(case: Case) -> Traffic:
    config, shape, count, pool = case.config, case.shape, case.devices.count, case.pool
    updates = updates_of(config.batch_size, config.minibatch_size, config.ppo_epochs)
    responses = config.batch_size * case.response
    rewards, _ = roles(config)
    blocks = 0.0
    if case.devices.sharded:
        blocks = shape.layers * block_bytes(shape, config, case.dtype)
    sampled = responses / count * (ID_BYTES + LOGPROB_BYTES) if pool is None else 0.0
    scores = 2 * FLOAT * (3 * responses + rewards * config.batch_size) / count
    return Traffic(
        gradients=reduced_bytes(shape.adapter, updates, count),
        base=gathered_bytes(blocks, sum(_passes(case)), count),
        table=(count - 1) * (sampled + scores),
        adapters=0.0 if pool is None else pool.count * FLOAT * shape.adapter,
        served=0.0 if pool is None else responses * SERVED_BYTES + config.prompts_per_step * case.lengths.mean * 7,
    )
