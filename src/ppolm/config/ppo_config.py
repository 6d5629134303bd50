"""The one typed configuration of a PPO run. Every field acts; its docstring is also its ``--help`` text.

docs/settings.md lists them by group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ppolm.config.limits import LARGEST
from ppolm.config.model_settings import ModelSettings
from ppolm.config.setting import setting
from ppolm.config.validation import check_ppo
from ppolm.config.without_effect import defaults, without_idle


@dataclass(frozen=True)
class PPOConfig(ModelSettings):
    """Settings of a PPO run: model, training, KL, reward, generation, data, evaluation, run folder."""

    # Fields keep the order that config.yaml has always had; `group` says under which heading each one is shown.

    sft_adapter: str | None = setting(None, group="model", on_resume="fixed")
    """PEFT adapter folder of the SFT model: the reference, and the policy's start. None: the bare base."""
    reward_model: tuple[str, ...] = setting((), group="reward", on_resume="fixed")
    """Folder of a trained reward adapter, for the reward "model"; several make an ensemble. None: an untrained one."""
    reward_std_penalty: float = setting(0.0, group="reward", at_least=0, on_resume="fixed")
    """Ensemble: mean of the reward models minus this many of their standard deviations, to distrust disagreement."""
    value_init: Literal["zero", "reward"] = setting("zero", group="value model", on_resume="fixed")
    """Value model start: new adapter with a zero head, or a copy of the reward model's adapter and head."""

    learning_rate: float = setting(1e-5, group="update", at_least=0, on_resume="fixed")
    """Peak learning rate of the policy adapter (AdamW)."""
    value_learning_rate: float = setting(1e-4, group="value model", at_least=0, on_resume="fixed")
    """Peak learning rate of the value adapter and head (AdamW)."""
    lr_schedule: Literal["constant", "linear", "cosine"] = setting("constant", group="update", on_resume="fixed")
    """Learning rates over the PPO steps of a run: constant, or falling to zero linearly or as a half cosine."""
    warmup_steps: int = setting(0, group="update", at_least=0, on_resume="fixed")
    """PPO steps over which both learning rates rise linearly to their peak."""
    weight_decay: float = setting(0.0, group="update", at_least=0, on_resume="fixed")
    """AdamW weight decay on the adapters."""
    adam_eps: float = setting(1e-5, group="update", above=0, on_resume="fixed")
    """AdamW epsilon; 1e-5 is the usual choice for PPO."""
    batch_size: int = setting(32, group="sampling", at_least=1, on_resume="fixed")
    """Responses per PPO step. Prompts per step = batch_size / samples_per_prompt."""
    samples_per_prompt: int = setting(1, group="sampling", at_least=1, on_resume="fixed")
    """Responses sampled for each prompt."""
    ppo_epochs: int = setting(4, group="update", at_least=1, on_resume="fixed")
    """Passes over the buffered experience in each PPO step."""
    minibatch_size: int = setting(8, group="update", at_least=1, on_resume="fixed")
    """Responses per optimiser update."""
    minibatch_order: Literal["shuffled", "bucketed", "grouped"] = setting("shuffled", group="update", on_resume="fixed")
    """A fresh permutation of the responses per PPO epoch; or similar lengths together, which saves padding; or the
    responses to a prompt together, which computes the prompt once for those in a minibatch."""
    microbatch_tokens: int = setting(2048, group="machine", at_least=1, on_resume="may change")
    """Padded tokens per forward pass. Bounds memory; changes neither losses nor gradients."""
    gamma: float = setting(0.99, group="advantage", at_least=0, at_most=1, on_resume="fixed")
    """Discount factor."""
    lam: float = setting(0.95, group="advantage", at_least=0, at_most=1, on_resume="fixed")
    """GAE lambda."""
    value_target: Literal["gae", "reward_to_go"] = setting("gae", group="value model", on_resume="fixed")
    """What the value model learns: A_t + V(s_t), or the discounted sum of future rewards."""
    clip_epsilon: float = setting(0.2, group="update", above=0, below=1, on_resume="fixed")
    """PPO clip range below 1 (and above, unless clip_epsilon_high is set)."""
    clip_epsilon_high: float | None = setting(None, group="update", above=0, on_resume="fixed")
    """PPO clip range above 1, for an asymmetric clip."""
    dual_clip: float | None = setting(None, group="update", above=1, on_resume="fixed")
    """Bounds the loss of bad actions whose ratio exploded: at least dual_clip * A where A < 0. Above 1; None: off."""
    value_clip: float | None = setting(None, group="value model", above=0, on_resume="fixed")
    """Clips new values to within this distance of the old ones in the value loss. None: plain MSE."""
    value_coef: float = setting(0.5, group="value model", at_least=0, on_resume="fixed")
    """Factor on the value loss before its gradient is taken."""
    entropy_coef: float = setting(0.0, group="update", at_least=0, on_resume="fixed")
    """Entropy bonus in the policy loss."""
    max_grad_norm: float = setting(1.0, group="update", above=0, on_resume="fixed")
    """Gradient norm above which an update's gradient is scaled down, for policy and value separately."""
    target_kl: float | None = setting(None, group="update", above=0, on_resume="fixed")
    """Stops the PPO epochs of a step once the approximate KL to the old policy exceeds 1.5 times this. None: never."""
    value_warmup_steps: int = setting(0, group="value model", at_least=0, on_resume="fixed")
    """PPO steps at the start in which only the value model is trained."""
    max_skipped_updates: int = setting(5, group="alarm", at_least=1, on_resume="may change")
    """Non-finite losses or gradients in a row after which the run stops. Each such update is skipped and counted."""
    buffer_capacity: int = setting(1_000_000, group="update", at_least=1, on_resume="fixed")
    """Tokens the experience buffer holds. Beyond it the oldest sequences leave, counted."""
    replay_rollouts: int = setting(1, group="update", at_least=1, on_resume="fixed")
    """Most recent rollouts that each PPO step trains on. 1 is on-policy PPO."""

    kl_coef: float = setting(0.1, group="KL", at_least=0, on_resume="fixed")
    """Weight beta of the KL penalty (the first value, when adaptive_kl is on)."""
    kl_estimator: Literal["k1", "k2", "k3"] = setting("k1", group="KL", on_resume="fixed")
    """Per-token KL estimate from x = log pi - log pi_ref: k1 = x, k2 = x^2 / 2, k3 = exp(-x) - 1 + x."""
    kl_placement: Literal["reward", "loss"] = setting("reward", group="KL", on_resume="fixed")
    """KL penalty subtracted from each token's reward, or added to the policy loss (k2 or k3)."""
    adaptive_kl: bool = setting(False, group="KL", on_resume="fixed")
    """Steer kl_coef so that the KL per sequence stays near kl_target."""
    kl_target: float = setting(6.0, group="KL", above=0, on_resume="fixed")
    """KL per sequence (a sum over tokens) that adaptive_kl steers to."""
    kl_horizon: int = setting(10_000, group="KL", at_least=1, on_resume="fixed")
    """Sequences over which adaptive_kl reacts; smaller is faster, down to batch_size: a fifth per step at most."""

    reward: tuple[str, ...] = setting(("model",), group="reward", on_resume="fixed")
    """Where scores come from: model, human, module:function, path/file.py:function, http(s)://... or gold; summed. Keys
    in an address only as $NAME of an environment variable: 'https://host/score?key=$MY_KEY'."""
    reward_weights: tuple[float, ...] = setting((), group="reward", at_least=-1e6, at_most=1e6, on_resume="fixed")
    """One weight per reward. Empty: all 1."""
    normalize_rewards: Literal["none", "batch", "running"] = setting("batch", group="reward", on_resume="fixed")
    """Scores to mean 0 and deviation 1, by the statistics of the batch (of all so far, for a batch of one response) or
    of all batches so far."""
    whiten_rewards: bool = setting(False, group="reward", on_resume="fixed")
    """Scale the token rewards (after the KL penalty) of a batch to deviation 1; their mean is kept."""
    whiten_advantages: bool = setting(True, group="advantage", on_resume="fixed")
    """Centre and scale the advantages of a batch, after GAE."""
    missing_eos_penalty: float = setting(0.0, group="reward", at_least=0, at_most=1e15, on_resume="fixed")
    """Subtracted from the (normalised) score of a response that did not end with EOS."""
    on_reward_error: Literal["raise", "default"] = setting("raise", group="reward", on_resume="may change")
    """A reward that fails or is not finite: stop with an error, or use default_reward and count it. One that has never
    given a good score is an error in any case."""
    default_reward: float = setting(0.0, group="reward", at_least=-1e15, at_most=1e15, on_resume="may change")
    """Score used for a failed reward when on_reward_error is default."""
    reward_timeout: float = setting(120.0, group="reward", above=0, on_resume="may change")
    """Seconds a call of a function may take, or one attempt at an HTTP reward, to the last byte of its answer."""
    reward_retries: int = setting(3, group="reward", at_least=0, on_resume="may change")
    """Further attempts after a failed HTTP reward call, with back-off."""
    feedback_store: str = setting("feedback.db", group="human feedback", not_blank=True, on_resume="may change")
    """Where the reward "human" finds scores and queues responses: an SQLite file, or postgresql://user@host/db
    (a password only as $NAME of an environment variable)."""
    human_timeout: float = setting(3600.0, group="human feedback", at_least=0, on_resume="may change")
    """Seconds that a step or evaluation waits for people to judge its responses. 0: only what is stored already."""
    human_fallback: Literal["model", "error"] = setting("error", group="human feedback", on_resume="may change")
    """Responses that nobody judged in time: scored by the reward model, or an error that stops the run."""

    max_new_tokens: int = setting(10, group="sampling", at_least=1, on_resume="fixed")
    """Longest response, in tokens."""
    temperature: float = setting(1.0, group="sampling", above=0, on_resume="fixed")
    """Softmax temperature of sampling, scoring and the update alike."""
    top_k: int = setting(50, group="sampling", at_least=0, on_resume="fixed")
    """Sample among the k most likely tokens. 0: all."""
    top_p: float = setting(0.95, group="sampling", above=0, at_most=1, on_resume="fixed")
    """Sample among the most likely tokens that together reach this probability. 1: all."""
    rollout_tokens: int = setting(32768, group="machine", at_least=1, on_resume="may change")
    """Tokens (prompt and room for the response, padded) sampled at once. Bounds the KV cache; changes no response."""
    recompute_logprobs: Literal["auto", "always", "never"] = setting("auto", group="sampling", on_resume="fixed")
    """Score the policy by the same pass as the reference, or take the sampler's numbers. auto: scored in bfloat16,
    and in float32 until the sampler was seen to agree to 1e-4, and again if it no longer does."""

    prompts: str | None = setting(None, group="data", on_resume="may change")
    """Training prompts: a .jsonl(.gz), .csv, .parquet or .txt file, or a dataset name; column prompt or messages."""
    eval_prompts: str | None = setting(None, group="evaluation", on_resume="may change")
    """Held-out prompts, in the same forms. None: eval_fraction of the training prompts is held out."""
    dataset_split: str = setting("train", group="data", not_blank=True, on_resume="fixed")
    """Split to read of a dataset whose name does not end in one: name:split, or name/config:split, says its own."""
    skip_bad_rows: bool = setting(False, group="data", on_resume="may change")
    """A row that cannot be used: left out and counted, instead of an error that names its file and line."""
    eval_fraction: float = setting(0.1, group="evaluation", at_least=0, below=1, on_resume="fixed")
    """Share of the training prompts held out for evaluation when eval_prompts is not given."""
    max_eval_prompts: int = setting(64, group="evaluation", at_least=1, on_resume="fixed")
    """Held-out prompts used at most."""
    long_prompts: Literal["error", "skip"] = setting("error", group="data", on_resume="fixed")
    """A prompt that leaves no room for max_new_tokens in the model's context: an error, or left out and counted."""
    num_epochs: int | None = setting(None, group="run", at_least=1, on_resume="may change")
    """Passes over the training prompts. None: as many as max_steps needs, or one if that is not set either."""
    max_steps: int | None = setting(None, group="run", at_least=1, on_resume="may change")
    """PPO steps of the run; fewer if num_epochs is set and over before."""

    eval_every: int = setting(10, group="evaluation", at_least=0, on_resume="fixed")
    """PPO steps between evaluations on the held-out prompts; one runs before the first step too. 0: never."""
    judge: str | None = setting(None, group="evaluation", on_resume="fixed")
    """A reward that only evaluations use, in the same forms: a second opinion on what the reward cannot see."""
    eval_seed: int = setting(1234, group="evaluation", at_least=0, at_most=LARGEST, on_resume="fixed")
    """Seed of the samples drawn in every evaluation."""
    patience: int | None = setting(None, group="evaluation", at_least=1, on_resume="may change")
    """Stop after this many evaluations without improvement. None: run to the end."""
    min_delta: float = setting(0.0, group="evaluation", at_least=0, on_resume="fixed")
    """Rise of the held-out reward that counts as an improvement."""
    collapse_reward_drop: float = setting(1.0, group="alarm", above=0, on_resume="fixed")
    """Collapse: held-out reward more than this many standard deviations below the first evaluation's."""
    collapse_kl: float = setting(1.0, group="alarm", above=0, on_resume="fixed")
    """Collapse: KL per generated token above this."""
    collapse_entropy: float = setting(0.02, group="alarm", at_least=0, below=1, on_resume="fixed")
    """Collapse: entropy below this share of the first evaluation's."""
    collapse_length: float = setting(5.0, group="alarm", above=1, on_resume="fixed")
    """Collapse: mean length more than this many times the first evaluation's, or less than its inverse."""
    judge_drop: float = setting(3.0, group="alarm", above=0, on_resume="fixed")
    """Over-optimisation: the judge's mean this many standard errors below its best while the reward has not fallen."""
    stop_on_alarm: bool = setting(True, group="alarm", on_resume="may change")
    """Stop when an evaluation finds the run converged, collapsed or over-optimised. Off: only say so."""

    output_dir: str = setting("runs", group="run", not_blank=True, on_resume="may change")
    """Folder that holds the run folders."""
    run_name: str | None = setting(None, group="run", on_resume="may change")
    """Name of the run's folder. None: model name, date and time."""
    checkpoint_every: int = setting(10, group="run", at_least=1, on_resume="may change")
    """PPO steps between checkpoints; the last step is always kept."""
    keep_checkpoints: int = setting(2, group="run", at_least=1, on_resume="may change")
    """Newest checkpoints to keep."""
    table_every: int = setting(10, group="run", at_least=0, on_resume="may change")
    """PPO steps between token tables (Parquet); the first step is always written. 0: none."""
    samples_per_step: int = setting(4, group="run", at_least=0, on_resume="may change")
    """Prompts with their responses and rewards written to samples.jsonl at each step."""
    tensorboard: bool = setting(True, group="run", on_resume="may change")
    """Write TensorBoard events into the run folder."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ppo(self)

    @classmethod
    def from_stored(cls, values: Mapping[str, Any]) -> PPOConfig:
        """Build from settings that were not all chosen together; those without effect are left out, not refused."""
        return cls.from_dict(without_idle(values, defaults(cls)))

    def changed(self, **values: Any) -> PPOConfig:
        """A copy with other values, without the settings that have no effect beside them."""
        return self.from_stored(self.to_dict() | values)

    @property
    def prompts_per_step(self) -> int:
        """Prompts that make one PPO batch."""
        return self.batch_size // self.samples_per_prompt

    @property
    def human_needs_model(self) -> bool:
        """Whether the reward model stands in for people who do not answer."""
        return self.human_fallback == "model" and "human" in (*self.reward, self.judge)
