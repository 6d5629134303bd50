"""Keeps track of which settings have a test that shows their effect."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from ppolm.config import PPOConfig

MakeConfig = Callable[..., PPOConfig]
COVERED: set[str] = set()
T = TypeVar("T", bound=Callable[..., None])


def acts(*names: str) -> Callable[[T], T]:
    COVERED.update(names)
    return lambda test: test
