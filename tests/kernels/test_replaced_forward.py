"""Only one module replaces ``forward`` on an instance, and removes it again whatever happens in between."""

from __future__ import annotations

import ast
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import ppolm
from ppolm.base_setup import BaseModelSetup
from ppolm.base_setup.load_model import find_blocks
from ppolm.base_setup.model_setup import setup_models
from ppolm.batches.sequences import Microbatch, TokenSequences
from ppolm.config import SFTConfig
from ppolm.kernels import replaced_forward
from ppolm.kernels.fused_block import FusedBlock, last_block_at

SOURCE = Path(ppolm.__file__).parent


class InterruptedPassError(Exception):
    """Raised by a test in the middle of a pass."""


def replaces_forward(node: ast.AST) -> bool:
    """Assigning or deleting ``x.forward``, or naming it as a string, as setattr and vars(x)[...] would."""
    if isinstance(node, ast.Attribute):
        return node.attr == "forward" and not isinstance(node.ctx, ast.Load)
    return isinstance(node, ast.Constant) and node.value == "forward"


def test_no_other_file_replaces_a_forward() -> None:
    found = {
        str(path.relative_to(SOURCE))
        for path in SOURCE.rglob("*.py")
        if any(map(replaces_forward, ast.walk(ast.parse(path.read_text()))))
    }
    assert found == {"kernels/replaced_forward.py"}


@pytest.mark.parametrize(
    "code", ["x.forward = f", "del x.forward", "x.forward: F = f", "setattr(x, 'forward', f)", "vars(x)['forward'] = f"]
)
def test_the_search_finds_every_way_to_do_it(code: str) -> None:
    assert any(map(replaces_forward, ast.walk(ast.parse(code))))
    assert not any(map(replaces_forward, ast.walk(ast.parse("type(x).forward(x, y)"))))


def test_a_stand_in_is_found_and_undone() -> None:
    layer, x = nn.Linear(3, 3), torch.ones(1, 3)
    own = layer(x)
    assert replaced_forward.find(layer) is None
    replaced_forward.install(layer, torch.neg)
    assert replaced_forward.find(layer) is torch.neg
    assert torch.equal(layer(x), -x)
    replaced_forward.undo([layer, layer])
    assert torch.equal(layer(x), own)


def test_a_temporary_one_ends_with_its_block_and_gives_way_to_the_one_before() -> None:
    plain, replaced, x = nn.Linear(3, 3), nn.Linear(3, 3), torch.ones(1, 3)
    replaced_forward.install(replaced, torch.neg)

    def interrupted() -> None:
        with replaced_forward.standing_in([plain, replaced], replaced_forward.pass_on):
            with replaced_forward.standing_in([plain], torch.exp):
                assert torch.equal(plain(x), x.exp())
            assert plain(x) is x
            assert replaced(x) is x
            raise InterruptedPassError

    with pytest.raises(InterruptedPassError):
        interrupted()
    assert replaced_forward.find(plain) is None
    assert replaced_forward.find(replaced) is torch.neg


@pytest.fixture
def setup(model_folder: Path) -> BaseModelSetup:
    return BaseModelSetup(SFTConfig(model_name=str(model_folder), device="cpu"))


def one_batch(setup: BaseModelSetup) -> Microbatch:
    sequences = TokenSequences([torch.arange(3, 9), torch.arange(5, 8)], [torch.arange(9, 12), torch.arange(4, 6)])
    (batch,) = sequences.microbatches(1000, setup.tokenizer.pad_id, setup.device)
    return batch


def interrupt(module: nn.Module) -> Any:
    def hook(*_: Any) -> None:
        raise InterruptedPassError

    return module.register_forward_hook(hook)


@torch.no_grad()
def test_an_error_in_the_last_block_leaves_no_positions_behind(setup: BaseModelSetup) -> None:
    batch = one_batch(setup)
    ids = batch.input_ids
    whole, some = setup.hidden_states(ids), setup.wanted_states(ids, batch)
    assert setup.last_block is not None
    hook = interrupt(setup.last_block)
    with pytest.raises(InterruptedPassError):
        setup.wanted_states(ids, batch)
    hook.remove()
    assert replaced_forward.find(setup.last_block).positions is None
    assert torch.equal(setup.hidden_states(ids), whole)
    assert torch.equal(setup.wanted_states(ids, batch), some)


@torch.no_grad()
def test_positions_inside_positions_give_way_to_the_outer_ones(setup: BaseModelSetup) -> None:
    ids, first, last = torch.arange(3, 9)[None], torch.tensor([[0]]), torch.tensor([[2, 5]])
    with last_block_at(setup.last_block, last):
        outer = setup.hidden_states(ids)
        with last_block_at(setup.last_block, first):
            assert setup.hidden_states(ids).shape[1] == 1
        assert torch.equal(setup.hidden_states(ids), outer)
    assert setup.hidden_states(ids).shape[1] == ids.shape[1]


def test_a_block_of_the_library_is_not_asked_for_some_positions(setup: BaseModelSetup) -> None:
    with pytest.raises(AssertionError, match="fused block"):
        last_block_at(nn.Linear(3, 3), torch.tensor([[0]]))
    with last_block_at(None, torch.tensor([[0]])):
        assert setup.hidden_states(torch.arange(3, 9)[None]).shape[1] == 6


@torch.no_grad()
def test_an_error_above_the_trunk_leaves_no_block_skipped(make_config: Any) -> None:
    models = setup_models(make_config(trainable_layers=1))
    trunk, batch = models.adapters.trunk, one_batch(models.setup)
    assert trunk is not None
    blocks = find_blocks(models.setup.causal_lm)[1]
    before, forwards = trunk.finish(batch), [replaced_forward.find(block) for block in blocks]
    assert all(isinstance(forward, FusedBlock) for forward in forwards)
    for block in blocks:
        hook = interrupt(block)
        trunk.forget()
        with pytest.raises(InterruptedPassError):
            trunk.finish(batch)
        hook.remove()
        assert [replaced_forward.find(block) for block in blocks] == forwards
    assert torch.equal(trunk.finish(batch), before)
