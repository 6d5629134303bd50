"""A module run as `python -m` runs it, in a fork of a process that has imported everything.

python -m tests.warm_program MODULE [ARGUMENT ...]
"""

from __future__ import annotations

import atexit
import runpy
import signal
import sys


def main(module: str, *arguments: str) -> None:
    """Run it. As in a new program no signal is handled yet, and at the end ``atexit`` is obeyed and all is written."""
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGQUIT):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    sys.argv = [module, *arguments]
    try:
        runpy.run_module(module, run_name="__main__", alter_sys=True)
    except Exception as error:
        sys.last_value = error  # Python notes so what ends a program, before ``atexit``
        raise
    finally:
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()


if __name__ == "__main__":
    main(*sys.argv[1:])
