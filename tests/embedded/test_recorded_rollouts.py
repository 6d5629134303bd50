"""The local engine gives the texts that it has always given: recorded before there were other engines."""

from __future__ import annotations

import pytest

from ppolm.base_setup.model_setup import Models, setup_models
from ppolm.config import PPOConfig
from ppolm.data.load_rows import load_prompts
from ppolm.engines.build_engine import build_engine
from ppolm.rollout.generator import Generator
from ppolm.rollout.sampling import Sampling

SEED = 7
PLAIN, LIMITED = Sampling(16), Sampling(16, temperature=0.7, top_k=20, top_p=0.9)
GREEDY = Sampling(16, greedy=True)
RECORDED: list[tuple[Sampling, int, list[int]]] = [
    (GREEDY, 6, [288, 428, 460, 336, 503, 354, 15, 269, 282, 439, 510, 450, 317, 15, 0]),
    (GREEDY, 21, [288, 564, 629, 374, 414, 503, 563, 15, 269, 456, 455, 306, 604, 603, 15, 0]),
    (PLAIN, 13, [288, 372, 550, 503, 540, 15, 269, 593, 414, 503, 494, 549, 15, 0]),
    (PLAIN, 0, [288, 408, 484, 503, 535, 15, 269, 546, 326, 462, 627, 491, 15, 0]),
    (PLAIN, 2, [288, 322, 505, 538, 617, 562, 15, 269, 456, 455, 306, 604, 603, 15, 269, 316]),
    (LIMITED, 24, [288, 363, 561, 627, 575, 385, 15, 269, 456, 455, 306, 604, 603, 15, 0]),
    (LIMITED, 10, [288, 365, 595, 311, 527, 570, 15, 269, 316, 309, 455, 655, 15, 0]),
]
"""Settings, the prompt among the first forty, and its response. Those were chosen whose draws are furthest from
a boundary (a second token's logit, a step of the cumulative probability, the limits): at least 1e-3, where rounding of
float32 moves them by 1e-6. So other machines draw the same."""


@pytest.fixture(scope="module")
def models() -> Models:
    return setup_models(PPOConfig(model_name="embedded", dtype="float32", device="cpu"))


@pytest.mark.parametrize("sampling", [GREEDY, PLAIN, LIMITED], ids=["greedy", "plain", "limited"])
def test_the_same_seed_gives_the_recorded_responses(models: Models, sampling: Sampling) -> None:
    engine = build_engine(PPOConfig(model_name="embedded"), models.policy)
    prompts = load_prompts("embedded:validation")[:40]
    texts, _ = Generator(engine, models.setup, sampling, SEED).generate(prompts)
    recorded = {number: ids for settings, number, ids in RECORDED if settings is sampling}
    assert {number: texts[number].token_ids for number in recorded} == recorded
