"""Hardware by name: the figures that its makers publish, and the share of them that a step is assumed to reach."""

from __future__ import annotations

import difflib
from dataclasses import dataclass
from typing import Literal

import torch

from ppolm.errors import ConfigError
from ppolm.messages import brief
from ppolm.planning.step_time import Rate, Speed

GIB = 2**30
THIS = "this"
"""The name of the machine that the command runs on, which is measured."""
SERVER_TOKEN = 1e-3
"""Seconds that a server adds to each token: its scheduling. It replays recorded kernels, so blocks add nothing."""


@dataclass(frozen=True)
class Hardware:
    """One device, and how devices are connected. All figures are published or assumed, none is measured."""

    name: str
    about: str
    kind: Literal["cpu", "cuda", "mps"]
    memory: int
    """Bytes."""
    usable: float
    """Share of the memory that a training may use: the rest is the system's, or the driver's."""
    flops: float
    """Operations per second of dense products in 16 bits with float32 sums, if ``half``."""
    single: float
    """The same in float32, without TF32: torch uses that only if it is told to, and ppolm does not tell it."""
    bandwidth: float
    """Bytes per second from its memory."""
    scoring: float
    """Share of ``flops`` assumed for passes without gradients."""
    update: float
    """Share of ``flops`` assumed for passes with gradients."""
    launch: float
    """Seconds to start a kernel."""
    per_host: int = 1
    link: float = 1e9
    """Bytes per second and direction between two devices of a host."""
    network: float = 1.25e8
    """Bytes per second and direction between hosts, for each device."""
    half: bool = True
    """Whether it multiplies in 16 bits; otherwise ``flops`` is ``single``."""

    @property
    def available(self) -> int:
        """Bytes that a training may use."""
        return int(self.memory * self.usable)


READ = 0.6
"""Share of the published bandwidth assumed for reading weights and keys while sampling."""
REACHED = 0.7
"""Share of the published bandwidth between devices assumed for exchanges."""
LATENCY = 1e-4
"""Seconds of an exchange, however little is sent."""
OUTPUT = 0.5
"""How fast the output matrix is beside the blocks: its products are in tiles, with a softmax on each."""
EMULATED = {torch.bfloat16: 0.25, torch.float16: 0.5}
"""Speed of products in 16 bits beside float32 on a CPU without instructions for them: 13 and 25 of 51 GFLOPS, measured
on one core of an AMD EPYC that was told to use AVX2 only (``ONEDNN_MAX_CPU_ISA=AVX2``)."""

KNOWN = {
    one.name: one
    for one in (
        Hardware(
            "laptop",
            "8 cores with AVX2 at 3 GHz (768 GFLOPS in float32), two channels of DDR4-3200, 16 GiB",
            *("cpu", 16 * GIB, 0.75, 7.68e11, 7.68e11, 5.12e10, 0.6, 0.5, 0.0),
            half=False,
        ),
        Hardware(
            "mac",
            "Apple M1 Max: 10.4 TFLOPS, 400 GB/s, 64 GiB of unified memory",
            *("mps", 64 * GIB, 0.75, 1.04e13, 1.04e13, 4e11, 0.4, 0.3, 1e-5),
        ),
        Hardware(
            "gpu-24gb",
            "GeForce RTX 4090: 165 TFLOPS (83 in float32), 1,008 GB/s, 24 GiB",
            *("cuda", 24 * GIB, 0.95, 1.652e14, 8.26e13, 1.008e12, 0.4, 0.35, 5e-6),
            per_host=4,
            link=1.6e10,
            network=1.25e9,
        ),
        Hardware(
            "a100-80gb",
            "A100 SXM: 312 TFLOPS (19.5 in float32), 2,039 GB/s, 80 GiB, NVLink 300 GB/s each way, "
            "200 Gbit/s of network",
            *("cuda", 80 * GIB, 0.95, 3.12e14, 1.95e13, 2.039e12, 0.4, 0.35, 5e-6),
            per_host=8,
            link=3e11,
            network=2.5e10,
        ),
        Hardware(
            "h100-80gb",
            "H100 SXM: 989 TFLOPS (67 in float32), 3,350 GB/s, 80 GiB, NVLink 450 GB/s each way, 400 Gbit/s of network",
            *("cuda", 80 * GIB, 0.95, 9.89e14, 6.7e13, 3.35e12, 0.4, 0.35, 5e-6),
            per_host=8,
            link=4.5e11,
            network=5e10,
        ),
    )
}
"""Hardware by name."""


def find_hardware(name: str) -> Hardware:
    """Hardware by name; raises with the names there are."""
    if name not in KNOWN:
        near = difflib.get_close_matches(name[:100], [THIS, *KNOWN], n=1)
        hint = f" Did you mean {near[0]}?" if near else ""
        raise ConfigError(f"hardware is {brief(name)}, which is not known.{hint} Use {THIS} or {', '.join(KNOWN)}.")
    return KNOWN[name]


def flops_of(hardware: Hardware, dtype: torch.dtype, fused: bool = True) -> float:
    """Published operations per second in a precision. Where there are no products in 16 bits, our blocks convert
    weights to float32, and the library's compute slowly."""
    if dtype == torch.float32:
        return hardware.single
    return hardware.flops if hardware.half or fused else hardware.single * EMULATED[dtype]


def published_speed(
    hardware: Hardware, dtype: torch.dtype, hosts: int = 1, kernels: float = 0.0, fused: bool = True
) -> Speed:
    """How fast a step is assumed to be computed on this hardware, with so many kernels for a block of a new token."""
    flops = flops_of(hardware, dtype, fused)
    scoring, update = flops * hardware.scoring, flops * hardware.update
    return Speed(
        scoring=Rate(scoring, OUTPUT * scoring),
        update=Rate(update, OUTPUT * update),
        bandwidth=READ * hardware.bandwidth,
        block_overhead=kernels * hardware.launch,
        token_overhead=0.0,
        link=REACHED * (hardware.link if hosts == 1 else hardware.network),
        latency=LATENCY,
    )


def serving_speed(speed: Speed) -> Speed:
    """The same device with a server on it, which replays recorded kernels."""
    return Speed(
        *(speed.scoring, speed.update, speed.bandwidth),
        block_overhead=0.0,
        token_overhead=SERVER_TOKEN,
        link=speed.link,
        latency=speed.latency,
    )


def hosts_text(hosts: int) -> str:
    """Where devices are, if it is not one host."""
    return "" if hosts == 1 else f" in {hosts} hosts"
