"""Every code block and command of every page is run, or is in one list with the reason why it cannot be.

``tests/doc_blocks.py`` has the lists. Commands that are not run are parsed: a flag that is gone fails here.
"""

from __future__ import annotations

import csv
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import tyro
import yaml

from ppolm.cli.main import COMMANDS
from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig, RewardConfig, SFTConfig
from ppolm.errors import ConfigError
from tests import doc_folder
from tests.conftest import ROOT
from tests.doc_blocks import (
    LANGUAGES,
    NOT_RUN,
    PAGES,
    PROGRAMS,
    RUN_ELSEWHERE,
    Block,
    arguments_of_ppolm,
    blocks,
    without_run,
)

WITH_BLOCKS = [page for page in PAGES if blocks(page)]
WITH_COMMANDS = [page for page in WITH_BLOCKS if any(list(block.commands()) for block in blocks(page))]
WITH_PYTHON = [page for page in WITH_BLOCKS if any(block.language == "python" for block in blocks(page))]
DISGUISED = re.compile(r"(ppolm|pip|py|uv|python3?|make|torchrun|accelerate) [\w./-]+( |$)", re.MULTILINE)


class FlagsReadError(Exception):
    """A command has read its flags."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with everything that pages take for granted."""
    place = tmp_path_factory.mktemp("pages")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(place)
        doc_folder.furnish(place, ppolm)
    return place


@pytest.fixture(scope="module")
def done() -> set[tuple[str, ...]]:
    """Commands that have run: several pages show the same ones."""
    return set()


@pytest.fixture
def only_parsed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Commands end when their flags are read."""
    read = tyro.cli

    def read_and_end(*positional: Any, **named: Any) -> Any:
        found = read(*positional, **named)
        if "prog" in named:
            raise FlagsReadError
        return found

    monkeypatch.setattr(tyro, "cli", read_and_end)


@pytest.mark.parametrize("page", WITH_BLOCKS)
def test_every_block_has_a_language_that_is_known_here(page: str) -> None:
    unknown = [f"line {block.line}: {block.language}" for block in blocks(page) if block.language not in LANGUAGES]
    assert not unknown, f"{page}: a language that no test runs. Teach it to tests/whole/test_doc_blocks.py."


@pytest.mark.parametrize("page", WITH_BLOCKS)
def test_no_command_is_disguised_as_output(page: str) -> None:
    """In a block without `bash`, a command needs its prompt `$ `, or nobody runs it."""
    for block in blocks(page):
        if block.language in ("", "text", "console") and without_run(page, block.text) is None:
            found = [line for line in block.text.splitlines() if DISGUISED.match(line)]
            assert not found, f"{page}, line {block.line}: write `$ ` before {found[0]!r}"


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_commands_of_a_page_run(
    page: str,
    folder: Path,
    done: set[tuple[str, ...]],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(folder)
    doc_folder.tidy(folder)
    for block in blocks(page):
        if (page, block.language) in RUN_ELSEWHERE:
            continue
        for words in block.commands():
            arguments = arguments_of_ppolm(words)
            if arguments is None or words[0] != "ppolm" or without_run(page, " ".join(words)) is not None:
                continue
            if tuple(words) not in done:
                status = run_small(arguments)
                said = capsys.readouterr()
                assert status == 0, f"{page}, line {block.line}: {' '.join(words)}\n{said.err[-2000:]}"
                done.add(tuple(words))


def run_small(arguments: list[str]) -> int:
    """The status of a command at the size of a test."""
    try:
        return ppolm(doc_folder.small(arguments))
    except SystemExit as end:  # --help, and flags that do not exist
        return int(end.code or 0)


@pytest.mark.parametrize("page", WITH_COMMANDS)
def test_commands_that_are_not_run_have_a_reason_and_flags_that_exist(
    page: str, folder: Path, monkeypatch: pytest.MonkeyPatch, only_parsed: None
) -> None:
    monkeypatch.chdir(folder)
    doc_folder.tidy(folder)
    for block in blocks(page):
        for words in block.commands():
            where, arguments = f"{page}, line {block.line}: {' '.join(words)}", arguments_of_ppolm(words)
            if arguments is None:
                check_other_program(words, where)
            elif words[0] != "ppolm" or without_run(page, " ".join(words)) is not None:
                try:
                    with pytest.raises(FlagsReadError):
                        ppolm([word for word in arguments if word != "..."])
                except (SystemExit, ConfigError) as error:
                    pytest.fail(f"{where}: {error}")


def check_other_program(words: list[str], where: str) -> None:
    """A program of the list; a target, module or script of ours that exists."""
    program, rest = words[0], words[1:]
    assert program in PROGRAMS, f"{where}: a program that tests/doc_blocks.py does not know"
    if program == "make":
        targets = re.findall(r"^([\w-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
        assert rest[0] in targets, where
    elif program == "python" and rest[0] == "-m" and rest[1].partition(".")[0] in ("attack", "bench", "scripts"):
        assert any((ROOT / f"{rest[1].replace('.', '/')}{end}").exists() for end in (".py", "/__main__.py")), where
    elif program == "python" and not rest[0].startswith("-"):
        assert (ROOT / rest[0]).is_file(), where


@pytest.mark.parametrize("page", WITH_PYTHON)
def test_python_of_a_page_runs(page: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All its blocks one after the other, as a reader would paste them."""
    if (page, "python") in RUN_ELSEWHERE:
        pytest.skip(f"run by {RUN_ELSEWHERE[page, 'python']}")
    monkeypatch.chdir(folder)
    doc_folder.tidy(folder)
    names: dict[str, Any] = {"__name__": "__main__"}
    for block in blocks(page):
        if block.language == "python" and without_run(page, block.text) is None:
            exec(compile("\n" * block.line + block.text, page, "exec"), names)


