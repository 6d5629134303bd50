"""A private PostgreSQL server for tests, from Debian's package or any other on the PATH."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

CONNECTIONS = 250


def find_programs() -> Path:
    """The folder of initdb and pg_ctl; skips the test if there is none."""
    places = sorted(Path("/usr/lib/postgresql").glob("*/bin"), reverse=True)
    found = shutil.which("initdb")
    for place in [*([Path(found).parent] if found else []), *places]:
        if (place / "initdb").exists() and (place / "pg_ctl").exists():
            return place
    pytest.skip("PostgreSQL is not installed (apt-get install postgresql)")


def as_user() -> list[str]:
    """Prefix for commands that must not run as root, as PostgreSQL refuses to."""
    if os.geteuid() != 0:
        return []
    if shutil.which("setpriv") is None:
        pytest.skip("tests run as root, PostgreSQL does not, and there is no setpriv to change the user")
    return ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


@contextmanager
def running_server() -> Iterator[str]:
    """The URL of an empty database on a socket in a temporary folder."""
    programs, prefix = find_programs(), as_user()
    with tempfile.TemporaryDirectory(prefix="pg") as name:  # short: a socket path may have at most 107 characters
        folder = Path(name)
        folder.chmod(0o755)
        data = folder / "data"
        data.mkdir(mode=0o700)
        if prefix:
            shutil.chown(data, "nobody", "nogroup")
            shutil.chown(folder, "nobody", "nogroup")

        def run(*command: str) -> None:
            done = subprocess.run([*prefix, *command], cwd=folder, capture_output=True, text=True, timeout=120)
            if done.returncode:
                log = folder / "log"
                reason = done.stderr + done.stdout + (log.read_text() if log.exists() else "")
                pytest.skip(f"PostgreSQL cannot start here: {' '.join(reason.split())[-300:]}")

        run(str(programs / "initdb"), "-D", str(data), "-U", "tester", "--auth=trust", "--no-sync", "-E", "UTF8")
        options = f"-k {folder} -c listen_addresses='' -c max_connections={CONNECTIONS} -c fsync=off"
        control = [str(programs / "pg_ctl"), "-D", str(data), "-w"]
        run(*control, "-l", str(folder / "log"), "-o", options, "start")
        try:
            yield f"postgresql://tester@/postgres?host={folder}"
        finally:
            subprocess.run([*prefix, *control, "-m", "immediate", "stop"], cwd=folder, check=True, capture_output=True)
