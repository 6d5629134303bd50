"""Every setting's declaration is complete, and everything derived from it agrees with it."""

from __future__ import annotations

import dataclasses
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args, get_origin, get_type_hints

import pytest

from ppolm.cli.main import run as ppolm
from ppolm.cli.settings import parse_train
from ppolm.config import ModelSettings, PPOConfig, RewardConfig, SFTConfig
from ppolm.config.groups import GROUPS, LEADING, LEADS, Group
from ppolm.config.limits import LARGEST, Limits
from ppolm.config.setting import Setting, meanings, settings_of
from ppolm.errors import ConfigError, RunFolderError
from ppolm.storage.refuse_changes import refuse_changes
from scripts.settings_page import PAGE, page

COMMANDS: dict[str, type[ModelSettings]] = {"train": PPOConfig, "sft": SFTConfig, "reward": RewardConfig}
ALL = [(kind, field.name) for kind in COMMANDS.values() for field in dataclasses.fields(kind)]
every_setting = pytest.mark.parametrize(("kind", "name"), ALL, ids=[f"{kind.__name__}-{name}" for kind, name in ALL])


def declared(kind: type[ModelSettings], name: str) -> tuple[Setting, Any]:
    """The declaration of a setting, and its type without None and without the list around it."""
    hint = get_type_hints(kind)[name]
    if type(None) in get_args(hint):
        (hint,) = (arm for arm in get_args(hint) if arm is not type(None))
    return settings_of(kind)[name], get_args(hint)[0] if get_origin(hint) is tuple else hint


@every_setting
def test_every_setting_has_a_group_a_meaning_and_a_resume_rule(kind: type[ModelSettings], name: str) -> None:
    one, hint = declared(kind, name)
    assert one.group in GROUPS
    assert one.on_resume in ("fixed", "may change")
    assert re.fullmatch(r"\S.*[.\d]", meanings(kind)[name]), "a sentence"
    assert (hint in (int, float)) == (one.limits not in (Limits(), Limits(not_blank=True))), "numbers have a range"
    assert one.limits.hold(getattr(kind, name)), "the default lies in it"


def test_every_group_is_used_and_explained() -> None:
    assert set(GROUPS) == set(get_args(Group))
    assert set(GROUPS) == {one.group for kind in COMMANDS.values() for one in settings_of(kind).values()}


def beyond(limits: Limits) -> list[tuple[float, str]]:
    """A number on the wrong side of each bound, and what the message must say."""
    numbers = []
    if limits.at_least is not None:
        numbers.append((limits.at_least - max(1, abs(limits.at_least)), limits.words()))
    if limits.above is not None:
        numbers.append((limits.above, limits.words()))
    if limits.at_most is not None:
        words = "2^63 - 1" if limits.at_most == LARGEST else limits.words()  # the check for huge integers comes first
        numbers.append((limits.at_most * 2, words))
    if limits.below is not None:
        numbers.append((limits.below, limits.words()))
    return numbers


@every_setting
def test_a_value_outside_the_range_of_a_setting_is_refused_with_the_range(kind: type[ModelSettings], name: str) -> None:
    one, hint = declared(kind, name)
    wrong: list[tuple[Any, str]] = list(beyond(one.limits))
    if one.limits.not_blank:
        wrong.append((" ", "empty, expected a name"))
    if get_origin(hint) is Literal:
        wrong.append(("another", f"expected one of: {', '.join(map(str, get_args(hint)))}"))
    if hint is bool:
        wrong.append((2, "expected true or false"))
    for value, expected in wrong:
        with pytest.raises(ConfigError, match=rf"^{name} is .*{re.escape(expected)}"):
            kind.from_dict({name: [value] if isinstance(getattr(kind, name), tuple) else value})


