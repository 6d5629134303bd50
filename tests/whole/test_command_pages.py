"""docs/commands has a page for every command, whose flags are those of now and whose commands print what it shows."""

from __future__ import annotations

import os
import re
import signal
import time
from collections import Counter
from pathlib import Path

import pytest

from ppolm.cli.main import COMMANDS, run
from scripts import command_pages
from scripts.command_outputs import BLOCK, SERVES, Block, Sandbox, blocks, shortened, typed_into, with_outputs, words_of
from tests.conftest import ROOT
from tests.warm import QUIET, new_file, start_warm

SECTIONS = ("Use", "What it writes", "Exit status", "Flags", "See also")
WITHOUT_A_MODEL = ("init", "data", "runs", "tokens", "explain", "report", "examples")
"""Commands whose output is the same on every machine."""
SMALLER = {"demo": {"4": "1", "16": "2"}, "overopt": {"2": "1"}}
"""Sizes of a run that the test makes smaller, by command: one shows the same lines."""
CHANGES = re.compile(r'\d+(\.\d+)? (s|min|h|d|MiB)\b|(?<="age": )[\d.]+')
"""Ages and sizes."""


def text_of(command: str) -> str:
    return command_pages.page_of(command).read_text(encoding="utf-8")


def run_warm(words: list[str], folder: Path, typed: str) -> str:
    """A command in a warm process; both streams in one file, as a terminal shows them."""
    words = [SMALLER.get(words[0], {}).get(word, word) for word in words]
    printed = new_file()
    environment = {**QUIET, "COLUMNS": "100", "PATH": "", "HF_HUB_OFFLINE": "1", "HOME": str(folder)}
    with start_warm(
        "ppolm", *words, cwd=folder, environment=environment, out=printed, err=printed, typed=typed
    ) as program:
        if words[0] in SERVES:
            until = time.monotonic() + 120
            while "Ctrl-C" not in program.out and program.code is None:
                assert time.monotonic() < until, program.out
                time.sleep(0.05)
            os.kill(program.pid, signal.SIGINT)
        code = program.end(300)
        assert code in ((0, 130) if words[0] in SERVES else (0,)), program.out
        return program.out


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    """A folder as the pages assume it."""
    made = Sandbox(tmp_path, run_warm)
    made.fill()
    return made


def test_every_command_has_a_page_and_every_page_a_command() -> None:
    assert sorted(path.stem for path in command_pages.FOLDER.glob("*.md")) == sorted(COMMANDS)


def test_no_page_lacks_its_hand_written_part() -> None:
    missing = command_pages.unwritten()
    assert not missing, f"write what docs/commands asks for, for: {', '.join(missing)}"


