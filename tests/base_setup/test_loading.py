"""A model is read from its files to its device one weight at a time: the host never holds all of it."""

from __future__ import annotations

import json

import pytest

from tests.warm import run_warm


@pytest.mark.parametrize("device", ["cuda:0", "mps:0"])
def test_weights_go_straight_to_the_device(device: str) -> None:
    found = json.loads(run_warm("tests.loading_program", device).splitlines()[-1])
    assert found["devices"] == [device]
    assert found["tied"]
    assert found["ours"] <= 2 * found["largest"] < found["all"]
    assert found["moved"] >= 0.9 * found["all"], "so that the measurement would have shown a copy on the host"
