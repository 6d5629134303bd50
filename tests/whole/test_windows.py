"""What can be said of Windows without it: no function that it lacks is called there, and files are flushed its way."""

from __future__ import annotations

import ast
import errno
import fcntl
import os
from pathlib import Path

import pytest

import ppolm
from ppolm.storage import atomic

LACKING = {
    "os": {"fork", "forkpty", "getuid", "geteuid", "getgid", "getpgid", "setsid", "killpg", "wait", "WNOHANG", "mkfifo"}
    | {"sched_getaffinity", "sysconf", "register_at_fork", "statvfs", "fchmod", "getloadavg", "O_NOFOLLOW", "uname"},
    "signal": {"SIGKILL", "SIGHUP", "SIGUSR1", "SIGUSR2", "SIGALRM", "SIGCHLD", "SIGPIPE", "SIGSTOP", "alarm"},
}
"""Names that the modules have on Unix alone."""
MODULES = {"fcntl", "resource", "pwd", "grp", "termios", "tty", "pty", "curses"}
GUARDED = {
    "kernels/cpu_bfloat16.py: fork": "called on Linux alone, or where os has fork",
    "kernels/cpu_bfloat16.py: WNOHANG": "the same function",
    "kernels/cpu_waiting.py: sched_getaffinity": "only with libgomp, which Windows has not",
    "estimate/memory.py: sysconf": "after /proc, and AttributeError is caught",
    "base_setup/machine_memory.py: sysconf": "AttributeError is caught",
    "planning/this_machine.py: sched_getaffinity": "AttributeError is caught",
    "storage/claim.py: register_at_fork": "asked for first",
    "storage/claim.py: fcntl": "in the branch for other systems",
    "studio/worker_process.py: SIGKILL": "only of a process that ended by a signal, which Windows does not say",
}
"""Uses that Windows does not reach, and why."""
ROOT = Path(ppolm.__file__).parent


def uses(tree: ast.AST) -> set[str]:
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name):
            found |= {node.attr} & LACKING.get(node.value.id, set())
        elif isinstance(node, ast.Import):
            found |= {name.name for name in node.names} & MODULES
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} & MODULES
    return found


def test_what_windows_lacks_is_not_reached_there() -> None:
    found = {
        f"{path.relative_to(ROOT).as_posix()}: {name}"
        for path in ROOT.rglob("*.py")
        for name in uses(ast.parse(path.read_text(encoding="utf-8")))
    }
    assert found == set(GUARDED), "guard it, and say here how"


def test_a_module_of_unix_is_imported_only_where_it_is_used() -> None:
    for path in ROOT.rglob("*.py"):
        top = ast.parse(path.read_text(encoding="utf-8")).body
        assert not any(uses(node) & MODULES for node in top if isinstance(node, ast.Import | ast.ImportFrom)), path


def test_windows_flushes_only_files_that_are_open_for_writing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    flushed = []

    def fill(folder: Path) -> None:
        folder.joinpath("a").write_text("a")

    def fsync(handle: int) -> None:
        if fcntl.fcntl(handle, fcntl.F_GETFL) & os.O_ACCMODE == os.O_RDONLY:
            raise OSError(errno.EBADF, "Bad file descriptor")
        flushed.append(handle)

    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError, match="Bad file descriptor"):
        atomic.write_folder(tmp_path / "before", fill)
    monkeypatch.setattr(atomic, "WINDOWS", True)
    atomic.write_folder(tmp_path / "run", fill)
    atomic.write_file(tmp_path / "b", lambda path: path.write_text("b"))
    atomic.verify_folder(tmp_path / "run")
    assert len(flushed) == 3, "a file, its manifest, and another file"