@pytest.mark.parametrize("command", COMMANDS)
def test_the_flags_of_a_page_are_those_of_the_command(command: str) -> None:
    text = text_of(command)
    assert text == command_pages.with_flags(text, command), "run python -m scripts.command_pages"
    assert re.findall(r"^## (.*)$", text, re.MULTILINE) == list(SECTIONS)
    assert text.startswith(f"# ppolm {command}\n\n")


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"train", "sft", "reward", "plan", "feedback"}))
def test_the_page_has_every_flag_that_help_has(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        run([command, *(["check"] if command == "data" else []), "--help"])
    flags = set(re.findall(r"(?<![\w-])--[a-z][\w-]*", capsys.readouterr().out)) - {"--help"}
    named = set(re.findall(r"--[a-z][\w-]*", text_of(command).split("## Flags")[1]))
    described = {flag for flag in flags if re.search(rf"{flag}\b", text_of(command))}
    assert named <= flags | described
    assert {flag for flag in flags if not flag.startswith("--no-")} <= named | {"--model"}


@pytest.mark.parametrize("command", COMMANDS)
def test_the_commands_of_a_page_print_what_it_shows(command: str, sandbox: Sandbox) -> None:
    shown = blocks(text_of(command))
    assert shown
    assert any(words_of(line)[1] == command for block in shown for line in block.commands)
    for block in shown:
        assert block.shown, f"docs/commands/{command}.md: run python -m scripts.command_pages --outputs {command}"
        printed = comparable(sandbox.printed(block), command)
        expected = comparable(block.shown, command)
        if "..." in block.shown.splitlines() or command in SERVES:  # what Ctrl-C finds it doing, it may say
            expected.subtract(comparable("...\n", command))
            assert not expected - printed
        else:
            assert expected == printed


def comparable(text: str, command: str) -> Counter[str]:
    """The lines that must be the same everywhere: all of it but ages and sizes, or of what a model computes how lines
    begin. In any order: the two streams of a process that writes to a file are not in step."""
    if command in WITHOUT_A_MODEL:
        return Counter(CHANGES.sub("#", re.sub(r" +", " ", text)).splitlines())
    return Counter(re.sub(r"\d[\d.,]*", "#", line)[:12] for line in text.splitlines())


def test_an_output_is_shortened_in_its_middle_and_put_below_its_command(tmp_path: Path) -> None:
    page = "a\n```bash\nppolm x\n```\n\n<!-- printed: 1 ... 2 -->\n```text\nold\n```\nb\n```bash\nppolm y\n```\n"
    told: list[list[str]] = []

    def run_it(words: list[str], folder: Path, _: str) -> str:
        told.append(words)
        return f"1 {folder}/x\n2\n3\n4\n5\n"

    new = with_outputs(page, Sandbox(tmp_path, run_it))
    assert new == page.replace("old\n", "1 /home/ann/x\n...\n4\n5\n")
    assert told == [["x"], ["y"]]
    assert blocks(new)[1] == Block(("ppolm y",), None, None, None)
    assert shortened("1\n2\n3\n", 1, 1) == "1\n2\n3\n", "a line of dots would replace one line"


def test_words_are_those_that_bash_takes() -> None:
    assert words_of(r"ppolm generate --prompt $'a\nb \'c\'' 'd e'") == [
        *("ppolm", "generate", "--prompt"),
        "a\nb 'c'",
        "d e",
    ]
    assert words_of(r"printf 'a\nb\n' | ppolm chat runs/x --seed 1") == ["ppolm", "chat", "runs/x", "--seed", "1"]


def test_what_is_piped_into_a_command_is_typed_into_it() -> None:
    assert typed_into(r"printf '/seed 1\na\n' | ppolm chat runs/x") == "/seed 1\na\n"
    assert typed_into("ppolm chat runs/x") == ""


def test_a_command_without_a_page_gets_the_start_of_one_and_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(command_pages, "FOLDER", tmp_path)
    monkeypatch.setattr(command_pages, "COMMANDS", {"runs": "list runs", "tokens": "tokens of a step"})
    (tmp_path / "tokens.md").write_text(text_of_repository("tokens"), encoding="utf-8")
    assert command_pages.main([]) == 1
    said = capsys.readouterr().out
    assert "ppolm runs lacks its hand-written part" in said
    assert "tokens" not in said
    assert "| `--sort` |" in (tmp_path / "runs.md").read_text(encoding="utf-8")
    assert (tmp_path / "tokens.md").read_text(encoding="utf-8") == text_of_repository("tokens")


def text_of_repository(command: str) -> str:
    return (ROOT / "docs" / "commands" / f"{command}.md").read_text(encoding="utf-8")


def test_no_page_names_a_place_of_this_machine_or_a_key() -> None:
    for command in COMMANDS:
        text = text_of(command)
        assert str(ROOT) not in text
        assert not re.search(r"/tmp/|key=[\w-]{8}", text)
        assert len(BLOCK.findall(text)) == text.count("```bash")


def test_the_overview_links_to_every_page() -> None:
    overview = (ROOT / "docs" / "commands.md").read_text(encoding="utf-8")
    assert not [name for name in COMMANDS if f"(commands/{name}.md)" not in overview]
