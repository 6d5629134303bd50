"""How the tests are run, and lightweight helpers. Fixtures that need torch are in fixtures.py.

With several workers, the controller process runs no tests itself, so it imports nothing large: all workers would have
to wait for it.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest

os.environ.update(HF_HUB_OFFLINE="1", HF_DATASETS_OFFLINE="1", TOKENIZERS_PARALLELISM="false")
THREADS = int(os.environ.get("PPOLM_TEST_THREADS", "1"))
"""Tiny models are fastest on one thread, and least affected by a busy machine. More threads test that they work."""
os.environ["OMP_NUM_THREADS"] = str(THREADS)  # for programs that tests start
# Some machines keep no bytecode. Then every worker and program would compile 2000 files of libraries: 6 s each.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
ROOT = Path(__file__).resolve().parent.parent
SHARED_DATA = ROOT.parent / "shared" / "data"
SLOW = frozenset((ROOT / "tests" / "slow_tests.txt").read_text().split())
"""Tests and test files that take more than a few seconds, as measured by `pytest --durations=0`."""
TOGETHER = frozenset(
    (
        "tests/embedded/test_embedded_scores.py",
        "tests/hooks/test_loggers.py",
        "tests/ranks/test_same_numbers.py",
        "tests/studio/test_tokens_page.py",
        *("tests/studio/test_model_worker.py", "tests/studio/test_model_pages.py"),
        *(
            f"tests/whole/test_{name}.py"
            for name in ("attack_bad_inputs", "attack_runs", "devices", "doc_blocks", "gpu_counts", "site", "wheel")
        ),
    )
)
"""Files whose tests share expensive fixtures: one worker runs all tests of a file."""
PROMPTS = [f"Tell me about {thing}:" for thing in ("cats", "the sea", "a long winter", "bread", "old maps", "rain")]

needs_shared_data = pytest.mark.skipif(
    not SHARED_DATA.is_dir(), reason="the shared real data is not beside this checkout"
)


def pytest_configure(config: pytest.Config) -> None:
    """Load the fixtures in processes that run tests."""
    hands_out = bool(config.getoption("numprocesses", None)) and not hasattr(config, "workerinput")
    if not hands_out:
        config.pluginmanager.import_plugin("tests.fixtures")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests first: started last, one of them would keep a worker busy while the others are idle."""
    for item in items:
        if item.name in SLOW or item.name.partition("[")[0] in SLOW or item.path.stem in SLOW:
            item.add_marker(pytest.mark.slow)
    items.sort(key=lambda item: item.get_closest_marker("slow") is None)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """Hand out tests one by one, but keep those of some files together (``--dist loadgroup``)."""
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadGroupScheduling

    class Shared(LoadGroupScheduling):
        # xdist stores groups in a private attribute of a test, which pytest no longer reads.
        _split_scope = staticmethod(shared_with)

    return Shared(config, log)


def shared_with(nodeid: str) -> str:
    """A key that is the same for all tests that one worker must run."""
    file = nodeid.partition("::")[0]
    return file if file in TOGETHER else nodeid


def spread(prompts: list[str], responses: list[Any]) -> list[float]:
    """A reward that differs between any two responses: a hash of their tokens in [0, 1)."""
    return [sum(31 * i + token for i, token in enumerate(response.token_ids)) % 97 / 97 for response in responses]


def vowels(prompts: list[str], responses: list[str]) -> list[float]:
    """A reward with some spread: the number of vowels in a response."""
    return [float(sum(letter in "aeiou" for letter in response)) for response in responses]


def bytes_below_128(prompts: list[str], responses: list[Any]) -> list[list[float]]:
    """A reward per token: 1 for a token of plain ASCII."""
    return [[float(token.isascii()) for token in response.tokens] for response in responses]