@pytest.mark.parametrize("page", WITH_BLOCKS)
def test_data_and_settings_of_a_page_can_be_read(page: str) -> None:
    for block in blocks(page):
        if (page, block.language) not in RUN_ELSEWHERE and without_run(page, block.text) is None:
            read(block)


def read(block: Block) -> None:
    """Fails on a block of data or settings that cannot be read."""
    if block.language == "json":
        assert json.loads(block.text) is not None
    elif block.language == "jsonl":
        assert all(isinstance(json.loads(line), dict) for line in block.text.splitlines())
    elif block.language == "csv":
        assert len({len(row) for row in csv.reader(block.text.splitlines())}) == 1
    elif block.language == "yaml":
        read_settings(block)
    else:
        assert block.language != "sql", f"{block.page}, line {block.line}: a query that no test runs"


def read_settings(block: Block) -> None:
    """Settings of one of the trainings."""
    settings, problems = yaml.safe_load(block.text), []
    for kind in (PPOConfig, SFTConfig, RewardConfig):
        try:
            kind.from_dict(settings)
        except ConfigError as error:
            problems.append(str(error))
        else:
            return
    pytest.fail(f"{block.page}, line {block.line}: no training takes these settings: {problems[0]}")


def test_what_the_lists_name_is_there() -> None:
    """A reason for something that no page contains any more would hide the next one."""
    code = {page: [" ".join(words) for one in blocks(page) for words in _commands(one)] for page in PAGES}
    for page, begins in NOT_RUN:
        other = [block.text for block in blocks(page)]
        assert any(one.startswith(begins) for one in (*code[page], *other)), (page, begins)
    for (page, language), test in RUN_ELSEWHERE.items():
        assert any(block.language == language for block in blocks(page)), (page, language)
        reads = (ROOT / test).read_text(encoding="utf-8")
        assert _as_tests_name_it(page) in reads or "scaling_page" in reads, f"{test} does not read {page}"


def _as_tests_name_it(page: str) -> str:
    """How a test that reads a page names it: some read all pages of a kind."""
    if page.startswith("docs/api-"):
        return "api_page.pages()"
    return "command_pages.page_of" if page.startswith("docs/commands/") else Path(page).name


def _commands(block: Block) -> Iterator[list[str]]:
    for words in block.commands():
        arguments = arguments_of_ppolm(words)
        yield words if arguments is None else ["ppolm", *arguments]


@pytest.mark.parametrize("page", PAGES)
def test_commands_within_sentences_exist(page: str) -> None:
    text = (ROOT / page).read_text(encoding="utf-8")
    named = set(re.findall(r"`ppolm ([a-z][\w-]*)", text))
    assert named <= set(COMMANDS) | {"overopt"}, named - set(COMMANDS)
