"""What a run says while it runs: lines that stay, and on a terminal one that is renewed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from ppolm.feedback.store import FeedbackStore
from ppolm.rewards.human_reward import HumanReward
from ppolm.rewards.protocol import RewardCallError
from ppolm.runs.progress import Progress

pty = pytest.importorskip("pty", reason="this system has no pseudo-terminals")

SCRIPT = """
import logging, sys
from ppolm.runs.progress import Progress
logging.basicConfig(format="warning: %(message)s")
progress = Progress(4, 1)
progress.evaluating()
progress.evaluated("evaluation at step 1: reward 0.1  baseline")
progress.step({"step": 2, "avg_reward": 0.25, "kl": 0.5, "entropy": 1.0})
logging.warning("the disk is nearly full")
print("said by a reward")
print("without an end", end="")
progress.waiting(3)
progress.waiting(0)
progress.step({"step": 3, "avg_reward": 0.5, "kl": float("nan"), "entropy": 1.0})
progress.close()
print(" and on", type(sys.stdout).__name__)
"""
STEP = {"step": 2, "avg_reward": 0.25, "kl": 0.5, "entropy": 1.0, "policy_loss": -0.001, "value_loss": 0.2}


def on_a_terminal(columns: int) -> str:
    """All that the script writes to a real terminal of this width."""
    master, slave = pty.openpty()
    import fcntl
    import struct
    import termios

    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 24, columns, 0, 0))
    with subprocess.Popen([sys.executable, "-c", SCRIPT], stdout=slave, stderr=slave, stdin=slave) as child:
        os.close(slave)
        written = b""
        while True:
            try:
                piece = os.read(master, 4096)
            except OSError:  # its end, on Linux
                break
            if not piece:
                break
            written += piece
        assert child.wait() == 0, written
    os.close(master)
    return written.decode()


def screen(written: str) -> list[str]:
    """What stands there at the end: later letters of a line replace earlier ones."""
    rows = []
    for line in written.replace("\r\n", "\n").split("\n"):
        shown: list[str] = []
        for part in line.split("\r"):
            shown[: len(part)] = part
        rows.append("".join(shown).rstrip())
    return rows


def test_on_a_terminal_one_line_is_renewed_and_what_was_said_stays_above_it() -> None:
    rows = [row for row in screen(on_a_terminal(80)) if row]
    assert rows[:4] == [
        "evaluation at step 1: reward 0.1  baseline",
        "warning: the disk is nearly full",
        "said by a reward",
        "without an end",
    ]
    assert rows[4].startswith("step 3/4 |")
    assert "reward 0.5" in rows[4]
    assert "left" in rows[4]
    assert "kl" not in rows[4], "a KL that is no number is left out"
    assert rows[5:] == [" and on TextIOWrapper"], "the streams are given back"


def test_on_a_terminal_it_says_what_it_is_doing() -> None:
    written = on_a_terminal(80)
    assert "evaluating" in written
    assert "waiting for people: 3 to judge" in written
    assert "reward 0.25  kl 0.5" in written


def test_the_line_fits_into_a_narrow_terminal() -> None:
    written = on_a_terminal(30)
    parts = [part for line in written.split("\n") for part in line.split("\r") if part.startswith("step")]
    assert parts
    assert max(map(len, parts)) <= 30


def test_without_a_terminal_there_is_a_plain_line_per_step(capsys: pytest.CaptureFixture[str]) -> None:
    progress = Progress(4, 1)
    progress.evaluating()
    progress.step(STEP)
    progress.waiting(3)
    progress.evaluated("evaluation at step 2: reward 0.3")
    progress.close()
    assert capsys.readouterr().err == (
        "step 2/4  reward 0.25  kl 0.5  entropy 1  policy -0.001  value 0.2\nevaluation at step 2: reward 0.3\n"
    )


def test_people_who_are_waited_for_are_counted_until_the_wait_is_over(tmp_path: Path) -> None:
    reward = HumanReward(FeedbackStore(str(tmp_path / "feedback.db")), timeout=0.05)
    told: list[int] = []
    reward.on_wait = told.append
    with pytest.raises(RewardCallError, match="not judged within"):
        reward(["one", "two"], ["a", "b"])
    assert told[0] == 2
    assert told[-1] == 0
