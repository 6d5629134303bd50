"""Log-probabilities computed in parts, and their gradients, equal the plain ones."""

from __future__ import annotations

import pytest
import torch

from ppolm.kernels.products import TILE
from ppolm.kernels.token_logprobs import DEVICE_CHUNK, LOGIT_CHUNK, _stream, tile_shape, token_logprobs
from tests.closeness import assert_rounding


def test_chunked_logprobs_and_their_gradients_equal_the_plain_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    torch.manual_seed(0)
    weight = torch.randn(50, 8)
    actions = torch.randint(0, 50, (100,))
    answers = []
    for chunk in (2**24, 16 * 50):
        monkeypatch.setattr("ppolm.kernels.token_logprobs.LOGIT_CHUNK", chunk)
        hidden = torch.linspace(-1, 1, 800).reshape(100, 8).requires_grad_()
        logprob, entropy = token_logprobs(hidden, actions, lambda h: h @ weight.T, 0.7, 50, entropy="train")
        (logprob.sum() + entropy.square().sum()).backward()
        assert hidden.grad is not None
        answers.append((logprob.detach(), entropy.detach(), hidden.grad))
    for plain, chunked in zip(*answers, strict=True):
        torch.testing.assert_close(plain, chunked)
    full = torch.distributions.Categorical(logits=torch.linspace(-1, 1, 800).reshape(100, 8) @ weight.T / 0.7)
    assert_rounding(answers[0][0], full.log_prob(actions))
    assert_rounding(answers[0][1], full.entropy())


@pytest.mark.parametrize("tile", [4096, 7])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_logprobs_made_tile_by_tile_and_their_gradients_equal_those_of_autograd(
    tile: int, dtype: torch.dtype, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ppolm.kernels.token_logprobs.TILE", tile)
    monkeypatch.setattr("ppolm.kernels.token_logprobs.LOGIT_CHUNK", 30 * tile)
    torch.manual_seed(0)
    weight, actions, above = torch.randn(50, 8).to(dtype), torch.randint(0, 50, (100,)), torch.randn(100)
    answers = []
    for matrix in (None, weight):
        hidden = 3 * torch.linspace(-1, 1, 800).reshape(100, 8)
        hidden.requires_grad_()
        logprob, entropy = token_logprobs(hidden, actions, lambda h: h @ weight.float().T, 0.7, 50, "measure", matrix)
        assert not entropy.requires_grad
        (grad,) = torch.autograd.grad(logprob, hidden, above)
        answers.append((logprob.detach(), entropy.detach(), grad))
        with torch.no_grad():
            scored, _ = token_logprobs(hidden, actions, lambda h: h @ weight.float().T, 0.7, 50, "skip", matrix)
        if matrix is not None:
            assert torch.equal(scored, logprob), "scoring and training must not differ in a bit"
    for plain, ours in zip(*answers, strict=True):
        assert_rounding(plain, ours)  # the plain entropy is a difference of large numbers


def test_the_gradient_of_a_nearly_certain_token_survives_bfloat16() -> None:
    weight = torch.eye(8, dtype=torch.bfloat16)
    hidden = torch.zeros(1, 8)
    hidden[0, 3] = 9.0
    hidden.requires_grad_()
    logprob, _ = token_logprobs(hidden, torch.tensor([3]), lambda h: h @ weight.T, 1.0, 8, "skip", weight)
    (grad,) = torch.autograd.grad(logprob.sum(), hidden)
    probability = torch.softmax(hidden.detach().float(), -1)[0, 3]
    assert float(grad[0, 3]) == pytest.approx(1 - float(probability), rel=0.01)


def test_a_tile_is_the_whole_vocabulary_on_a_device_if_it_fits() -> None:
    states = torch.empty(400, 8, device="meta")
    assert tile_shape(states, 151_936) == (400, 151_936)
    rows, tile = tile_shape(torch.empty(5000, 8, device="meta"), 151_936)
    assert rows == 5000
    assert rows * tile <= DEVICE_CHUNK < rows * (tile + 1)
    rows, tile = tile_shape(torch.empty(10**6, 8, device="meta"), 151_936)
    assert rows * tile <= DEVICE_CHUNK
    assert tile == TILE
    assert tile_shape(torch.empty(400, 8), 151_936) == (LOGIT_CHUNK // TILE, TILE)


@pytest.mark.parametrize("size", [7, 25, 50, 1000])
def test_logprobs_do_not_depend_on_the_size_of_a_tile(size: int) -> None:
    torch.manual_seed(0)
    given = (torch.randn(20, 8), torch.randn(50, 8), torch.randint(0, 50, (20,)), 0.7, True, True)
    for ours, whole in zip(_stream(*given, size), _stream(*given, 50), strict=True):
        assert ours is not None
        assert whole is not None
        assert_rounding(ours, whole)
