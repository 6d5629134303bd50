"""What the library would ask a device about its masks, answered by the host, which knows.

To choose a kernel, the library reads from the device whether a mask hides anything, and whether positions are those of
several texts in a row. Each answer is a wait, once per pass and so once per generated token. Rows of ours are single
texts unless they come with a mask of their own, and who pads them knows whether it has.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from torch import Tensor
from transformers import masking_utils

_padded: ContextVar[bool | None] = ContextVar("padded", default=None)
"""Whether the rows of the pass under way are padded where its mask says so; None: nobody said."""


@contextmanager
def known_rows(padded: bool) -> Iterator[None]:
    """Inside, rows are single texts, and ``padded`` says whether their mask hides anything."""
    token = _padded.set(padded)
    try:
        yield
    finally:
        _padded.reset(token)


def _hides_nothing(ask: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    def hides_nothing(mask: Tensor) -> Any:
        padded = _padded.get()
        # Of a part of a padded mask "something is hidden" may be wrong, and costs a mask that was not needed.
        return ask(mask) if padded is None else not padded

    return hides_nothing


def _texts_in_rows(find: Callable[[Tensor], Tensor | None]) -> Callable[[Tensor], Tensor | None]:
    def texts_in_rows(position_ids: Tensor) -> Tensor | None:
        return find(position_ids) if _padded.get() is None else None

    return texts_in_rows


def answer_for_the_library() -> None:
    """Let the library's questions be answered inside ``known_rows``; elsewhere it asks as before.

    Both functions are private to it. In a version that has others it asks the device, which is slower and as right.
    """
    for name, answering in (("fast_all", _hides_nothing), ("find_packed_sequence_indices", _texts_in_rows)):
        own = getattr(masking_utils, name, None)
        if own is not None and not hasattr(own, "answers_for"):
            answered: Any = answering(own)
            answered.answers_for = own
            setattr(masking_utils, name, answered)


answer_for_the_library()
