"""Ending a process that the server started, so that nothing of it is left."""

from __future__ import annotations

import asyncio
import contextlib


async def end_process(process: asyncio.subprocess.Process) -> None:
    """Kill it if it still runs, wait for its end, and close its pipes. Safe to call more than once.

    asyncio closes pipes only when they were read to their end, and complains if its loop is gone by then.
    """
    if process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            process.kill()
    await process.wait()
    transport = getattr(process, "_transport", None)
    if transport is not None:
        transport.close()
    await asyncio.sleep(0)  # let the pipes note that they are closed
