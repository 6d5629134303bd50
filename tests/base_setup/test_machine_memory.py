"""The memory that a process may use: the machine's, less in a container, and a share of it beside other processes."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from ppolm.base_setup import device, machine_memory
from ppolm.base_setup.device import free_memory, memory_size
from ppolm.base_setup.machine_memory import machine_free, machine_size

GIB = 2**30
CPU, MPS = torch.device("cpu"), torch.device("mps")


@pytest.fixture
def root(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine of 64 GiB, 32 of them free, without control groups."""
    monkeypatch.setattr(machine_memory, "_physical", lambda: 64 * GIB)
    write(tmp_path / "proc/meminfo", f"MemTotal: 1 kB\nMemAvailable:   {32 * GIB // 1024} kB\n")
    return tmp_path


def write(file: Path, text: object) -> None:
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(f"{text}\n")


def test_without_groups_it_is_what_the_machine_has(root: Path) -> None:
    assert (machine_size(root), machine_free(root)) == (64 * GIB, 32 * GIB)
    write(root / "proc/self/cgroup", "0::/user")
    write(root / "sys/fs/cgroup/user/memory.max", "max")
    assert (machine_size(root), machine_free(root)) == (64 * GIB, 32 * GIB)


def test_the_smallest_limit_on_the_way_up_counts_in_version_2(root: Path) -> None:
    write(root / "proc/self/cgroup", "0::/job/step")
    write(root / "sys/fs/cgroup/job/step/memory.max", 20 * GIB)
    write(root / "sys/fs/cgroup/job/memory.max", 8 * GIB)
    write(root / "sys/fs/cgroup/job/memory.current", 5 * GIB)
    write(root / "sys/fs/cgroup/job/memory.stat", f"anon 1\ninactive_file {2 * GIB}")
    assert machine_size(root) == 8 * GIB
    assert machine_free(root) == 5 * GIB, "files that are only kept in case they are read again are no use of memory"


def test_a_container_that_sees_its_own_group_at_the_top_is_limited_too(root: Path) -> None:
    write(root / "proc/self/cgroup", "0::/../docker/0123")
    write(root / "sys/fs/cgroup/memory.max", 4 * GIB)
    write(root / "sys/fs/cgroup/memory.current", 1 * GIB)
    assert (machine_size(root), machine_free(root)) == (4 * GIB, 3 * GIB)


def test_version_1_names_its_files_otherwise_and_writes_a_huge_number_for_no_limit(root: Path) -> None:
    write(root / "proc/self/cgroup", "5:cpu:/job\n4:memory:/job\n0::/")
    group = root / "sys/fs/cgroup/memory"
    write(group / "memory.limit_in_bytes", 9223372036854771712)
    assert machine_size(root) == 64 * GIB
    write(group / "job/memory.limit_in_bytes", 6 * GIB)
    write(group / "job/memory.usage_in_bytes", 5 * GIB)
    write(group / "job/memory.stat", f"inactive_file 7\ntotal_inactive_file {1 * GIB}")
    assert (machine_size(root), machine_free(root)) == (6 * GIB, 2 * GIB)


def test_processes_of_one_machine_share_its_memory_but_not_that_of_gpus(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(device, "machine_size", lambda: 12 * GIB)
    monkeypatch.setattr(device, "machine_free", lambda: 9 * GIB)
    assert (memory_size(CPU), free_memory(CPU)) == (12 * GIB, 9 * GIB)
    monkeypatch.setenv("WORLD_SIZE", "6")
    monkeypatch.setenv("LOCAL_WORLD_SIZE", "3")
    assert (memory_size(CPU), free_memory(CPU)) == (4 * GIB, 3 * GIB)
    monkeypatch.setattr(torch.mps, "recommended_max_memory", lambda: 6 * GIB)
    assert memory_size(MPS) == 2 * GIB
    monkeypatch.setattr(torch.cuda, "mem_get_info", lambda _: (5 * GIB, 8 * GIB))
    assert free_memory(torch.device("cuda")) == 5 * GIB


def test_what_is_not_known_stays_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(machine_memory, "_physical", lambda: None)
    assert machine_size(tmp_path) is machine_free(tmp_path) is None
