"""docs/callbacks.md: every block of code runs, and does what the page says."""

from __future__ import annotations

import http.server
import json
import re
import threading
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from ppolm import Callback
from ppolm.config import PPOConfig
from ppolm.hooks.check_callbacks import METHODS
from ppolm.hooks.loggers import SINKS
from ppolm.hooks.run_control import adjustable
from ppolm.ppo_trainer import PPOTrainer
from ppolm.storage.metrics_log import read_metrics
from tests.conftest import PROMPTS, ROOT, spread

PAGE = (ROOT / "docs" / "callbacks.md").read_text(encoding="utf-8")
STOP, LOWER, POST = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)


def test_the_page_names_all_methods_tools_and_settings(make_config: Callable[..., PPOConfig]) -> None:
    for method in METHODS:
        assert f"`{method}(" in PAGE
    for tool in SINKS:
        assert f"| {tool} |" in PAGE
    for name in adjustable(PPOTrainer(make_config(), reward=spread)):
        assert f"`{name}`" in PAGE


def test_the_example_that_stops_runs_as_printed_and_stops_above_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, make_config: Callable[..., PPOConfig]
) -> None:
    monkeypatch.chdir(tmp_path)
    page: dict[str, Any] = {"prompts": PROMPTS}
    exec(STOP, page)
    assert page["results"].stopped == "finished"
    config = make_config(max_steps=3, eval_every=0)
    results = PPOTrainer(config, reward=spread).train(PROMPTS, callbacks=[page["StopAtKL"](-1e9)])
    assert (results.steps, results.stopped) == (1, "stopped")
    assert re.fullmatch(r"StopAtKL: KL .* is above -1000000000\.0", results.why)


def test_the_example_that_lowers_kl_coef_does_so_when_the_reward_no_longer_rises(
    make_config: Callable[..., PPOConfig],
) -> None:
    def falling(prompts: list[str], responses: list[Any]) -> list[float]:
        return [1.0] * len(responses)

    page: dict[str, Any] = {"Callback": Callback}
    exec(LOWER, page)
    config = make_config(num_epochs=3, max_steps=5, eval_every=1, eval_fraction=0.4, batch_size=2)
    run = PPOTrainer(config, reward=falling).train(PROMPTS, callbacks=[page["LowerTheLeash"]()]).run_dir
    assert [row["kl_coef"] for row in read_metrics(run)] == [0.1, 0.05, 0.025, 0.0125, 0.0125]


def test_the_example_that_posts_sends_a_line_when_the_run_ends(make_config: Callable[..., PPOConfig]) -> None:
    posted: list[str] = []

    class Chat(http.server.BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            posted.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: Any) -> None: ...

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Chat)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page: dict[str, Any] = {"Callback": Callback}
    exec(POST, page)
    post = page["Post"](f"http://127.0.0.1:{server.server_address[1]}")
    PPOTrainer(make_config(max_steps=1, eval_every=0), reward=spread).train(PROMPTS, callbacks=[post])
    post.on_evaluation(SimpleNamespace(status="collapsed", step=3), SimpleNamespace(folder=Path("runs/mine")))
    server.shutdown()
    server.server_close()
    assert posted == ["run: finished after 1 steps, not evaluated", "mine: collapsed at step 3"]
