"""``ppolm feedback study``: what people are to judge, set up once."""

from __future__ import annotations

import contextlib
import random
import shlex
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Literal

import tyro

from ppolm.cli.settings import SamplingArguments, parse
from ppolm.errors import ConfigError, NoStoreError
from ppolm.messages import printable

if TYPE_CHECKING:
    from ppolm.feedback.study import Item, Study

WAYS = {
    "policies": "--policies A B",
    "policy": "--policy A",
    "model_name": "--model-name MODEL",
    "file": "--file FILE",
    "step_of": "--step-of RUN",
}


@dataclass(frozen=True, kw_only=True)
class StudyArguments(SamplingArguments):
    """Set up a study: items for people to judge, with where each answer came from."""

    name: Annotated[str, tyro.conf.Positional, tyro.conf.arg(metavar="NAME")]
    """What the study is called."""
    store: str = "feedback.db"
    """An SQLite file, or a URL such as postgresql://user@host/db."""
    policies: tuple[str, str] | None = None
    """Two policies on the same prompts: run folders (their best), checkpoint folders, or reference."""
    policy: str | None = None
    """One policy, sampled several times."""
    model_name: Annotated[str | None, tyro.conf.arg(aliases=["--model"])] = None
    """A model that no run has trained yet, sampled several times."""
    adapter: str | None = None
    """With --model-name: PEFT adapter folder of its SFT."""
    max_new_tokens: int | None = None
    """With --model-name: longest response. Default: 64."""
    samples: int | None = None
    """With --policy or --model-name: answers per prompt. Default: 2, or 1 with --ask score or thumb."""
    file: str | None = None
    """Rows with a prompt and two answers (first and second, or chosen and rejected), or one (completion)."""
    step_of: str | None = None
    """The responses of a logged step of this run."""
    step: int | None = None
    """With --step-of: which step."""
    prompts: str | None = None
    """File or dataset with the prompts for policies. Default: those that the run held out."""
    count: int | None = None
    """At most so many prompts (or rows, or items of a step), drawn by the seed. Default: all."""
    seed: int = 0
    """Seed of the samples."""
    ask: Literal["preference", "score", "thumb"] = "preference"
    """Compare two answers, or score or approve each."""
    axes: tuple[str, ...] = ()
    """What to score besides the whole, such as helpful honest."""
    scale: tuple[float, float] = (1.0, 7.0)
    """Lowest and highest score."""
    guidelines: str = ""
    """What annotators should know; shown with every task."""
    gold: str | None = None
    """File of judgements that are known to be right, mixed in to see who judges carefully."""
    repeats: float = 0.05
    """Share of the comparisons that an annotator is asked again, with the sides swapped."""
    judgements_per_item: int = 1
    """Judgements that each item is to get, of different annotators."""
    second_look: bool = False
    """Ask again, at the end, about items on which annotators differ."""


def study(argv: list[str]) -> None:
    """Make a study, and say how to judge it."""
    arguments = parse(StudyArguments, "ppolm feedback study", argv)
    refuse_idle(arguments)
    from ppolm.feedback.store import FeedbackStore
    from ppolm.feedback.study import Study, check_study, count_items, create_study, refuse_taken

    about = Study(
        name=arguments.name,
        kind=arguments.ask,
        guidelines=arguments.guidelines,
        axes=arguments.axes,
        scale=arguments.scale,
        repeats=arguments.repeats,
        wanted=arguments.judgements_per_item,
        second_look=arguments.second_look,
    )
    check_study(about)
    with contextlib.suppress(NoStoreError):
        refuse_taken(FeedbackStore(arguments.store, create=False), about.name)
    items, described = make_items(arguments, argv)
    gold = gold_items(arguments)
    store = FeedbackStore(arguments.store)
    made = create_study(store, about, [*gold, *items])  # a pair that is in both is a gold question
    lines = report(made, store.name, count_items(store, made), described, len(gold))
    print(printable("\n".join(lines)))


def report(made: Study, store: str, number: int, described: str, gold: int) -> list[str]:
    """What was made, and how to judge it."""
    from ppolm.cli.feedback_tables import number_of

    each = "1 judgement" if made.wanted == 1 else f"{made.wanted} judgements"
    thing = "pair" if made.kind == "preference" else "answer"
    lines = [f"Study {made.name} in {store}: {number_of(number, thing)} {described}; {each} per item."]
    if made.identical:
        lines.append(f"Left out because both answers are the same text: {number_of(made.identical, 'pair')}.")
    if gold:
        lines.append(f"With known answers, to see who judges carefully: {number_of(gold, 'item')}.")
    if made.kind == "preference" and made.repeats:
        lines.append(f"{made.repeats:.0%} of the comparisons come again with the sides swapped.")
    command = shlex.join(["ppolm", "feedback", "label", "--store", store, "--study", made.name])
    return [*lines, f"Judge with: {command}"]


