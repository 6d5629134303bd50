"""Run the test suite as other machines would: older instruction sets, another order of sums, more threads, busy cores.

    python -m scripts.other_machines                  every setting, one after the other
    python -m scripts.other_machines avx2 busy        some of them
    python -m scripts.other_machines busy -- -k resume   with flags for pytest

The exit code is the number of settings under which a test fails.
"""

from __future__ import annotations

import os
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
SETTINGS = {
    "default": {"ATEN_CPU_CAPABILITY": "default"},  # torch's own loops without vector instructions
    "avx2": {"ATEN_CPU_CAPABILITY": "avx2"},
    "compatible": {"MKL_CBWR": "COMPATIBLE"},  # matrix products in an order that every x86 CPU supports
    "one_thread": {"PPOLM_TEST_THREADS": "1"},
    "four_threads": {"PPOLM_TEST_THREADS": "4"},
    "busy": {},
}
TESTS = [sys.executable, "-m", "pytest", "-n", "auto", "--dist", "loadgroup"]
LOOP = [sys.executable, "-c", "while True: pass"]


def run(name: str, flags: list[str]) -> bool:
    """Whether all tests pass under a setting; prints pytest's last line."""
    with ExitStack() as stack:
        if name == "busy":
            stack.callback(subprocess.Popen(LOOP).kill)
        start = time.monotonic()
        environment = {**os.environ, **SETTINGS[name]}
        done = subprocess.run([*TESTS, *flags], cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    lines = done.stdout.strip().splitlines() or done.stderr.strip().splitlines() or [""]
    failed = [line for line in lines if line.startswith(("FAILED", "ERROR"))]
    print("\n".join([*failed, f"{name:13} {lines[-1].strip('= ')} ({time.monotonic() - start:.0f} s)"]), flush=True)
    return done.returncode == 0


def main() -> None:
    """Run the suite under the settings named, or under all of them."""
    words, flags = sys.argv[1:], list[str]()
    if "--" in words:
        words, flags = words[: words.index("--")], words[words.index("--") + 1 :]
    unknown = [word for word in words if word not in SETTINGS]
    if unknown:
        raise SystemExit(f"Unknown setting {unknown[0]!r}. Choose from: {', '.join(SETTINGS)}.")
    raise SystemExit(sum(not run(name, flags) for name in words or SETTINGS))


if __name__ == "__main__":
    main()
