"""Joining the processes that torchrun or accelerate has started."""

from __future__ import annotations

import atexit
import hashlib
import math
import os
import time
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING

from ppolm.errors import ProcessesError
from ppolm.messages import reason
from ppolm.ranks.heartbeat import Heartbeat
from ppolm.ranks.launcher import check_launcher
from ppolm.ranks.ranks import Ranks

if TYPE_CHECKING:
    from torch.distributed import Store

COLLECTIVE_SECONDS = 1800.0
"""How long one exchange may take. A process that is gone or stands still is noticed much sooner, by its heartbeat."""
LOOK_SECONDS = 5.0
SAME_SECONDS = 3.0
"""How much later the first process may come to the same error."""


def started_processes() -> int:
    """How many processes the launcher has started; 1 without one."""
    try:
        return max(1, int(os.environ.get("WORLD_SIZE", "1")))
    except ValueError:
        return 1


def processes_here() -> int:
    """How many of them run on this machine, as far as the launcher says so."""
    try:
        return min(started_processes(), max(1, int(os.environ.get("LOCAL_WORLD_SIZE", "1"))))
    except ValueError:
        return 1


def own_number() -> int:
    """This process's number among them, before or after joining."""
    try:
        return int(os.environ.get("RANK", "0")) if started_processes() > 1 else 0
    except ValueError:
        return 0


def said_by_first(line: str) -> bool:
    """Whether the first process of this job says the same line. Most errors are raised on all processes alike."""
    if started_processes() == 1 or not join_ranks.cache_info().currsize:  # alone, or not joined yet
        return False
    notices, name = join_ranks().notices, f"said/{hashlib.sha256(line.encode()).hexdigest()}"
    if notices is None:
        return False
    if join_ranks().first:
        notices.done(name)
        return False
    return notices.wait(name, SAME_SECONDS)


class StoreNotices:
    """Keys of the store that the launcher keeps for the job."""

    def __init__(self, store: Store) -> None:
        self.store = store

    def done(self, name: str) -> None:
        """Set the key."""
        self.store.set(name, "done")

    def wait(self, name: str, seconds: float = math.inf) -> bool:
        """Look until it is there, and say whether it is; if the first process goes, the heartbeat ends this one."""
        from torch.distributed import DistError

        until = time.monotonic() + seconds
        while (left := until - time.monotonic()) > 0:
            try:
                self.store.wait([name], timedelta(seconds=min(LOOK_SECONDS, left)))
                return True
            except DistError as error:
                if "timeout" not in str(error).lower():  # the store is gone, and with it the first process
                    raise
        return False

    def forget(self, name: str) -> None:
        """Remove the key."""
        self.store.delete_key(name)


@cache
def join_ranks() -> Ranks:
    """The processes of this job. Joined once: that a process belongs to a job is a fact about the whole process."""
    size = started_processes()
    check_launcher(size)
    if size == 1:
        return Ranks()
    import torch
    import torch.distributed as dist

    missing = [name for name in ("RANK", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT") if name not in os.environ]
    if missing:
        raise ProcessesError(
            f"WORLD_SIZE is {size}, but {', '.join(missing)} is not set. Start several processes with torchrun or "
            "accelerate launch, or unset WORLD_SIZE."
        )
    rank, local = int(os.environ["RANK"]), int(os.environ["LOCAL_RANK"])
    if torch.cuda.is_available():
        torch.cuda.set_device(local)
    backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
    try:
        if not dist.is_initialized():
            dist.init_process_group(backend, timeout=timedelta(seconds=COLLECTIVE_SECONDS))
        store = dist.distributed_c10d._get_default_store()
        heartbeat = Heartbeat(store.clone(), rank, size)
        watched = store.clone()
    except Exception as error:
        raise ProcessesError(
            f"Process {rank} could not join the other {size - 1}: {reason(error)}. Can it reach "
            f"{os.environ['MASTER_ADDR']}, port {os.environ['MASTER_PORT']}?"
        ) from error
    heartbeat.start()

    def leave() -> None:
        heartbeat.stop()
        if dist.is_initialized():
            dist.destroy_process_group()

    atexit.register(leave)
    return Ranks(rank, size, local, StoreNotices(watched))
