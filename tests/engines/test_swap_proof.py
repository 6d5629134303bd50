"""A swap of the adapter is proven: an adapter that was not applied, or applied wrongly, is noticed."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch

from ppolm.engines.swap_proof import Scored, probe_ids, prove_swap
from ppolm.engines.vllm_engine import VllmEngine
from ppolm.errors import EngineError
from tests.engines.conftest import Train
from tests.engines.small_server import Fault, SmallServer

MakeEngine = Callable[..., VllmEngine]


def numbers(size: float, seed: int) -> torch.Tensor:
    return size * torch.randn(252, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)


@pytest.mark.parametrize("noise", [0.0, 1e-6, 2e-2])
@pytest.mark.parametrize("change", [1e-2, 1e-1])
def test_the_new_version_is_told_from_the_old_one_below_the_rounding_of_the_server(noise: float, change: float) -> None:
    old, moved = numbers(3.0, 0), numbers(change, 1)
    before = Scored(old, old + numbers(noise, 2))
    swapped = prove_swap(Scored(old + moved, old + moved + numbers(noise, 3)), before)
    assert swapped.problem is None
    assert swapped.follows == pytest.approx(1, abs=0.01 + 5 * noise / change / math.sqrt(252))
    stale = prove_swap(Scored(old + moved, old + numbers(noise, 4)), before)
    if stale.decided:
        assert stale.problem is not None
        assert "earlier adapter" in stale.problem
    assert stale.decided or noise > change, "only a change below the rounding is left open"


def test_a_change_that_cannot_be_told_is_neither_proof_nor_alarm() -> None:
    old = numbers(3.0, 0)
    before = Scored(old, old + numbers(2e-2, 1))
    undecided = prove_swap(Scored(old + numbers(1e-5, 2), old + numbers(2e-2, 3)), before)
    assert (undecided.problem, undecided.decided) == (None, False)
    same = prove_swap(before, before)
    assert (same.problem, same.decided) == (None, False)


def test_an_adapter_of_twice_the_strength_is_a_problem() -> None:
    old, moved = numbers(3.0, 0), numbers(1e-2, 1)
    proof = prove_swap(Scored(old + moved, old + 2 * moved), Scored(old, old))
    assert proof.problem is not None
    assert "differently (200 %" in proof.problem


def test_the_probe_is_always_the_same_and_fits_the_context() -> None:
    assert probe_ids(1000, 512) == probe_ids(1000, 512)
    assert {len(ids) for ids in probe_ids(1000, 20)} == {19}
    assert max(token for ids in probe_ids(1000, 512) for token in ids) < 500


# ---- servers --------------------------------------------------------------------------------------------------------


def test_every_version_is_loaded_into_every_server_under_a_new_name_and_old_ones_are_unloaded(
    make_engine: MakeEngine, servers: list[SmallServer], train: Train
) -> None:
    engine = make_engine()
    for _ in range(4):
        train()
        engine.publish()
    engine.publish()
    for server in servers:
        assert [name[:13] for name in server.loads] == [f"policy-{number:06d}" for number in range(1, 6)]
        assert sorted(server.adapters) == server.loads[-2:]
    assert sorted(path.name for path in engine.versions.folder.iterdir()) == servers[0].loads[-3:]


@pytest.mark.parametrize("scale", [1e-5, 1e-3])
@pytest.mark.parametrize(
    ("fault", "said"),
    [("stale", "earlier adapter"), ("unapplied", "another adapter"), ("too strong", "(an)?other adapter|differently")],
)
def test_a_server_with_the_wrong_adapter_is_named_even_if_the_change_is_small(
    make_engine: MakeEngine, servers: list[SmallServer], train: Train, fault: Fault, said: str, scale: float
) -> None:
    engine = make_engine(servers[0])
    train()
    engine.publish()
    train(scale)
    servers[0].fault = fault
    with pytest.raises(EngineError, match=rf"{servers[0].url} was given policy-000003-\w+, but it .*({said})"):
        engine.publish()


def test_a_skipped_swap_is_noticed(make_engine: MakeEngine, servers: list[SmallServer], train: Train) -> None:
    """The proof does its work even if the load itself is left out: the server then answers from what it has."""
    engine = make_engine(servers[0])
    train()
    first = engine.publish()
    train(1e-4)
    engine.pool.servers[0].client.load = lambda name, *_: servers[0].adapters.update(  # type: ignore[method-assign]
        {name: servers[0].adapters[first.name]}
    )
    with pytest.raises(EngineError, match="earlier adapter"):
        engine.publish()


def test_one_stale_server_of_two_is_left_out_and_taken_back(
    make_engine: MakeEngine, servers: list[SmallServer], train: Train, caplog: pytest.LogCaptureFixture
) -> None:
    engine = make_engine()
    servers[1].fault = "stale"
    train()
    engine.publish()
    assert [server.url for server in engine.pool.up] == [servers[0].url]
    assert f"Server {servers[1].url} was given policy-000002" in caplog.text
    servers[1].fault = None
    train()
    engine.publish()
    assert [server.url for server in engine.pool.up] == [server.url for server in servers]
    assert f"Server {servers[1].url} is back" in caplog.text
