"""docs/troubleshooting.md has the program's own thresholds, settings, metrics and messages, and commands that run."""

from __future__ import annotations

import ast
import dataclasses
import re
import shlex
from functools import cache
from pathlib import Path

import pytest

from ppolm.config import PPOConfig, RewardConfig, SFTConfig
from ppolm.config.setting import settings_of
from ppolm.data import held_out_split
from ppolm.evaluation import alarms
from ppolm.readiness import readiness_verdict
from ppolm.runs import run_warnings, training_run
from ppolm.token_attribution import token_attribution
from scripts import bad_settings
from tests.conftest import ROOT

PAGE = (ROOT / "docs" / "troubleshooting.md").read_text(encoding="utf-8")
MODULES = (run_warnings, alarms, readiness_verdict, held_out_split, token_attribution, training_run)
SYMPTOMS = PAGE.split("\n## ")[1:-2]
"""All but the tables of installation and messages."""
FIGURE = re.compile(r"±?(\d[\d.]*(?:e-\d+)?)\s+\(`(\w+)`\)")
QUOTED = re.compile(r'^\| "([^"]+)" \|', re.MULTILINE)


@cache
def constants() -> dict[str, float]:
    """Every threshold by its name: of a module, a limit of alarms, or the default of a setting."""
    found = {name: value for module in MODULES for name, value in vars(module).items() if name.isupper()}
    found |= {field.name: field.default for field in dataclasses.fields(alarms.Limits)}
    return found | {name: getattr(PPOConfig, name) for name in settings_of(PPOConfig)}


@cache
def texts_of_the_source() -> frozenset[str]:
    """Every text of the source, with … for what is put into it."""
    found = set()
    for path in (ROOT / "src" / "ppolm").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.JoinedStr):
                parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
                found.add("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.add(re.sub(r"%[sdg]", "…", node.value))
    return frozenset(found)


@pytest.mark.parametrize("symptom", SYMPTOMS, ids=lambda text: text.splitlines()[0])
def test_a_symptom_says_how_it_is_seen_what_causes_it_what_to_turn_and_how_to_check(symptom: str) -> None:
    for word in ("**You see it**", "**Cause", "urn**", "**Check**"):
        assert word in symptom.replace("**Causes and what to turn**", "**Causes** **Turn**")


def test_every_threshold_on_the_page_is_the_one_that_the_program_uses() -> None:
    stated = FIGURE.findall(PAGE)
    assert len(stated) > 20
    wrong = [(value, name, constants().get(name)) for value, name in stated if float(value) != constants().get(name)]
    assert not wrong


def test_every_threshold_of_the_warnings_and_alarms_is_on_the_page() -> None:
    stated = {name for _, name in FIGURE.findall(PAGE)}
    of_warnings = {name for name, value in vars(run_warnings).items() if name.isupper()}
    of_suspicion = {"suspect_kl", "repetition_rise", "ended_drop", "distinct_share", "surprise_rise"}
    missing = of_warnings | of_suspicion | {"judge_drop", "collapse_kl", "collapse_entropy"}
    missing -= stated | set(re.findall(r"`([A-Z_]+)`", PAGE))
    assert not missing


def test_every_name_with_an_underscore_is_a_setting_a_metric_or_a_threshold() -> None:
    metrics = set(re.findall(r"`([\w/]+)`", (ROOT / "docs" / "metrics.md").read_text(encoding="utf-8")))
    settings = {name for kind in (PPOConfig, SFTConfig, RewardConfig) for name in settings_of(kind)}
    named = set(re.findall(r"`(\w+_\w+)(?:: [\w.]+)?`", PAGE))
    assert len(named) > 50
    assert not named - metrics - settings - constants().keys()


def test_every_quoted_message_is_in_the_source() -> None:
    quoted = QUOTED.findall(PAGE.split("## Error messages")[1])
    assert len(quoted) > 20
    quoted += ["was started with another configuration", "resuming after step", "is being written to by"]

    def said(message: str) -> bool:
        pieces = [re.escape(piece) for piece in message.split("…")]
        return any(re.search(".*".join(pieces), text, re.DOTALL) for text in texts_of_the_source())

    assert not [message for message in quoted if not said(message)]


def test_every_table_of_the_script_is_on_the_page_with_its_commands() -> None:
    for name, table in bad_settings.TABLES.items():
        begin, end = bad_settings.markers(name)
        assert PAGE.count(begin) == PAGE.count(end) == 1, name
        shown = PAGE.split(begin)[1].split(end)[0]
        commands = "\n".join(map(bad_settings.command, table.runs.values()))
        assert f"```bash\n{commands}\n```" in shown
        rows = [line for line in shown.splitlines() if line.startswith("| ")][1:]
        assert [row.split(" | ")[0].removeprefix("| ") for row in rows] == list(table.runs)
        assert all(row.count(" | ") == len(table.columns) + 1 for row in rows)


def test_the_command_of_every_table_runs_and_fills_it(tmp_path: Path) -> None:
    """A table's own settings on a much smaller run, one row of each."""
    small = "--max-steps 1 --eval-every 1 --batch-size 8 --minibatch-size 8 --max-eval-prompts 2 --lora-r 2"
    for number, (name, table) in enumerate(bad_settings.TABLES.items()):
        label, flags = next(iter(table.runs.items()))

        def measure(line: str, number: int = number) -> tuple[bad_settings.Rows, bad_settings.Rows, str]:
            return bad_settings.measured(f"run-{number}", shlex.split(f"{line} {small}"), tmp_path)

        one = bad_settings.Table({label: flags}, table.columns)
        row = bad_settings.made_table(one, measure).splitlines()[2]
        assert row.startswith(f"| {label} | "), name
        figures = row.split(" | ")[1:-1]
        assert len(figures) == len(table.columns)
        assert all(re.fullmatch(r"-?\d+\.\d+", figure) for figure in figures), (name, figures)
