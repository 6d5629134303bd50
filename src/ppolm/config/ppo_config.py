"""The typed configuration of a PPO run. Every field has an effect; its docstring is also its ``--help`` text.

docs/settings.md lists the fields by group.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

from ppolm.config.limits import LARGEST
from ppolm.config.model_settings import ModelSettings
from ppolm.config.presets import preset_values
from ppolm.config.renamed import renamed
from ppolm.config.setting import setting
from ppolm.config.start import policy_of, reference_of
from ppolm.config.validation import check_ppo
from ppolm.config.without_effect import defaults, without_idle
from ppolm.names import EngineName, LoggerName


@dataclass(frozen=True)
class PPOConfig(ModelSettings):
    """Settings of a PPO run: model, training, KL, reward, generation, data, evaluation, run folder."""

    # Fields keep the order that config.yaml has always had; `group` is the heading that a field is shown under.

    sft_adapter: str | None = setting(None, group="model", on_resume="fixed")
    """PEFT adapter folder of the SFT model: the reference, and where the policy starts. None: the base model."""
    start_from: str | None = setting(None, group="model", on_resume="fixed")
    """Run (its best policy) or checkpoint whose policy this run starts from, instead of from the reference. Without a
    settings file its settings are the defaults."""
    start_reference: Literal["kept", "policy"] = setting("kept", group="model", on_resume="fixed")
    """With start_from, the reference: the one which that run had, or the policy that this one starts from."""
    start_value: bool = setting(True, group="model", on_resume="fixed")
    """With start_from, begin with the value model of that policy, too. Off: with a new one, as value_init says."""
    reward_model: tuple[str, ...] = setting((), group="reward", on_resume="fixed")
    """Folder of a trained reward adapter, for the reward "model"; several form an ensemble. None: an untrained one."""
    reward_std_penalty: float = setting(0.0, group="reward", at_least=0, on_resume="fixed")
    """Ensemble score: mean of the reward models minus this many standard deviations, to penalise disagreement."""
    value_init: Literal["zero", "reward"] = setting("zero", group="value model", on_resume="fixed")
    """Initial value model: a new adapter with a zero head, or a copy of the reward model's adapter and head."""

    learning_rate: float = setting(1e-5, group="update", at_least=0, on_resume="fixed")
    """Peak learning rate of the policy adapter (AdamW). A callback may change it while the run is under way."""
    value_learning_rate: float = setting(1e-4, group="value model", at_least=0, on_resume="fixed")
    """Peak learning rate of the value adapter and head (AdamW). A callback may change it."""
    lr_schedule: Literal["constant", "linear", "cosine"] = setting("constant", group="update", on_resume="fixed")
    """Learning rates over the PPO steps of a run: constant, or decaying to zero linearly or as a half cosine."""
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
    """A new permutation of the responses per PPO epoch; or similar lengths together, which saves padding; or the
    responses to a prompt together, so that a minibatch computes the prompt only once."""
    microbatch_tokens: int = setting(2048, group="machine", at_least=1, on_resume="may change")
    """Padded tokens per forward pass; on a GPU four times as many where no gradients are needed. Limits memory; changes
    neither losses nor gradients."""
    gamma: float = setting(0.99, group="advantage", at_least=0, at_most=1, on_resume="fixed")
    """Discount factor."""
    lam: float = setting(0.95, group="advantage", at_least=0, at_most=1, on_resume="fixed")
    """GAE lambda."""
    value_target: Literal["gae", "reward_to_go"] = setting("gae", group="value model", on_resume="fixed")
    """Target of the value model: A_t + V(s_t), or the discounted sum of future rewards."""
    clip_epsilon: float = setting(0.2, group="update", above=0, below=1, on_resume="fixed")
    """PPO clip range below 1 (and above, unless clip_epsilon_high is set)."""
    clip_epsilon_high: float | None = setting(None, group="update", above=0, on_resume="fixed")
    """PPO clip range above 1, for an asymmetric clip."""
    dual_clip: float | None = setting(None, group="update", above=1, on_resume="fixed")
    """Dual clip: where A < 0 the objective is at least dual_clip * A, however large the ratio. Above 1; None: off."""
    value_clip: float | None = setting(None, group="value model", above=0, on_resume="fixed")
    """Clips new values to within this distance of the old ones in the value loss. None: plain MSE."""
    value_coef: float = setting(0.5, group="value model", at_least=0, on_resume="fixed")
    """Factor that multiplies the value loss."""
    entropy_coef: float = setting(0.0, group="update", at_least=0, on_resume="fixed")
    """Entropy bonus in the policy loss."""
    max_grad_norm: float = setting(1.0, group="update", above=0, on_resume="fixed")
    """Gradients are clipped to this norm, for policy and value model separately."""
    target_kl: float | None = setting(None, group="update", above=0, on_resume="fixed")
    """Ends the PPO epochs of a step once the approximate KL to the old policy exceeds 1.5 times this. None: never."""
    value_warmup_steps: int = setting(0, group="value model", at_least=0, on_resume="fixed")
    """PPO steps at the start that train only the value model."""
    max_skipped_updates: int = setting(5, group="alarm", at_least=1, on_resume="may change")
    """Stop after this many updates in a row with a non-finite loss or gradient; each is skipped and counted."""
    buffer_capacity: int = setting(1_000_000, group="update", at_least=1, on_resume="fixed")
    """Capacity of the experience buffer in tokens. Beyond it the oldest sequences are dropped and counted."""
    replay_rollouts: int = setting(1, group="update", at_least=1, on_resume="fixed")
    """Each PPO step trains on this many of the latest rollouts. 1 is on-policy PPO."""

    kl_coef: float = setting(0.1, group="KL", at_least=0, on_resume="fixed")
    """Coefficient beta of the KL penalty (its initial value when adaptive_kl is on). A callback may change it."""
    kl_estimator: Literal["k1", "k2", "k3"] = setting("k1", group="KL", on_resume="fixed")
    """Per-token KL estimate from x = log pi - log pi_ref: k1 = x, k2 = x^2 / 2, k3 = exp(-x) - 1 + x."""
    kl_placement: Literal["reward", "loss"] = setting("reward", group="KL", on_resume="fixed")
    """Subtract the KL penalty from each token's reward, or add it to the policy loss (k2 or k3 only)."""
    adaptive_kl: bool = setting(False, group="KL", on_resume="fixed")
    """Adapt kl_coef so that the KL per sequence stays near kl_target."""
    kl_target: float = setting(6.0, group="KL", above=0, on_resume="fixed")
    """KL per sequence (summed over tokens) that adaptive_kl aims for."""
    kl_horizon: int = setting(10_000, group="KL", at_least=1, on_resume="fixed")
    """Sequences over which adaptive_kl reacts. Smaller is faster, down to batch_size: at most a fifth per step."""

    reward: tuple[str, ...] = setting(("model",), group="reward", on_resume="fixed")
    """Where scores come from: model, human, module:function, path/file.py:function, http(s)://... or gold; several are
    summed. Write keys in a URL as environment variables: 'https://host/score?key=$MY_KEY'."""
    reward_weights: tuple[float, ...] = setting((), group="reward", at_least=-1e6, at_most=1e6, on_resume="fixed")
    """One weight per reward. Empty: all 1."""
    normalize_rewards: Literal["none", "batch", "running"] = setting("batch", group="reward", on_resume="fixed")
    """Normalise scores to mean 0 and standard deviation 1, with the statistics of the batch (of all so far, for a batch
    of one response) or of all batches so far."""
    whiten_rewards: bool = setting(False, group="reward", on_resume="fixed")
    """Scale the token rewards of a batch (after the KL penalty) to standard deviation 1; their mean is kept."""
    whiten_advantages: bool = setting(True, group="advantage", on_resume="fixed")
    """Centre and scale the advantages of a batch, after GAE."""
    missing_eos_penalty: float = setting(0.0, group="reward", at_least=0, at_most=1e15, on_resume="fixed")
    """Subtracted from the (normalised) score of a response that did not end with EOS."""
    on_reward_error: Literal["raise", "default"] = setting("raise", group="reward", on_resume="may change")
    """If a reward fails or is not finite: stop with an error, or use default_reward and count it. A reward that has
    never returned a valid score is always an error."""
    default_reward: float = setting(0.0, group="reward", at_least=-1e15, at_most=1e15, on_resume="may change")
    """Score that replaces a failed one when on_reward_error is default."""
    reward_timeout: float = setting(120.0, group="reward", above=0, on_resume="may change")
    """Time limit in seconds for one call of a reward function, or for one HTTP attempt up to the last byte."""
    reward_retries: int = setting(3, group="reward", at_least=0, on_resume="may change")
    """Retries after a failed HTTP reward call, with back-off."""
    feedback_store: str = setting("feedback.db", group="human feedback", not_blank=True, on_resume="may change")
    """Where the reward "human" looks up scores and queues responses: an SQLite file, or postgresql://user@host/db
    (write a password as an environment variable, $NAME)."""
    human_timeout: float = setting(3600.0, group="human feedback", at_least=0, on_resume="may change")
    """Seconds that a step or evaluation waits for people to judge its responses. 0: use only stored judgements."""
    human_fallback: Literal["model", "error"] = setting("error", group="human feedback", on_resume="may change")
    """Responses that nobody judged in time: score them with the reward model, or stop the run with an error."""

    max_new_tokens: int = setting(10, group="sampling", at_least=1, on_resume="fixed")
    """Maximum length of a response, in tokens."""
    temperature: float = setting(1.0, group="sampling", above=0, on_resume="fixed")
    """Softmax temperature, used in sampling, scoring and the update."""
    top_k: int = setting(50, group="sampling", at_least=0, on_resume="fixed")
    """Sample among the k most likely tokens. 0: all."""
    top_p: float = setting(0.95, group="sampling", above=0, at_most=1, on_resume="fixed")
    """Sample among the most likely tokens that together reach this probability. 1: all."""
    rollout_tokens: int = setting(32768, group="machine", at_least=1, on_resume="may change")
    """Tokens sampled at once (prompt plus max_new_tokens, padded). Limits the KV cache; changes no response."""
    recompute_logprobs: Literal["auto", "always", "never"] = setting("auto", group="sampling", on_resume="fixed")
    """Recompute the policy's log-probabilities the way the reference's are computed, or use the sampler's. auto: always
    recompute in bfloat16 and with another engine than local; otherwise only until the sampler agrees within 1e-4, and
    again if it stops agreeing."""
    # May change: local and mlx draw with the same random numbers, vllm's are as good as others for what follows.
    engine: EngineName = setting("local", group="sampling", on_resume="may change")  # noqa: RUF009 (a Literal)
    """What samples the responses: local, the policy itself; mlx, a copy of it in mlx-lm, for Apple machines: the same
    seed gives the same responses with both, up to rounding; or vllm, servers that are given its adapter."""
    engine_url: tuple[str, ...] = setting((), group="sampling", on_resume="may change")
    """Addresses of vLLM servers, such as http://host:8000; several share the work."""
    engine_folder: str | None = setting(None, group="sampling", on_resume="may change")
    """Folder that the servers can read under the same path, for the adapter's versions. None: engine in output_dir."""
    engine_timeout: float = setting(600.0, group="sampling", above=0, on_resume="may change")
    """Seconds for one request to a server. A server that makes no progress is noticed sooner."""
    async_rollouts: bool = setting(False, group="sampling", on_resume="may change")
    """Sample the next step's responses on the servers while this one trains, from the weights before its update."""
    importance_cap: float = setting(2.0, group="update", at_least=1, on_resume="fixed")
    """Responses of vLLM servers: largest weight of a token in the policy loss, pi / mu with mu the server's."""
    importance_sequence_cap: float | None = setting(None, group="update", above=1, on_resume="fixed")
    """Responses of vLLM servers whose product of pi / mu is above this, or below 1/this, weigh nothing. None: off."""

    prompts: str | None = setting(None, group="data", on_resume="may change")
    """Training prompts: a .jsonl(.gz), .csv, .parquet or .txt file, or a dataset name; column prompt or messages."""
    eval_prompts: str | None = setting(None, group="evaluation", on_resume="may change")
    """Held-out prompts, in the same forms. None: eval_fraction of the training prompts is held out."""
    dataset_split: str = setting("train", group="data", not_blank=True, on_resume="fixed")
    """Split to read if the dataset name does not include one (name:split or name/config:split)."""
    skip_bad_rows: bool = setting(False, group="data", on_resume="may change")
    """Skip and count rows that cannot be used, instead of stopping with an error that names file and line."""
    eval_fraction: float = setting(0.1, group="evaluation", at_least=0, below=1, on_resume="fixed")
    """Fraction of the training prompts held out for evaluation when eval_prompts is not given."""
    max_eval_prompts: int = setting(64, group="evaluation", at_least=1, on_resume="fixed")
    """Maximum number of held-out prompts."""
    long_prompts: Literal["error", "skip"] = setting("error", group="data", on_resume="fixed")
    """Prompts that leave no room for max_new_tokens in the model's context: raise an error, or skip and count them."""
    num_epochs: int | None = setting(None, group="run", at_least=1, on_resume="may change")
    """Passes over the training prompts. None: as many as max_steps needs, or one if that is not set either."""
    max_steps: int | None = setting(None, group="run", at_least=1, on_resume="may change")
    """PPO steps of the run; fewer if num_epochs is set and ends sooner."""

    eval_every: int = setting(10, group="evaluation", at_least=0, on_resume="fixed")
    """PPO steps between evaluations on the held-out prompts; one also runs before the first step. 0: never."""
    judge: str | None = setting(None, group="evaluation", on_resume="fixed")
    """A second reward, used only in evaluations, to catch what the training reward misses; same forms as reward."""
    eval_seed: int = setting(1234, group="evaluation", at_least=0, at_most=LARGEST, on_resume="fixed")
    """Random seed for sampling; the same in every evaluation."""
    patience: int | None = setting(None, group="evaluation", at_least=1, on_resume="may change")
    """Stop after this many evaluations without improvement. None: run to the end."""
    min_delta: float = setting(0.0, group="evaluation", at_least=0, on_resume="fixed")
    """Increase in held-out reward that counts as an improvement."""
    collapse_reward_drop: float = setting(1.0, group="alarm", above=0, on_resume="fixed")
    """Collapse: held-out reward more than this many standard deviations below the first evaluation's."""
    collapse_kl: float = setting(1.0, group="alarm", above=0, on_resume="fixed")
    """Collapse: KL per generated token above this."""
    collapse_entropy: float = setting(0.02, group="alarm", at_least=0, below=1, on_resume="fixed")
    """Collapse: entropy below this fraction of the first evaluation's."""
    collapse_length: float = setting(5.0, group="alarm", above=1, on_resume="fixed")
    """Collapse: mean length more than this many times the first evaluation's, or less than 1/this of it."""
    judge_drop: float = setting(3.0, group="alarm", above=0, on_resume="fixed")
    """Over-optimisation: the judge's mean this many standard errors below its best while the reward has not fallen."""
    stop_on_alarm: bool = setting(True, group="alarm", on_resume="may change")
    """Stop when an evaluation finds the run converged, collapsed or over-optimised. Off: only report it."""

    output_dir: str = setting("runs", group="run", not_blank=True, on_resume="may change")
    """Folder that holds the run folders."""
    run_name: str | None = setting(None, group="run", on_resume="may change")
    """Name of the run's folder. None: model name, date and time."""
    checkpoint_every: int = setting(10, group="run", at_least=1, on_resume="may change")
    """PPO steps between checkpoints; the last step always gets one."""
    keep_checkpoints: int = setting(2, group="run", at_least=1, on_resume="may change")
    """Number of most recent checkpoints to keep."""
    table_every: int = setting(10, group="run", at_least=0, on_resume="may change")
    """PPO steps between token tables (Parquet); the first step is always written. 0: none."""
    samples_per_step: int = setting(4, group="run", at_least=0, on_resume="may change")
    """Samples (prompt, response, reward) written to samples.jsonl at each step."""
    log_to: tuple[LoggerName, ...] = setting(("tensorboard",), group="run", on_resume="may change")
    """Tools that get the numbers of every step and evaluation, besides the run folder: tensorboard, wandb, mlflow,
    trackio (docs/callbacks.md). Empty: none."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_ppo(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> PPOConfig:
        """Build from a mapping, which may have names of earlier versions."""
        return super().from_dict(renamed(values))

    @classmethod
    def from_stored(cls, values: Mapping[str, Any]) -> PPOConfig:
        """Build from settings that were not all chosen together: those without effect are reset, not refused."""
        return cls.from_dict(without_idle(values, defaults(cls)))

    @classmethod
    def from_preset(cls, name: str, **values: Any) -> PPOConfig:
        """The settings of a preset (docs/presets.md), with others given beside or over them."""
        return cls.from_dict(preset_values(name) | values)

    def changed(self, **values: Any) -> PPOConfig:
        """A copy with other values; settings that have no effect with them are reset to their defaults."""
        return self.from_stored(self.to_dict() | values)

    def overridden(self, **given: Any) -> PPOConfig:
        """A copy with what a user asks for. What thereby has no effect is reset; what was asked for is refused then."""
        return self.from_dict(without_idle(self.to_dict() | given, defaults(type(self)), self.to_dict()))

    @property
    def reference_adapter(self) -> str | None:
        """The adapter that KL is measured against. None: the bare base."""
        if self.start_from is None:
            return self.sft_adapter
        if self.start_reference == "policy":
            return str(policy_of(self.start_from))
        copy = reference_of(self.start_from)
        return self.sft_adapter if copy is None else str(copy)

    @property
    def starts_with_value(self) -> bool:
        """Whether the value model, too, comes from the run that this one starts from."""
        return self.start_from is not None and self.start_value

    @property
    def prompts_per_step(self) -> int:
        """Prompts in one PPO batch."""
        return self.batch_size // self.samples_per_prompt

    @property
    def human_needs_model(self) -> bool:
        """Whether the reward model is the fallback for people who do not answer."""
        return self.human_fallback == "model" and "human" in (*self.reward, self.judge)
