"""A job for tests: ppolm, which hears Ctrl-C in every process while SFT or reward training is in its third update.

python -m tests.ranks.interrupted_job ARGUMENT...
"""

from __future__ import annotations

import os
import signal
import sys
from typing import Any

from ppolm.cli.main import main
from ppolm.supervised.supervised_trainer import SupervisedTrainer

UPDATE = 3


def interrupt() -> None:
    """Send the signal in that update."""
    given = SupervisedTrainer._update

    def update(self: SupervisedTrainer[Any], rows: list[Any]) -> float:
        if self.step == UPDATE - 1:
            os.kill(os.getpid(), signal.SIGINT)
        return given(self, rows)

    SupervisedTrainer._update = update  # type: ignore[method-assign]


if __name__ == "__main__":
    interrupt()
    main(sys.argv[1:])
