"""``ppolm chat``: what is said, in which form, and what happens at the edges."""

from __future__ import annotations

import io
import json
import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from ppolm.base_setup import AdapterSet, BaseModelSetup
from ppolm.chat.conversation import Conversation
from ppolm.chat.partners import draws, find_partners
from ppolm.chat.talk import Talk, Told
from ppolm.cli.main import run as ppolm
from ppolm.config import PPOConfig
from ppolm.embedded import EXAMPLE_RUN
from ppolm.errors import DataError, EngineError
from ppolm.models import SFTModel
from ppolm.rollout.sampling import Sampling
from tests.tiny_models import make_model_folder

Say = Callable[..., str]


@pytest.fixture
def say(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Say:
    """What a chat prints, given its lines from a pipe."""

    def talk(run: Any, *lines: str, flags: tuple[str, ...] = (), status: int = 0) -> str:
        monkeypatch.setattr("sys.stdin", io.StringIO("".join(f"{line}\n" for line in lines)))
        capsys.readouterr()
        assert ppolm(["chat", str(run), *flags]) == status
        said = capsys.readouterr()
        return said.out + said.err

    return talk


def of(name: str, printed: str) -> list[str]:
    """The answers of one partner."""
    return re.findall(rf"^{name} +> (.*)$", printed, re.MULTILINE)


def test_policy_and_reference_of_the_example_run_answer_a_held_out_prompt(say: Say) -> None:
    printed = say(EXAMPLE_RUN, "/temperature 0", "/example 3")
    assert "by continuing plain text" in printed
    assert of("policy", printed) == [
        "My roommate took credit for my report. I offered to pay but we had a fight. Is counseling worth it?"
    ]
    assert of("reference", printed) == ["My roommate took credit for my report. Anyway it is a strange story."]


def test_the_same_seed_gives_the_same_answers_and_another_seed_others(say: Say) -> None:
    first, again = (say(EXAMPLE_RUN, "/example", "/example") for _ in range(2))
    assert first == again
    other = say(EXAMPLE_RUN, "/example", "/example", flags=("--seed", "5"))
    assert of("reference", other) != of("reference", first)
    after_reset = say(EXAMPLE_RUN, "/example 1", "/reset", "/example 1")
    assert of("policy", after_reset)[0] == of("policy", after_reset)[1]


def test_commands_are_obeyed_and_wrong_ones_are_answered_in_a_sentence(say: Say) -> None:
    printed = say(
        EXAMPLE_RUN, "/help", "/reference off", "/tokens 2", "My roommate", "/more  again", "/quit", "unheard"
    )
    assert "/temperature 0.7" in printed
    assert len(of("policy", printed)) == 2
    assert all("(cut off after 2 tokens)" in answer or len(answer.split()) <= 2 for answer in of("policy", printed))
    assert not of("reference", printed)
    assert "unheard" not in printed
    wrong = say(
        EXAMPLE_RUN, "/bogus", "/temperature hot", "/tokens 0", "/system x", "/example 99", "/more", "/reference maybe"
    )
    assert len(wrong.splitlines()) == 2 + 2 * 7  # a line each, and no traceback
    assert "There is no command /bogus." in wrong
    assert "/example needs a whole number from 1 to 32" in wrong


def test_a_line_that_ends_in_a_backslash_goes_on_and_two_slashes_begin_a_message(say: Say) -> None:
    printed = say(EXAMPLE_RUN, "/reference off", "one\\", "two", "//three")
    assert "you > one\\\n    > two\n" in printed
    assert len(of("policy", printed)) == 2


def test_a_bare_model_with_a_template_chats_alone_and_remembers(model_folder: Path, say: Say) -> None:
    printed = say(model_folder, "Hello", "/reference on", flags=("--max-new-tokens", "4"))
    assert "The model answers in a chat" in printed
    assert len(of("model", printed)) == 1
    assert "There is no reference" in printed
    assert "continuing plain text" in say(model_folder, flags=("--chat", "no"))


@pytest.mark.parametrize(
    ("name", "what"), [("nowhere/at/all", "does not exist"), ("folder", "neither a run nor a model")]
)
def test_what_is_no_run_and_no_model_is_refused_in_one_sentence(name: str, what: str, tmp_path: Path, say: Say) -> None:
    (tmp_path / "folder").mkdir()
    path = tmp_path / name
    printed = say(path, "hello", status=1)
    assert printed.startswith("error: ")
    assert what in printed


def test_the_folder_of_the_best_policy_is_its_run_and_other_parts_name_it(say: Say) -> None:
    assert say(EXAMPLE_RUN / "best", "/temperature 0", "/example 3") == say(EXAMPLE_RUN, "/temperature 0", "/example 3")
    assert f"It is a part of the run {EXAMPLE_RUN}: give that." in say(EXAMPLE_RUN / "table", status=1)


def test_input_that_is_no_text_is_an_error_in_one_sentence(model_folder: Path, say: Say) -> None:
    printed = say(model_folder, "caf\udce9", status=1)  # as Python gives a byte of Latin-1 in some locales
    assert printed.endswith("error: The input is not UTF-8 text.\n")


def test_what_agrees_to_code_of_a_folder_from_elsewhere_is_a_flag_of_this_command(tmp_path: Path, say: Say) -> None:
    settings = {"model_name": "theirs/model", "data": ["rows.jsonl"], "train": "adapter", "trust_remote_code": True}
    (tmp_path / "training.json").write_text(json.dumps({"config": settings}))
    assert f"ppolm chat {tmp_path} --trust-remote-code" in say(tmp_path, status=1)


def test_an_example_that_is_a_chat_is_a_text_where_text_is_continued(model_folder: Path) -> None:
    examples = [[{"role": "system", "content": "be kind"}, {"role": "user", "content": "Tell me"}]]
    partners = replace(find_partners(str(model_folder), {}), examples=examples)
    shown: list[str] = []
    talk = Talk(partners, Told(Sampling(4), 0), False, shown.append)
    talk.hear("/example")
    talk.hear("/more  more")
    assert len(of("model", "".join(shown))) == 2
    assert re.match(r"be kind\nTell me.* more", talk.conversations["model"].text, re.DOTALL)


def conversation(context: int | None, folder: Path) -> Conversation:
    setup = BaseModelSetup(PPOConfig(model_name=str(folder), device="cpu"))
    return Conversation(setup.tokenizer, context, True)


def test_the_chat_template_sees_system_and_all_turns(model_folder: Path) -> None:
    talked = conversation(None, model_folder)
    talked.system = "be kind"
    talked.ask("hi")
    talked.answered("oh")
    talked.ask("so?")
    ids, room, left_out = talked.prompt(50)
    assert talked.tokenizer.decode(ids) == "system: be kind\nuser: hi\nassistant: oh\nuser: so?\nassistant: "
    assert (room, left_out) == (50, 0)


def test_a_full_context_loses_its_oldest_turns_and_says_how_many(model_folder: Path) -> None:
    talked = conversation(90, model_folder)
    for words in ("one", "two", "three"):
        talked.ask(words)
        talked.answered("an answer")
    talked.ask("four")
    ids, room, left_out = talked.prompt(20)
    assert left_out == 4
    assert talked.tokenizer.decode(ids) == "user: three\nassistant: an answer\nuser: four\nassistant: "
    assert room == 20
    talked.ask("x" * 100)
    with pytest.raises(DataError, match="the model reads 90"):
        talked.prompt(20)


def test_a_message_that_is_too_long_is_taken_back(model_folder: Path, say: Say) -> None:
    printed = say(model_folder, "x" * 200, "hi", flags=("--max-new-tokens", "3"))
    assert "the model reads 128" in printed
    assert len(of("model", printed)) == 1


def test_the_introduction_says_that_a_model_without_a_template_gets_a_transcript(say: Say) -> None:
    printed = say("embedded", flags=("--chat", "yes"))
    assert "has no chat template, so every message goes into a transcript" in printed
    assert "through the chat template" not in printed


def test_system_says_what_it_did(model_folder: Path, say: Say) -> None:
    printed = say(model_folder, "/system", "/system be kind", "/system", flags=("--max-new-tokens", "3"))
    assert [line for line in printed.splitlines() if "system message" in line] == [
        "There is no system message to remove. /system TEXT sets one.",
        "The system message is set. The conversation begins anew.",
        "The system message is removed. The conversation begins anew.",
    ]


def test_a_reference_that_comes_back_does_not_go_on_with_an_older_text(say: Say) -> None:
    printed = say(EXAMPLE_RUN, "one", "/reference off", "two", "/reference on", "/more three", "/reference on")
    assert "The reference is on. The conversation begins anew.\n" in printed
    assert "There is no text yet." in printed
    assert printed.endswith("The reference is on.\n")


def test_ctrl_c_before_the_first_token_takes_the_message_back_and_the_talk_goes_on(
    model_folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[str] = []
    talk = Talk(find_partners(str(model_folder), {}), Told(Sampling(4), 0), True, shown.append)

    def interrupted(*_: Any) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(Conversation, "prompt", interrupted)
        talk.hear("hello")
    assert shown == ["(interrupted)\n"]
    assert talk.conversations["model"].messages == []


def test_an_answer_that_fails_is_said_on_a_line_of_its_own_and_its_message_is_taken_back(model_folder: Path) -> None:
    partners, shown = find_partners(str(model_folder), {}), list[str]()
    talk = Talk(partners, Told(Sampling(4), 0), True, shown.append)

    def answer(*_: Any) -> Iterator[int]:
        yield 5
        raise EngineError("The server is gone.")

    object.__setattr__(partners, "answer", answer)
    talk.hear("hello")
    assert "".join(shown).splitlines()[1:] == ["The server is gone."]
    assert talk.conversations["model"].messages == []


def test_more_puts_a_space_between_unless_there_is_white_space() -> None:
    talked = Conversation(None, None, False)  # type: ignore[arg-type]
    talked.ask("Is it?")
    for words in ("But", " no", "\tnow\n", "", "then"):
        talked.more(words)
    assert talked.text == "Is it? But no\tnow\nthen"


def test_a_text_that_is_too_long_is_no_text_to_go_on_with(model_folder: Path) -> None:
    shown: list[str] = []
    talk = Talk(find_partners(str(model_folder), {}), Told(Sampling(4), 0), False, shown.append)
    talk.hear("x" * 200)
    talk.hear("/more y")
    assert "There is no text yet." in shown[-1]
    talk.hear("Tell me")
    text = talk.conversations["model"].text
    talk.hear("/more " + "x" * 200)
    assert "the model reads 128" in shown[-1]
    assert talk.conversations["model"].text == text


def test_a_message_that_is_too_long_leaves_what_was_said_before_it(model_folder: Path) -> None:
    talked = conversation(128, model_folder)
    for words in ("one", "two"):
        talked.ask(words)
        talked.answered("an answer")
    before = [*talked.messages]
    talked.ask("x" * 200)
    with pytest.raises(DataError, match="the model reads 128"):
        talked.prompt(20)
    talked.take_back()
    assert talked.messages == before


def test_control_characters_in_an_answer_are_made_harmless(model_folder: Path) -> None:
    partners = find_partners(str(model_folder), {"max_new_tokens": 8})
    ids = partners.setup.tokenizer.encode("\x1b[31mred")
    shown: list[str] = []
    talk = Talk(partners, Told(Sampling(8), 0), False, shown.append)

    def answer(*_: Any) -> Iterator[int]:
        yield from ids

    object.__setattr__(partners, "answer", answer)
    talk.hear("hello")
    assert "\x1b" not in "".join(shown)
    assert "\\x1b[31mred" in "".join(shown)


def test_ctrl_c_interrupts_an_answer_and_the_talk_goes_on(model_folder: Path) -> None:
    partners = find_partners(str(model_folder), {"max_new_tokens": 8})
    shown: list[str] = []
    talk = Talk(partners, Told(Sampling(8), 0), True, shown.append)
    ids, plain = partners.setup.tokenizer.encode("abc"), partners.answer

    def answer(*_: Any) -> Iterator[int]:
        yield from ids
        signal.raise_signal(signal.SIGINT)
        yield 5

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        object.__setattr__(partners, "answer", answer)
        talk.hear("hello")
        object.__setattr__(partners, "answer", plain)
        talk.hear("and now?")
    finally:
        signal.signal(signal.SIGINT, before)
    printed = "".join(shown)
    assert "model > abc (interrupted)\n" in printed
    assert len(of("model", printed)) == 2
    assert talk.conversations["model"].messages[1] == {"role": "assistant", "content": "abc"}


@pytest.mark.parametrize("off", [(), ("slot_sampler", "library_cache")], ids=["cache", "whole"])
@pytest.mark.parametrize("greedy", [True, False])
def test_streamed_tokens_are_those_that_the_samplers_draw(off: tuple[Any, ...], greedy: bool, tmp_path: Path) -> None:
    folder = make_model_folder(tmp_path, scale=3.0)
    setup = BaseModelSetup(PPOConfig(model_name=str(folder), device="cpu", without=off))
    role, sampling, uniforms = SFTModel(AdapterSet(setup)), Sampling(12, greedy=greedy), draws(0, 1, 12)
    prompt = setup.tokenizer.encode("Tell me")
    (whole,) = role.generate([prompt], sampling, uniforms[None])
    assert list(role.stream(prompt, sampling, uniforms)) == whole.token_ids


def test_a_stream_that_is_closed_leaves_the_roles_as_they_were(tmp_path: Path) -> None:
    partners = find_partners(str(EXAMPLE_RUN), {})
    policy = partners.engines["policy"]
    stream = policy.stream(partners.setup.tokenizer.encode("hello"), Sampling(8), torch.rand(8))
    before = policy.adapters._active
    next(stream)
    stream.close()
    assert policy.adapters._active == before
