"""The verdict on a series of evaluations: pure functions of their numbers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ppolm.data.held_out_split import ENOUGH_PROMPTS
from ppolm.evaluation.alarms import Limits, collapse_reasons, degradation_reasons, over_optimisation_reasons
from ppolm.evaluation.gain import Evaluation, gain_of, number_of_prompts
from ppolm.measures.intervals import Interval


@dataclass(frozen=True)
class Performance:
    """How the latest evaluation compares with those before it."""

    performance_improved: bool
    """Whether this evaluation is the best so far."""
    avg_reward: float
    """Mean held-out reward of this evaluation."""
    first_reward: float
    """That of the first one, before training."""
    best_reward: float
    """That of the best one."""
    best_step: int
    """PPO steps done at the best one."""


@dataclass(frozen=True)
class Convergence:
    """Whether to continue, and why.

    ``status`` of an evaluation is baseline, rising, unchanged, suspect, converged, over-optimised or collapsed; of a
    whole run improved, unclear, unchanged, suspect, over-optimised or collapsed.
    """

    status: str
    """One of the words above."""
    reasons: tuple[str, ...]
    """Why, in words."""

    @property
    def converged(self) -> bool:
        """The held-out reward has stopped rising."""
        return self.status == "converged"

    @property
    def collapsed(self) -> bool:
        """The policy has degenerated: reward, KL, entropy or length is beyond its limit."""
        return self.status == "collapsed"

    @property
    def over_optimised(self) -> bool:
        """The judge has fallen while the reward has not: the policy exploits the reward."""
        return self.status == "over-optimised"

    @property
    def should_stop(self) -> bool:
        """Whether more steps would gain nothing."""
        return self.converged or self.over_optimised or self.collapsed


# ---- The latest of some evaluations ---------------------------------------------------------------------------------


def judge(history: Sequence[Evaluation], limits: Limits) -> tuple[Performance, Convergence]:
    """The verdict on the latest of some evaluations."""
    best = best_evaluation(history, limits)
    now, waited = history[-1], len(history) - 1 - best
    performance = Performance(
        performance_improved=waited == 0,
        avg_reward=now["avg_reward"],
        first_reward=history[0]["avg_reward"],
        best_reward=history[best]["avg_reward"],
        best_step=int(history[best].get("step", best)),
    )
    top = f"{performance.best_reward:.4g} (step {performance.best_step})"
    if reasons := collapse_reasons(history[0], now, limits):
        return performance, Convergence("collapsed", reasons)
    if reasons := over_optimisation_reasons(history, limits):
        return performance, Convergence("over-optimised", reasons)
    if limits.patience is not None and waited >= limits.patience:
        return performance, Convergence("converged", (f"no rise over {top} in {waited} evaluations",))
    if len(history) == 1:
        return performance, Convergence("baseline", ("the evaluation that later ones are compared with",))
    if waited == 0:
        return performance, Convergence("rising", (f"the best so far; the first was {performance.first_reward:.4g}",))
    if now["avg_reward"] > performance.best_reward and (reasons := degradation_reasons(history, limits)):
        return performance, Convergence("suspect", ("the reward is higher, but the texts are worse", *reasons))
    return performance, Convergence("unchanged", (f"not above the best, {top}",))


def best_evaluation(history: Sequence[Evaluation], limits: Limits) -> int:
    """Index of the highest reward, without evaluations that show collapse, over-optimisation or worse texts.

    A rise of less than ``min_delta`` does not count.
    """
    best = 0
    for i, evaluation in enumerate(history):
        higher = evaluation["avg_reward"] > history[best]["avg_reward"] + limits.min_delta
        if higher and not _bought(history[: i + 1], limits):
            best = i
    return best


def _bought(history: Sequence[Evaluation], limits: Limits) -> tuple[str, ...]:
    """Why the latest reward does not count, however high it is."""
    return (
        collapse_reasons(history[0], history[-1], limits)
        or over_optimisation_reasons(history, limits)
        or degradation_reasons(history, limits)
    )


# ---- A whole run ----------------------------------------------------------------------------------------------------


def judge_run(history: Sequence[Evaluation], limits: Limits) -> tuple[Performance, Convergence]:
    """The verdict on a whole run: why it failed, or else what its best policy gained and how certain that is."""
    performance, now = judge(history, limits)
    if now.collapsed or now.over_optimised:
        return performance, now
    stopped = now.reasons if now.converged else ()
    best = best_evaluation(history, limits)
    if best == 0:
        return performance, _without_gain(history, limits, stopped)
    gain = gain_of(history, best, "reward")
    change = f"held-out reward {performance.first_reward:.4g} -> {performance.best_reward:.4g} at step "
    change += f"{performance.best_step}" + (f": {_text(gain)}" if gain else "")
    if doubts := tuple(_doubts(history, best)):
        return performance, Convergence("unclear", (change, *doubts, *stopped))
    notes = (*_confirmation(history, best), *_passed_over(history, best, limits))
    return performance, Convergence("improved", (change, *notes, *stopped))


def _without_gain(history: Sequence[Evaluation], limits: Limits, stopped: tuple[str, ...]) -> Convergence:
    """The verdict if no evaluation that counts was above the first."""
    first = history[0]["avg_reward"]
    top = max(range(len(history)), key=lambda i: history[i]["avg_reward"])
    reasons = degradation_reasons(history[: top + 1], limits)
    if top and reasons:
        step, highest = int(history[top].get("step", top)), history[top]["avg_reward"]
        rose = f"held-out reward {first:.4g} -> {highest:.4g} at step {step}"
        worse = f"{rose}, but the texts are worse: {'; '.join(reasons)}"
        return Convergence("suspect", (worse, "best/ is the policy before training", *stopped))
    return Convergence("unchanged", (f"no evaluation was above the first, {first:.4g}", *stopped))


def _doubts(history: Sequence[Evaluation], best: int) -> Iterator[str]:
    """Why a gain may be chance."""
    prompts = number_of_prompts(history[best])
    if prompts is not None and prompts < ENOUGH_PROMPTS:
        yield f"only {prompts} held-out prompts, so this may be chance (at least {ENOUGH_PROMPTS} are needed)"
        return
    gain, judged = gain_of(history, best, "reward"), gain_of(history, best, "judge")
    if gain is None:
        yield "the evaluations do not say how much their rewards vary, so this may be chance"
    elif gain.low <= 0:
        yield "the interval does not exclude 0, so this may be chance"
    if judged is not None and judged.low <= 0:
        yield f"the judge, which is not trained on, does not confirm it: {_text(judged)}"


def _confirmation(history: Sequence[Evaluation], best: int) -> Iterator[str]:
    """Notes on a gain: the judge's change, and whether most responses were cut off."""
    judged = gain_of(history, best, "judge")
    if judged is not None:
        yield f"judge, not trained on: {_text(judged)}"
    if history[best].get("ended_fraction", 1.0) < 0.5:
        share = history[best]["ended_fraction"]
        yield f"only {share:.0%} of the responses ended: most of the scored texts were cut off by max_new_tokens"


def _passed_over(history: Sequence[Evaluation], best: int, limits: Limits) -> Iterator[str]:
    """A higher reward that does not count, and why."""
    top = max(range(len(history)), key=lambda i: history[i]["avg_reward"])
    if history[top]["avg_reward"] > history[best]["avg_reward"] and (reasons := _bought(history[: top + 1], limits)):
        step, highest = int(history[top].get("step", top)), history[top]["avg_reward"]
        yield f"the higher reward {highest:.4g} at step {step} does not count: {'; '.join(reasons)}"


def _text(gain: Interval) -> str:
    return f"{gain.mean:+.3g} [{gain.low:+.3g}, {gain.high:+.3g}]"
