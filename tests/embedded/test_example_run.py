"""The run that ppolm carries for a first look: real, small, and with all that a page shows of it."""

from __future__ import annotations

import json
import re
from pathlib import Path

from ppolm.config.yaml_io import read_yaml
from ppolm.embedded import EXAMPLE, EXAMPLE_COMPARISONS, example_run_path
from ppolm.runs.run_overview import is_run, overview
from ppolm.storage.atomic import verify_folder
from ppolm.storage.metrics_log import read_metrics
from ppolm.storage.prompt_record import read_held_out
from ppolm.token_attribution.sa_pairs_io import from_parquet
from scripts.build_example_run import COMPARISONS, LARGEST, comparisons, example_config

RUN = example_run_path()


def test_it_is_a_finished_run_that_learned() -> None:
    assert is_run(RUN)
    found = overview(RUN)
    assert (found.state, found.verdict, found.step, found.total_steps) == ("finished", "improved", 30, 30)
    assert len(found.sparkline) == 30
    assert found.best_step in {row["step"] for row in read_metrics(RUN, "eval")}


def test_it_is_small() -> None:
    assert sum(file.stat().st_size for file in EXAMPLE.rglob("*") if file.is_file()) < LARGEST


def test_it_says_nothing_of_the_machine_that_made_it() -> None:
    texts = [file for file in EXAMPLE.rglob("*") if file.suffix in (".json", ".yaml", ".md")]
    assert len(texts) > 5
    for file in texts:
        assert not re.search(r"[\s\"'](/[a-z]+){2}", file.read_text(encoding="utf-8")), file


def test_its_settings_are_those_that_its_script_has_now(tmp_path: Path) -> None:
    example_config(tmp_path).to_yaml(tmp_path / "config.yaml")
    made = read_yaml(tmp_path / "config.yaml")
    assert read_yaml(RUN / "config.yaml") == {**made, "output_dir": "runs"}


def test_its_tables_are_whole_and_the_same_prompts_come_again() -> None:
    tables = {file.stem: from_parquet(file) for file in sorted((RUN / "table").glob("*.parquet"))}
    assert list(tables) == ["step-000001", "step-000010", "step-000020", "step-000030"]
    assert all({"advantage", "kl", "value", "td_error"} <= table.columns.keys() for table in tables.values())
    assert all(table.num_sequences == 32 for table in tables.values())
    seen = [{tuple(ids) for ids in table.prompts} for table in tables.values()]
    assert any(one & other for one in seen for other in seen if one is not other)


def test_its_best_policy_is_whole() -> None:
    verify_folder(RUN / "best")
    assert len(read_held_out(RUN)) == 32


def test_its_comparisons_are_of_policy_and_reference() -> None:
    rows = [json.loads(line) for line in EXAMPLE_COMPARISONS.read_text(encoding="utf-8").splitlines()]
    best = json.loads((RUN / "best" / "best.json").read_text())["step"]
    assert rows == comparisons(RUN, best)
    assert len(rows) == COMPARISONS
    assert all(row["first"] != row["second"] for row in rows)
    assert (rows[0]["first_policy"], rows[0]["second_policy"]) == ("reference", "best")