@pytest.mark.parametrize(
    ("limits", "words", "inside", "outside"),
    [
        (Limits(), "", [-1e300, 0, None, "", ()], []),
        (Limits(at_least=1), "at least 1", [1, None, (1, 2), ()], [0, 0.99, (1, 0)]),
        (Limits(at_least=0), "0 or more", [0, 5], [-1e-9]),
        (Limits(above=0), "greater than 0", [1e-9], [0, -1]),
        (Limits(at_least=0, at_most=1), "between 0 and 1", [0, 1], [-0.1, 1.1]),
        (Limits(above=0, at_most=1), "greater than 0 and at most 1", [0.1, 1], [0, 1.1]),
        (Limits(at_least=0, below=1), "at least 0 and less than 1", [0, 0.9], [-0.1, 1]),
        (Limits(above=0, below=1), "between 0 and 1, both excluded", [0.1], [0, 1]),
        (Limits(at_least=-1e6, at_most=1e6), "within ±1e+06", [(-1e6, 1e6)], [(0, 2e6), -2e6]),
        (Limits(at_least=0, at_most=LARGEST), "between 0 and 2^63 - 1", [0, LARGEST], [-1, LARGEST + 1]),
        (Limits(not_blank=True), "not empty", ["a", None], ["", "  "]),
    ],
)
def test_limits_hold_what_their_words_say(limits: Limits, words: str, inside: list[Any], outside: list[Any]) -> None:
    assert limits.words() == words
    assert all(limits.hold(value) for value in inside)
    assert not any(limits.hold(value) for value in outside)


@pytest.mark.parametrize("command", COMMANDS)
def test_help_shows_every_flag_under_the_heading_of_its_group(
    command: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "100")  # one column of boxes
    with pytest.raises(SystemExit):
        ppolm([command, "--help"])
    _, *parts = re.split(r"^(?:╭─)? ((?:[\w ]+ )?options)[ ─╮]*$", capsys.readouterr().out, flags=re.MULTILINE)
    boxes = list(zip(parts[::2], parts[1::2], strict=True))  # drawn with borders if the output is UTF-8
    flags = {title: set(re.findall(r"^[│ ] (?:-h, )?--([a-z][a-z-]*)", box, re.MULTILINE)) for title, box in boxes}
    own = {"help", "config", "resume"} | ({"estimate", "preset"} if command == "train" else set())
    first = LEADING[COMMANDS[command].__name__]
    expected = {"options": own, "first options": {name.replace("_", "-") for name in first}}
    for name, one in settings_of(COMMANDS[command]).items():
        if name not in first:
            expected.setdefault(f"{one.group} options", set()).add(name.replace("_", "-"))
    assert flags == expected
    order = ["options", "first options", *(f"{group} options" for group in GROUPS)]
    assert [title for title, _ in boxes] == [title for title in order if title in expected]
    about = {f"{group} options": text for group, text in GROUPS.items()} | {"first options": LEADS}
    for title, box in boxes[1:]:
        assert about[title] in " ".join(box.replace("│", " ").split())


def test_ten_settings_of_ppo_lead_and_all_that_lead_exist() -> None:
    assert len(LEADING["PPOConfig"]) == 10
    for kind in COMMANDS.values():
        assert set(LEADING[kind.__name__]) <= settings_of(kind).keys()


def test_flags_of_all_groups_make_one_flat_configuration() -> None:
    assert parse_train([]).settings == PPOConfig()
    flags = ["--gamma", "0.5", "--kl-coef", "0.2", "--log-to", "--without", "slot_sampler", "--lora_r", "4"]
    chosen = PPOConfig(gamma=0.5, kl_coef=0.2, log_to=(), without=("slot_sampler",), lora_r=4)
    assert parse_train(flags).settings == chosen


@every_setting
def test_a_resumed_training_refuses_changes_of_all_that_is_fixed_and_of_nothing_else(
    kind: type[ModelSettings], name: str
) -> None:
    config = kind()
    saved = config.to_dict() | {name: "what it was before"}
    if settings_of(kind)[name].on_resume == "may change":
        refuse_changes(saved, config, Path("run"))
    else:
        with pytest.raises(RunFolderError, match=f"{name} 'what it was before' -> "):
            refuse_changes(saved, config, Path("run"))


@dataclass(frozen=True)
class Extended(PPOConfig):
    """A user's configuration, with a field that is not a ``setting``."""

    note: str = "mine"


def test_a_plain_field_in_a_subclass_is_taken_as_it_is_and_fixed_on_resume() -> None:
    assert Extended.from_dict({"note": "other", "gamma": 0.5}).to_dict()["note"] == "other"
    with pytest.raises(RunFolderError, match="note 'mine' -> 'other'"):
        refuse_changes(Extended().to_dict(), Extended(note="other"), Path("run"))


def test_the_page_of_settings_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "write it again: python -m scripts.settings_page"


def test_the_page_names_every_setting_once_for_each_training_that_has_it() -> None:
    rows = re.findall(r"^\| `(\w+)` \|", page(), re.MULTILINE)
    assert {name for _, name in ALL} == set(rows)
    for name in settings_of(ModelSettings):
        assert rows.count(name) == 1, "what all trainings share is said once"