def refuse_idle(arguments: StudyArguments) -> None:
    """Raise unless exactly one way is named, and for settings that it would not use."""
    named = [flag for name, flag in WAYS.items() if getattr(arguments, name) is not None]
    if len(named) != 1:
        raise ConfigError(f"Say what is to be judged, in one way: {', '.join(WAYS.values())}.")
    sampled_twice = arguments.policy is not None or arguments.model_name is not None
    samples = arguments.policies is not None or sampled_twice
    idle = {
        "--samples": arguments.samples is not None and not sampled_twice,
        "--adapter": arguments.adapter is not None and arguments.model_name is None,
        "--max-new-tokens": arguments.max_new_tokens is not None and arguments.model_name is None,
        "--prompts": arguments.prompts is not None and not samples,
        "--step": arguments.step is not None and arguments.step_of is None,
        "--axes": bool(arguments.axes) and arguments.ask == "thumb",
    }
    for flag, given in idle.items():
        if given:
            raise ConfigError(f"{flag} has no effect with {named[0]} --ask {arguments.ask}. Leave it out.")
    if arguments.step_of is not None and arguments.step is None:
        raise ConfigError("--step-of needs --step N: which step of the run.")
    if arguments.count is not None and arguments.count < 1:
        raise ConfigError(f"count is {arguments.count}, expected at least 1.")
    if not 0 <= arguments.seed < 2**62:
        raise ConfigError("seed is expected between 0 and 2^62 - 1.")
    if arguments.samples is not None and not 1 + (arguments.ask == "preference") <= arguments.samples <= 100:
        raise ConfigError(f"samples is {arguments.samples}, expected at least 2 for comparisons and at most 100.")


def make_items(arguments: StudyArguments, argv: list[str]) -> tuple[list[Item], str]:
    """The items, and what they are."""
    if arguments.file is not None:
        from ppolm.studies.from_file import from_file

        items = drawn(from_file(arguments.file, arguments.ask), arguments)
        return items, f"of {arguments.file}"
    if arguments.step_of is not None:
        from ppolm.studies.from_step import from_step

        assert arguments.step is not None
        items = drawn(from_step(Path(arguments.step_of), arguments.step, arguments.ask, argv), arguments)
        if not items:
            raise ConfigError("That step has one response per prompt: nothing to compare. Use --ask score or thumb.")
        return items, f"of step {arguments.step} of {arguments.step_of}"
    return sampled_items(arguments, argv)


def sampled_items(arguments: StudyArguments, argv: list[str]) -> tuple[list[Item], str]:
    """Answers of policies, sampled now."""
    from ppolm.cli.feedback_tables import number_of
    from ppolm.data.load_rows import load_prompts
    from ppolm.runs.prompt_schedule import different_prompts
    from ppolm.studies.from_policies import PROMPTS_AT_ONCE, fair_prompts, from_policies, from_policy, some_of
    from ppolm.studies.policy import find_policies, model_policy

    if arguments.model_name is not None:
        length = arguments.max_new_tokens or 64
        policies = [model_policy(arguments.model_name, arguments.adapter, arguments.given(), length)]
    else:
        policies = find_policies(arguments.policies or (str(arguments.policy),), argv, arguments.given())
    given = None if arguments.prompts is None else different_prompts(load_prompts(arguments.prompts))
    prompts, unfair = fair_prompts(policies, given)
    if unfair:
        print(f"{unfair} held-out prompts are left out: the other run was trained on them.", file=sys.stderr)
    prompts = some_of(prompts, arguments.count, arguments.seed)
    labels = " and ".join(policy.label for policy in policies)
    tick = counter(len(policies) * -(-len(prompts) // PROMPTS_AT_ONCE))
    if len(policies) == 2:
        items = from_policies(policies, prompts, arguments.ask, arguments.seed, tick)
    else:
        samples = arguments.samples or (2 if arguments.ask == "preference" else 1)
        items = from_policy(policies[0], prompts, samples, arguments.ask, arguments.seed, tick)
    return items, f"of {labels} on {number_of(len(prompts), 'prompt')}"


def counter(batches: int) -> Callable[[], None]:
    """Says how far sampling is, each time that it is called; the page of studies shows it, too."""
    done = iter(range(1, batches + 1))
    return lambda: print(f"sampled {next(done, batches)} of {batches} batches of prompts", file=sys.stderr, flush=True)


def drawn(items: list[Item], arguments: StudyArguments) -> list[Item]:
    """As many of the items as are asked for."""
    if arguments.count is None or arguments.count >= len(items):
        return items
    return random.Random(arguments.seed).sample(items, arguments.count)


def gold_items(arguments: StudyArguments) -> list[Item]:
    """Items with a known answer, if a file names some."""
    if arguments.gold is None:
        return []
    from ppolm.studies.from_file import gold_from_file

    return gold_from_file(arguments.gold, arguments.ask)
