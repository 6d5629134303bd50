"""What each column of a token table means: one dictionary for the stored files, the commands and the docs."""

from __future__ import annotations

from dataclasses import dataclass

WHERE = "where"
"""Columns that say which token a row is."""


@dataclass(frozen=True)
class Meaning:
    """A column: what its numbers are, and what computes them."""

    text: str
    """One or two sentences."""
    added_by: str
    """The method that adds it, or ``where`` for those that say which token a row is."""


MEANINGS: dict[str, Meaning] = {
    "sequence": Meaning("Number of the response in this step, from 0. Rows of a response stand together.", WHERE),
    "prompt_idx": Meaning("Number of the prompt in this step, from 0. Several responses may have the same.", WHERE),
    "step": Meaning("Place of the token in its response, from 0. Not the PPO step, which the file's name says.", WHERE),
    "action_id": Meaning("The token's id in the tokenizer's vocabulary.", WHERE),
    "action": Meaning("The token as text. A part of a character decodes to a replacement mark.", WHERE),
    "prompt": Meaning("The prompt as text.", WHERE),
    "logprob_sampler": Meaning(
        "log μ(a|s): natural logarithm of the probability that the sampler gave the token, at the temperature and "
        "without top-k and top-p.",
        "generate_sequences",
    ),
    "logprob_policy": Meaning(
        "log π(a|s) of the policy that acted, before this step's updates, at the temperature.", "generate_sequences"
    ),
    "logprob_ref": Meaning("log π_ref(a|s) of the reference, at the temperature.", "generate_sequences"),
    "importance_weight": Meaning(
        "Only with sampling servers: min(π / μ, importance_cap), the factor of this token's policy loss.",
        "generate_sequences",
    ),
    "kl": Meaning(
        "Estimate of the KL divergence at this token, by kl_estimator. k1 is log π − log π_ref: positive where the "
        "policy likes the token more than the reference does.",
        "add_kl_to_sa_pairs",
    ),
    "score": Meaning(
        "The response's score, on its last token (with a reward per token, on each): after normalize_rewards and "
        "missing_eos_penalty, before the KL penalty. 0 elsewhere. The raw score is reward in samples.jsonl.",
        "adjust_rewards_with_kl",
    ),
    "reward": Meaning(
        "score − β · kl: what the token really gets (with whiten_rewards, scaled over the step). With "
        "kl_placement: loss it is the score.",
        "adjust_rewards_with_kl",
    ),
    "value": Meaning(
        "V(s): the discounted reward that the value model expects from this token on, before it is drawn.",
        "add_values_to_sa_pairs",
    ),
    "td_error": Meaning(
        "δ = reward + γ V(s′) − V(s): by how much this token went better than the value model expected.",
        "compute_td_errors",
    ),
    "advantage": Meaning(
        "Σ (γλ)ⁱ δ of this token and those after it; with whiten_advantages centred and scaled over the step, so it "
        "compares tokens of a step, not of two. Positive: the update makes the token more likely.",
        "compute_gae_advantages",
    ),
    "return": Meaning(
        "Σ (γλ)ⁱ δ + V(s), before whitening: what the value model learns with value_target gae.",
        "compute_gae_advantages",
    ),
    "reward_to_go": Meaning(
        "Σ γⁱ reward of this token and those after it: what the value model learns with value_target reward_to_go.",
        "add_reward_to_go",
    ),
}
"""In the order in which a step adds them."""

ADDED_BY = {name: meaning.added_by for name, meaning in MEANINGS.items() if meaning.added_by != WHERE}
"""The method that adds a column."""
