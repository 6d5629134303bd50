"""A plan as text and as plain values. Every group of figures says whether it is computed, or calibrated by a probe."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from typing import Any

from ppolm.estimate.advice import Change, advice_text
from ppolm.estimate.estimate import duration, packed_note, stored_text
from ppolm.planning.hardware import KNOWN, THIS, hosts_text
from ppolm.planning.plan import Plan

GIB = 2**30
COMPUTED = "computed"
CALIBRATED = "calibrated by a probe on this machine"
PUBLISHED = "computed from published figures of the hardware"
LINK = "   [computed from an assumed link of 1 GB/s]"
NOT_COUNTED = "Not counted: evaluations, checkpoints, and rewards that are no reward models."


@dataclass(frozen=True)
class Told:
    """A plan with what is to be said about it."""

    plan: Plan
    name: str
    """Of the model or shape."""
    hardware: str
    hosts: int
    commands: list[tuple[str, str]] = field(default_factory=list)
    advice: tuple[Change, ...] = ()

    @property
    def can_start(self) -> bool:
        """Whether there is a command that fits: the planned one, or that with what is advised."""
        plan, limit = self.plan, self.plan.case.available
        served = plan.server is None or plan.server.rows > 0
        return plan.fits or (served and bool(self.advice) and limit is not None and self.advice[-1].peak <= limit)

    def text(self) -> str:
        """All of it."""
        parts = (self._subject(), self._memory(), self._server(), self._time(), self._traffic(), self._commands())
        return "\n".join("\n".join([*lines, ""]) for lines in parts if lines).rstrip()

    def _subject(self) -> list[str]:
        case = self.plan.case
        config, shape, count = case.config, case.shape, case.devices.count
        stored = stored_text(shape, config, case.dtype)
        held = (
            "" if count == 1 else ", each with a share of the base" if case.devices.sharded else ", each with the base"
        )
        about = "this machine" if self.hardware == THIS else f"{self.hardware} ({KNOWN[self.hardware].about})"
        pool = [] if case.pool is None else [f"Sampling: {case.pool.count} vLLM servers on {case.pool.hardware}"]
        threads = f" on {case.device}" if self.hardware == THIS else ""
        return [
            f"Model: {self.name}, {shape.parameters / 1e9:.2f} B parameters in {stored}; {shape.trained_layers} of "
            f"{shape.layers} blocks trained, adapters of {shape.adapter / 1e6:.1f} M",
            f"Step: {config.batch_size:,} responses of {case.response:.0f} tokens to {config.prompts_per_step:,} "
            f"prompts of {case.lengths.mean:.0f} (longest {case.lengths.longest}), {config.ppo_epochs} epochs of "
            f"{-(-config.batch_size // config.minibatch_size)} minibatches",
            f"Training: {count} x {about}{threads}{hosts_text(self.hosts)}{held}",
            *pool,
            *(f"Note: {note}" for note in (*packed_note(shape, case.dtype), *case.notes)),
        ]

    def _memory(self) -> list[str]:
        case, memory = self.plan.case, self.plan.memory
        room = "" if case.available is None else f" of {case.available / GIB:.1f} {_room(self.hardware)}"
        again = "; blocks recomputed" if memory.recomputes else ""
        parts = [
            ("program", memory.program, ""),
            ("base", memory.base, "its share, and two blocks whole" if case.devices.sharded else ""),
            ("adapters", memory.adapters, "with gradients, moments, and a copy for undoing a step"),
            *([("trunk", memory.trunk, "states below the trained blocks")] if memory.trunk else []),
            ("and the largest of", None, ""),
            ("  generation", memory.generation, "on the servers" if case.pool else ""),
            ("  scoring", memory.scoring, ""),
            ("  training", memory.training, again.removeprefix("; ")),
        ]
        lines = [
            f"Memory of each training device, GiB: {memory.peak / GIB:.2f}{room}   [{COMPUTED}]",
            *map(_size, parts),
        ]
        if self.plan.case.available is not None and memory.peak > self.plan.case.available:
            lines += advice_text(list(self.advice), self.plan.case.available)
        return lines

    def _server(self) -> list[str]:
        server = self.plan.server
        if server is None:
            return []
        room = "" if server.available is None else f" of {server.available / GIB:.1f} claimed"
        parts = [
            ("base", server.weights, ""),
            ("adapters", server.adapters, ""),
            ("working", server.working, "assumed"),
        ]
        cache = ("cache", server.cache, f"room for {server.rows} responses at once")
        lines = [
            f"Memory of each server, GiB: {server.peak / GIB:.2f}{room}   [{COMPUTED}]",
            *map(_size, [*parts, cache]),
        ]
        return lines if server.rows else [*lines, "The base does not fit on a server: use a larger device for servers."]

    def _time(self) -> list[str]:
        seconds, work, case = self.plan.seconds, self.plan.work, self.plan.case
        kind = CALIBRATED if self.hardware == THIS else PUBLISHED
        both = ""
        if seconds.together:
            both = ", the longer of generation with shipping, and of the rest: servers sample ahead"
        assumed = f"   [{PUBLISHED}]" if self.hardware == THIS else ""
        served = assumed if case.pool is not None and case.pool.hardware != THIS else ""
        rows = [
            ("generation", seconds.generation, f"{_operations(work.generation())}{served}"),
            ("scoring", seconds.scoring, _operations(work.scoring())),
            ("update", seconds.update, _operations(work.training())),
            *(
                [("exchange", seconds.exchange, "of gradients and scores" + LINK * bool(assumed))]
                if case.devices.count > 1
                else []
            ),
            *([("shipping", seconds.shipping, "the adapter to the servers")] if case.pool is not None else []),
        ]
        return [
            f"Time of a step: {time_text(seconds.step)}{both}   [{kind}]",
            *(f"  {name:20}{time_text(value):>8}   {why}".rstrip() for name, value, why in rows),
            NOT_COUNTED,
        ]

    def _traffic(self) -> list[str]:
        traffic = self.plan.traffic
        rows = [
            ("gradients", traffic.gradients, "each device"),
            ("blocks of the base", traffic.base, "each device"),
            ("tokens and scores", traffic.table, "each device"),
            ("adapters", traffic.adapters, "all servers"),
            ("texts", traffic.served, "all servers"),
        ]
        found = [f"  {name:20}{size_text(value):>9}   {who}" for name, value, who in rows if value]
        return [f"Network bytes of a step: {'none' if not found else ''}".rstrip() + f"   [{COMPUTED}]", *found]

    def _commands(self) -> list[str]:
        if not self.commands:
            return ["Commands: none, because it does not fit."]
        changed = "" if self.plan.fits else ", with the changes above"
        return [
            f"Commands{changed}:",
            *(line for where, command in self.commands for line in (f"  {where}:", f"    {command}")),
        ]

    def values(self) -> dict[str, Any]:
        """All figures as plain values, for programs."""
        plan, case = self.plan, self.plan.case
        memory = {**asdict(plan.memory), "peak": plan.memory.peak, "available": case.available, "kind": "computed"}
        server = None if plan.server is None else {**asdict(plan.server), "peak": plan.server.peak, "kind": "computed"}
        kind = "calibrated" if self.hardware == THIS else "computed"
        return {
            "model": self.name,
            "parameters": case.shape.parameters,
            "dtype": str(case.dtype)[6:],
            "hardware": self.hardware,
            "devices": case.devices.count,
            "hosts": self.hosts,
            "sharded": case.devices.sharded,
            "servers": 0 if case.pool is None else case.pool.count,
            "fits": plan.fits,
            "memory_bytes": memory,
            "server_bytes": server,
            "seconds": {**asdict(plan.seconds), "step": plan.seconds.step, "kind": kind},
            "network_bytes": {**asdict(plan.traffic), "kind": "computed"},
            "speed": {**asdict(case.speed), "kind": kind},
            "commands": [command for _, command in self.commands],
            "advice": [change.flag for change in self.advice],
        }


def _room(hardware: str) -> str:
    return "free" if hardware == THIS else "usable"


def _operations(count: float) -> str:
    return f"{count / 1e12:,.0f} TFLOP" if count >= 1e14 else f"{count / 1e12:.3g} TFLOP"


def _size(part: tuple[str, int | None, str]) -> str:
    name, size, why = part
    return f"  {name:20}{'' if size is None else f'{size / GIB:8.2f}'}   {why}".rstrip()


def time_text(seconds: float) -> str:
    """Seconds up to ten minutes, so that phases can be compared and added."""
    return f"{seconds:.0f} s" if 10 <= seconds < 600 else duration(seconds)


def size_text(size: float) -> str:
    """Bytes with a unit: 512 B, 1.2 MB, 34 GB."""
    for unit, each in (("TB", 1e12), ("GB", 1e9), ("MB", 1e6), ("kB", 1e3)):
        if size >= each:
            return f"{size / each:.3g} {unit}"
    return f"{size:.0f} B"
