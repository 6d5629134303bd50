"""Ranks: the processes of one job. Every process holds the same state and runs the same code; passes are shared.

Sums, gathered objects and answers are the same, bit for bit, on every process. So everything that follows from them
(whitening, the KL controller, the order of minibatches, the verdict) needs no exchange at all.
"""

from __future__ import annotations

import math
import pickle
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext, suppress
from typing import TYPE_CHECKING, Any, Protocol, TypeVar

from ppolm.errors import LostProcessError, PpolmError, ProcessesError
from ppolm.messages import brief
from ppolm.ranks.activity import Activity

if TYPE_CHECKING:
    from torch import Tensor

T = TypeVar("T")
TOLD = "told_by_first"
"""Set on an error that the first process has raised and reports itself."""
NAMED = 4
"""So many differences are named; what comes later follows from them."""


class Notices(Protocol):
    """How the others learn that the first process has done something; a collective would time out before."""

    def done(self, name: str) -> None:
        """Say so."""

    def wait(self, name: str, seconds: float = math.inf) -> bool:
        """Wait for it, at most so long; whether it is done."""

    def forget(self, name: str) -> None:
        """Everybody knows."""


class Ranks:
    """The processes of a job as one of them sees it. Alone, with ``size`` 1, every method does next to nothing."""

    def __init__(
        self,
        rank: int = 0,
        size: int = 1,
        local_rank: int = 0,
        notices: Notices | None = None,
        activity: Activity | None = None,
    ) -> None:
        self.rank, self.size, self.local_rank, self.notices = rank, size, local_rank, notices
        self.activity = activity or Activity()
        """What this process is at, for the heartbeat."""
        self.guard: Callable[[], AbstractContextManager[object]] = nullcontext
        """Entered while this process acts for all: a signal may interrupt it there, since the others are told."""
        self._acts = 0
        """How many times ``once`` was called."""
        self._alone = False
        """Whether this process does something for all of them at the moment, and shares nothing."""

    @property
    def first(self) -> bool:
        """Whether this is the process that writes and prints."""
        return self.rank == 0

    @property
    def shares(self) -> bool:
        """Whether work is shared with other processes."""
        return self.size > 1 and not self._alone

    def sum(self, numbers: Tensor) -> Tensor:
        """The sum over all processes, in place."""
        if self.shares:
            with self._exchange() as collectives:
                collectives.all_reduce(numbers)
        return numbers

    def send(self, numbers: Tensor) -> None:
        """Overwrite a tensor with the first process's."""
        if self.shares:  # as bytes, which every backend can send
            with self._exchange() as collectives:
                collectives.broadcast(numbers.view(-1).view(_torch().uint8), src=0)

    def some(self, value: bool) -> bool:
        """Whether it is so on some process. On the host: no device is waited for."""
        return bool(self.sum(_torch().tensor([float(value)])) > 0) if self.shares else value

    def gather(self, value: T) -> list[T]:
        """The values of all processes, in their order."""
        if not self.shares:
            return [value]
        values: list[Any] = [None] * self.size
        with self._exchange() as collectives:
            collectives.all_gather_object(values, value)
        return values

    def once(self, act: Callable[[], T]) -> T:
        """Let the first process act, and give all of them its answer, or raise its error on all of them.

        It may take as long as it likes: people may have to be waited for. Models that it uses are used by it alone.
        """
        if not self.shares:
            return act()
        self._acts += 1
        with self.activity.exchanging():
            return self._act(act) if self.first else self._told()

    def _act(self, act: Callable[[], T]) -> T:
        """Act, and tell the others what came of it."""
        try:
            with self.alone(), self.guard(), self.activity.acting():
                answer = act()
            said = _packed(answer, None)
        except BaseException as error:
            with suppress(LostProcessError):  # then nobody is left to be told
                self._tell(_packed(None, error))
            raise
        self._tell(said)
        return answer

    def _tell(self, said: bytes) -> None:
        assert self.notices is not None
        with self._talking() as collectives:
            self.notices.done(f"once/{self._acts}")
            collectives.broadcast_object_list([said], src=0)
            self.notices.forget(f"once/{self._acts}")

    def _told(self) -> Any:
        """What came of the first process's act."""
        said: list[Any] = [None]
        assert self.notices is not None
        with self._talking() as collectives:
            self.notices.wait(f"once/{self._acts}")
            collectives.broadcast_object_list(said, src=0)
        answer, problem = pickle.loads(said[0])
        if problem is not None:
            setattr(problem, TOLD, True)
            raise problem
        return answer

    @contextmanager
    def _exchange(self) -> Iterator[Any]:
        """The functions of torch.distributed, for something that all processes do together."""
        with self.activity.exchanging(), self._talking() as collectives:
            yield collectives

    @contextmanager
    def _talking(self) -> Iterator[Any]:
        """The same functions, and an error that says what it means if one of them fails."""
        torch, collectives = _torch(), _collectives()
        try:
            yield collectives
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:  # all that torch raises here
            late = " It did not come within the time that an exchange may take." if "imed out" in str(error) else ""
            raise LostProcessError(
                f"Process {self.rank} of {self.size} has lost another one in an exchange: that has ended and said why, "
                f"or was killed.{late}"
            ) from error

    def do_once(self, act: Callable[[], object]) -> None:
        """Let the first process do something whose result nobody else needs; an error is raised on all."""

        def work() -> None:
            act()

        self.once(work)

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Share nothing in here: the others are not in the same place."""
        before, self._alone = self._alone, True
        try:
            yield
        finally:
            self._alone = before

    def agree(self, what: str, value: object) -> None:
        """Raise on all processes unless they all have the same value."""
        self.agree_on("", {what: value})

    def agree_on(self, when: str, facts: Mapping[str, object]) -> None:
        """Raise on all processes, naming what differs, unless all facts are the same: one exchange for all of them."""
        every = self.gather(dict(facts))
        other = next((rank for rank, found in enumerate(every) if not _equal(found, every[0])), None)
        if other is None:
            return
        ours, theirs = every[0], every[other]
        names = [name for name in {**ours, **theirs} if not _equal(ours.get(name), theirs.get(name))]
        said = [f"{name} ({brief(ours.get(name))} and {brief(theirs.get(name))})" for name in names[:NAMED]]
        more = f", and {len(names) - NAMED} more" if len(names) > NAMED else ""
        error = ProcessesError(
            f"The processes of this job have drifted apart{when}. Between process 0 and process {other} differ: "
            f"{', '.join(said)}{more}. Start all of them with the same program, settings, files and kind of device. "
            "A run is resumed from its last checkpoint; if it was started so, report it."
        )
        setattr(error, TOLD, not self.first)  # all of them raise it: the first one says so
        raise error


def _equal(one: object, other: object) -> bool:
    """Whether facts are the same; a number that is none is the same as itself."""
    return pickle.dumps(one) == pickle.dumps(other) or one == other


def _collectives() -> Any:
    """torch.distributed, imported when it is needed: commands that share nothing start faster without it."""
    import torch.distributed

    return torch.distributed


def _torch() -> Any:
    import torch

    return torch


def _packed(answer: object, error: BaseException | None) -> bytes:
    """An answer, or an error that the other processes can raise: one that cannot be sent becomes a sentence."""
    try:
        packed = pickle.dumps((answer, error))
        pickle.loads(packed)
    except Exception as problem:
        if error is None:
            raise
        kind = PpolmError if isinstance(error, PpolmError) else RuntimeError
        return pickle.dumps((None, kind(f"{type(error).__name__}: {error} ({type(problem).__name__} in sending it)")))
    return packed
