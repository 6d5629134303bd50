"""Ways of starting several processes that do not do what they seem to: found out from what a launcher leaves in the
environment, before anything is computed."""

from __future__ import annotations

import logging
import os
from collections.abc import Mapping

from ppolm.errors import ProcessesError

log = logging.getLogger(__name__)

INSTEAD = "Start the job with torchrun, or with accelerate launch --multi_gpu: both work without a GPU, too"
ENGINES = {
    "ACCELERATE_USE_FSDP": "--use_fsdp",
    "ACCELERATE_USE_DEEPSPEED": "--use_deepspeed",
    "ACCELERATE_USE_MEGATRON_LM": "--use_megatron_lm",
}
"""Options of accelerate launch that are for programs built on accelerate. With --use_fsdp transformers would even leave
the weights out in all processes but the first."""
MPI_SIZES = ("OMPI_COMM_WORLD_SIZE", "PMI_SIZE", "MV2_COMM_WORLD_SIZE")


def check_launcher(size: int, told: Mapping[str, str] = os.environ) -> None:
    """Raise if these processes could not work together; warn if there should have been more of them.

    ``size`` is the number of processes that know of each other.
    """
    if size > 1:
        for name, option in ENGINES.items():
            if told.get(name, "").lower() in ("1", "true"):
                raise ProcessesError(
                    f"accelerate launch was given {option}, which ppolm does not use: it shares the work by itself. "
                    "Leave the option out, also in accelerate's config file."
                )
        return
    by_mpi = max((int(told[name]) for name in MPI_SIZES if told.get(name, "").isdecimal()), default=1)
    if by_mpi > 1:
        raise ProcessesError(f"MPI has started {by_mpi} processes, each of which would train by itself. {INSTEAD}.")
    if told.get("ACCELERATE_USE_CPU", "").lower() in ("1", "true") and "MASTER_ADDR" in told:
        log.warning("accelerate launch --cpu was to start several processes and has started one. %s.", INSTEAD)
