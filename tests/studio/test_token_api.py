"""Tokens over HTTP: what is asked for, and no more; explanations that add up; errors as sentences."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from ppolm.config import PPOConfig
from ppolm.studio.visitors import Keys
from ppolm.token_attribution.sa_pairs_io import from_parquet
from tests.studio.serving import Client, Served, serving
from tests.studio.stored_tables import WORDS, large_table, make_table, store


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run with two steps that share a prompt, one with a damaged step, and one without tables."""
    folder = tmp_path_factory.mktemp("runs")
    run = folder / "mine"
    store(make_table([[1, 3, 4, 0], [2, 3], [4]], [0, 0, 1], [[3, 4], [1]], WORDS, [True, False, True]), run, 1)
    store(make_table([[2, 3, 4, 5, 6, 7, 0]] * 9, [0] * 4 + [1] * 5, [[5], [3, 4]], WORDS), run, 10)
    (run / "table" / "step-000005.parquet").write_bytes(b"PAR1 half of it")
    lines = [{"kind": "eval", "step": step, "sequence": i, "prompt": "p", "response": f"r{i}", "reward": step + i}
             for step in (0, 10) for i in range(3)]  # fmt: skip
    (run / "samples.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    (folder / "bare" / "checkpoints").mkdir(parents=True)
    PPOConfig(model_name="no-model").to_yaml(folder / "bare" / "config.yaml")
    return folder


@pytest.fixture(scope="module")
def served(folder: Path) -> Iterator[Served]:
    with serving(folder) as running:
        yield running


@pytest.fixture
def client(served: Served) -> Client:
    return served.visitor()


def found(client: Client, path: str, **parameters: Any) -> Any:
    answer = client.get(f"/api/run/mine/{path}", **parameters)
    assert answer.status == 200, answer.body
    return answer.json


def test_a_step_is_described_without_its_tokens(client: Client) -> None:
    assert found(client, "tokens") == {"steps": [1, 5, 10]}
    step = found(client, "tokens/1")
    assert (step["responses"], step["tokens"], step["prompts"]) == (3, 7, 2)
    assert step["settings"]["gamma"] == 0.99
    assert step["settings"]["reward_coef"] == 0.1
    assert step["columns"]["advantage"]["diverging"]
    assert set(step["places"]["longest"]) == {"sequence", "token", "value"}
    assert "texts" not in json.dumps(step)
    assert client.get("/api/run/bare/tokens").json == {"steps": []}


def test_lists_come_in_pages_and_filtered(client: Client) -> None:
    page = found(client, "tokens/10/responses", limit=4, offset=4)
    assert (page["total"], page["offset"], [row["sequence"] for row in page["rows"]]) == (9, 4, [4, 5, 6, 7])
    assert found(client, "tokens/10/responses", limit=4, around=8)["offset"] == 8
    assert [row["sequence"] for row in found(client, "tokens/1/responses", ended="no")["rows"]] == [1]
    down = found(client, "tokens/1/responses", sort="length", order="down")["rows"]
    assert [row["length"] for row in down] == [4, 2, 1]
    assert [row["sequence"] for row in found(client, "tokens/1/responses", find="BAD", prompt=0)["rows"]] == [1]


def test_a_response_has_the_numbers_of_the_file(client: Client, folder: Path) -> None:
    stored = from_parquet(folder / "mine" / "table" / "step-000001.parquet")
    response = found(client, "tokens/1/response/1")
    assert response["texts"] == [" bad", " cats"]
    for name, values in response["columns"].items():
        assert values == pytest.approx(stored.column(name)[4:6].tolist(), rel=1e-6, abs=1e-9), name


def test_every_explanation_adds_up_to_the_stored_advantage(client: Client, folder: Path) -> None:
    stored = from_parquet(folder / "mine" / "table" / "step-000010.parquet").per_sequence("advantage")
    for sequence in range(9):
        for token in range(7):
            it = found(client, f"tokens/10/response/{sequence}/explain/{token}")
            total = sum(one["amount"] for one in it["contributions"]) + it["rest"]
            white = it["advantage_whitening"]
            assert (total - white["mean"]) / white["deviation"] == pytest.approx(
                float(stored[sequence][token]), abs=1e-5
            )
            assert abs(it["residual"]) < 1e-5
    assert it["contributions"][0]["text"] == "<|end|>"
    assert it["sentences"][0].startswith("Token 7 of 7")


def test_what_if_with_the_settings_of_the_run_changes_nothing_and_with_others_it_does(client: Client) -> None:
    own = found(client, "tokens/10/response/2/what-if")
    assert own["changes_nothing"]
    assert set(own["largest"].values()) == {0.0}
    assert own["sign_changes"] == 0
    other = found(client, "tokens/10/response/2/what-if", lam=0.2, whiten_advantages="false", kl_estimator="k3")
    assert not other["changes_nothing"]
    stored = found(client, "tokens/10/response/2")["columns"]["advantage"]
    for before, after, change in zip(
        stored, other["columns"]["advantage"], other["differences"]["advantage"], strict=True
    ):
        assert after - before == pytest.approx(change, abs=1e-5)


def test_nothing_is_written_by_looking(client: Client, folder: Path) -> None:
    def state() -> dict[str, tuple[int, int]]:
        files = [path for path in folder.rglob("*") if path.is_file()]
        return {str(path): (path.stat().st_mtime_ns, path.stat().st_size) for path in files}

    before = state()
    found(client, "tokens/10/response/2/what-if", gamma=0.5)
    found(client, "tokens/10/response/2/explain/0")
    assert state() == before


def test_the_same_prompt_is_found_in_the_other_steps(client: Client) -> None:
    steps = [{"step": 1, "prompt": 0}, {"step": 10, "prompt": 1}]
    assert found(client, "tokens/1/prompt/0")["steps"] == steps
    assert found(client, "tokens/10/prompt/1")["steps"] == steps
    assert found(client, "tokens/1/prompt/1")["steps"] == [{"step": 1, "prompt": 1}]


def test_held_out_samples_are_listed_and_followed_over_evaluations(client: Client) -> None:
    assert found(client, "held-out") == {"steps": [0, 10]}
    page = found(client, "held-out/10", limit=2)
    assert (page["total"], [row["reward"] for row in page["rows"]]) == (3, [10.0, 11.0])
    sample = found(client, "held-out/10/2")
    assert (sample["prompt"], sample["response"], sample["reward"]) == ("p", "r2", 12.0)
    assert sample["over"] == [{"step": 0, "reward": 2.0}, {"step": 10, "reward": 12.0}]


@pytest.mark.parametrize(
    ("path", "status", "words"),
    [
        ("tokens/7", 404, "no token table of step 7"),
        ("tokens/5", 400, "step-000005.parquet cannot be read"),
        ("tokens/5/responses", 400, "cannot be read"),
        ("tokens/1/response/3", 404, "3 responses"),
        ("tokens/1/response/0/explain/4", 404, "4 tokens"),
        ("tokens/1/prompt/9", 404, "no prompt 9"),
        ("tokens/x", 404, "whole number"),
        ("tokens/-1", 404, "whole number"),
        ("tokens/" + "9" * 5000, 404, "whole number"),
        ("tokens/1/response/²", 404, "whole number"),
        ("tokens/1/responses?sort=__class__", 400, "expected one of"),
        ("tokens/1/responses?offset=-1", 400, "whole number"),
        ("tokens/1/responses?limit=100000", 400, "whole number"),
        ("tokens/1/response/0/what-if?gamma=1.5", 400, "from 0 to 1"),
        ("tokens/1/response/0/what-if?lam=nan", 400, "from 0 to 1"),
        ("tokens/1/response/0/what-if?kl_estimator=k9", 400, "expected one of"),
        ("held-out/3", 404, "no held-out samples of step 3"),
        ("held-out/10/9", 404, "no sample 9"),
    ],
)
def test_what_is_not_there_is_a_sentence(client: Client, path: str, status: int, words: str) -> None:
    answer = client.get("/api/run/mine/" + quote(path, safe="/?=&-."))
    assert answer.status == status
    assert words in answer.json["error"]


@pytest.mark.parametrize("name", ["..", "..%2fmine", "%2e%2e%2f%2e%2e%2fetc", "mine%00", "nobody"])
@pytest.mark.parametrize("rest", ["tokens", "tokens/1", "tokens/1/response/0", "held-out", "held-out/0/0"])
def test_no_name_of_a_run_leads_out_of_the_folder(client: Client, name: str, rest: str) -> None:
    assert client.get(f"/api/run/{name}/{rest}").status == 404


def test_annotators_see_no_tokens(folder: Path) -> None:
    key = "ann-has-a-long-key-of-her-own"
    with serving(folder, keys=Keys(annotators={key: "ann"})) as running:
        client = running.visitor(key)
        for path in ("tokens", "tokens/1", "tokens/1/responses", "tokens/1/response/0", "held-out"):
            assert client.get(f"/api/run/mine/{path}").status == 403
        assert client.get("/run/mine/tokens").status == 403


def test_tokens_are_shown_even_if_the_settings_of_the_run_cannot_be_read(tmp_path: Path) -> None:
    store(make_table([[1, 0]], [0], [[3]], WORDS), tmp_path / "odd", 1)
    (tmp_path / "odd" / "config.yaml").write_text("gamma: [a, b\n")
    with serving(tmp_path) as running:
        client = running.visitor()
        step = client.get("/api/run/odd/tokens/1").json
        assert step["settings"] is None
        assert "config.yaml cannot be used" in step["unexplained"]
        assert client.get("/api/run/odd/tokens/1/response/0").json["texts"] == [" good", "<|end|>"]
        assert client.get("/api/run/odd/tokens/1/response/0/explain/0").status == 400


def test_of_a_step_of_100000_tokens_only_what_is_seen_is_sent(tmp_path: Path) -> None:
    store(large_table(100_000), tmp_path / "big", 1)
    with serving(tmp_path) as running:
        client = running.visitor()
        step = client.get("/api/run/big/tokens/1").json
        rows = client.get("/api/run/big/tokens/1/responses").json
        answer = client.get("/api/run/big/tokens/1/response/0")
        assert (step["tokens"], rows["total"], len(rows["rows"])) == (100_000, 1000, 50)
        assert len(answer.body) < 100_000, "one response is sent, not the step"
