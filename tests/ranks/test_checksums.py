"""Checksums and facts: one bit, one name or one NaN that differs is noticed, and what is the same is not."""

from __future__ import annotations

import math

import pytest
import torch

from ppolm.errors import ProcessesError
from ppolm.ranks import Ranks
from ppolm.ranks import checksums as module
from ppolm.ranks.checksums import checksums, digest


def changed(values: torch.Tensor) -> torch.Tensor:
    other = values.clone()
    other.view(-1)[1] = False if other.dtype == torch.bool else 7
    return other


@pytest.mark.parametrize(
    "kind", [torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool]
)
def test_a_number_that_differs_changes_the_checksum(kind: torch.dtype, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "AT_ONCE", 3)
    values = torch.arange(8).reshape(2, 4).to(kind)
    one, same, other = checksums({"a": values, "b": values.clone(), "c": changed(values)}).values()
    assert one == same != other


def test_the_last_bit_of_one_weight_and_two_changes_that_cancel_are_noticed() -> None:
    values = torch.full((1000,), 0.1)
    least, swapped = values.clone(), values.clone()
    least[500] = torch.nextafter(values[500], torch.tensor(1.0))
    swapped[3] = torch.nextafter(values[3], torch.tensor(1.0))
    swapped[7] = torch.nextafter(values[7], torch.tensor(0.0))
    assert len(set(checksums({"a": values, "b": least, "c": swapped, "d": values.view(10, 100)}).values())) == 3


def test_nan_equals_nan_and_an_empty_tensor_has_a_checksum() -> None:
    values = torch.tensor([1.0, math.nan])
    assert len(set(checksums({"a": values, "b": values.clone()}).values())) == 1
    assert checksums({"none": torch.zeros(0)}) == {"none": "0" * 32}
    assert digest([math.nan, 1]) == digest([math.nan, 1]) != digest([1, math.nan])


class Two(Ranks):
    """Two processes, of which the other one says something else."""

    def __init__(self, rank: int, *said: dict[str, object]) -> None:
        super().__init__(rank, 2)
        self.said = list(said)

    def gather(self, value: object) -> list[object]:  # type: ignore[override]
        assert value in self.said
        return list(self.said)


@pytest.mark.parametrize("rank", [0, 1])
def test_what_differs_is_named_with_both_values_and_what_follows_from_it_is_counted(rank: int) -> None:
    ours: dict[str, object] = {"nan": math.nan, "kl_coef": 0.0, **{f"column {i}": i for i in range(6)}}
    theirs: dict[str, object] = {**ours, "kl_coef": 5.0, **{f"column {i}": i + 1 for i in range(6)}}
    with pytest.raises(ProcessesError, match=r"apart in step 2\. Between process 0 and process 1 differ: ") as caught:
        Two(rank, ours, theirs).agree_on(" in step 2", [ours, theirs][rank])
    assert "kl_coef (0.0 and 5.0), column 0 (0 and 1), column 1 (1 and 2), column 2 (2 and 3), and 3 more." in str(
        caught.value
    )
    assert getattr(caught.value, "told_by_first") == (rank == 1)  # noqa: B009


def test_equal_facts_are_accepted() -> None:
    facts: dict[str, object] = {"nan": math.nan, "kl_coef": 0.1}
    Two(0, facts, dict(facts)).agree_on("", facts)
