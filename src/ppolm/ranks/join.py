"""Joining the processes that torchrun or accelerate has started."""

from __future__ import annotations

import atexit
import hashlib
import math
import os
import sys
import time
from contextlib import suppress
from datetime import timedelta
from functools import cache
from typing import TYPE_CHECKING

from ppolm.errors import ProcessesError
from ppolm.messages import reason
from ppolm.ranks.activity import Activity
from ppolm.ranks.heartbeat import Heartbeat
from ppolm.ranks.launcher import check_launcher
from ppolm.ranks.ranks import Ranks

if TYPE_CHECKING:
    from torch.distributed import Store

COLLECTIVE_SECONDS = 1800.0
"""How long one exchange may take. A process that is gone or stands still is noticed much sooner, by its heartbeat."""
JOIN_SECONDS = 300.0
"""How long the processes wait for each other at the start: all they have to do until then is to import torch."""
LOOK_SECONDS = 5.0
SHORTEST = 0.05
"""Less than a millisecond would be taken for no limit at all, and waited for forever."""
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
    with suppress(Exception):  # the store may have gone with the first process
        if not join_ranks().first:
            return notices.wait(name, SAME_SECONDS)
        notices.done(name)
    return False


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
                self.store.wait([name], timedelta(seconds=max(SHORTEST, min(LOOK_SECONDS, left))))
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
    activity = Activity()
    try:
        store = _store(rank, size)
        heartbeat, notices = Heartbeat(store.clone(), rank, size, activity), StoreNotices(store.clone())
        _meet(notices, rank, size)
        heartbeat.start()
        atexit.register(_leave, heartbeat)
        if not dist.is_initialized():
            backend = "cpu:gloo,cuda:nccl" if torch.cuda.is_available() else "gloo"
            limit = timedelta(seconds=COLLECTIVE_SECONDS)
            dist.init_process_group(backend, store=store, rank=rank, world_size=size, timeout=limit)
    except ProcessesError:
        raise
    except Exception as error:
        raise ProcessesError(
            f"Process {rank} could not join the other {size - 1}: {reason(error)} Were all of them started, or did one "
            f"fail and say why? Can each reach {os.environ['MASTER_ADDR']}, port {os.environ['MASTER_PORT']}?"
        ) from error

    return Ranks(rank, size, local, notices, activity)


def _leave(heartbeat: Heartbeat) -> None:
    """Say how this process ends, and leave the others; ``last_value`` is the error that has ended a program."""
    import torch.distributed as dist

    heartbeat.stop(_failed or getattr(sys, "last_value", None) is not None)
    if dist.is_initialized():
        dist.destroy_process_group()


_failed = False


def note_failure() -> None:
    """This process ends with an error, which the others cannot know: they are not to wait for it."""
    global _failed
    _failed = True


def _store(rank: int, size: int) -> Store:
    """The store that the launcher keeps for the job, or else the first process."""
    import torch.distributed as dist

    if dist.is_initialized():
        known: Store = dist.distributed_c10d._get_default_store()
        return known
    waits = timedelta(seconds=JOIN_SECONDS)
    store: Store = next(dist.rendezvous("env://", rank, size, timeout=waits))[0]
    return store


def _meet(notices: StoreNotices, rank: int, size: int) -> None:
    """Wait until all processes are there, and say which ones are not."""
    notices.done(f"joined/{rank}")
    until = time.monotonic() + JOIN_SECONDS
    missing = [one for one in range(size) if not notices.wait(f"joined/{one}", max(0.1, until - time.monotonic()))]
    if missing:
        raise ProcessesError(
            f"Of the {size} processes of this job {', '.join(map(str, missing))} did not join within "
            f"{JOIN_SECONDS:.0f} s. Did they fail, and say why on their machine, or were they not started?"
        )
