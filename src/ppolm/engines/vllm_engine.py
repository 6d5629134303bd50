"""The engine ``vllm``: responses are sampled by servers, from the adapter that is trained here."""

from __future__ import annotations

import math
import threading
import weakref
from collections.abc import Sequence

import torch
from torch import Tensor

from ppolm.batches.sequences import TokenSequences
from ppolm.engines.adapter_versions import AdapterVersions, VersionFolder
from ppolm.engines.served_adapter import largest_rank, refuse_unserved
from ppolm.engines.swap_proof import probe_ids
from ppolm.engines.vllm_client import VllmClient
from ppolm.engines.vllm_messages import Job, jobs_of
from ppolm.engines.vllm_pool import Patience, VllmPool
from ppolm.engines.vllm_rollout import VllmRollout
from ppolm.engines.vllm_server import LogprobsMode, Probe, Version, VllmServer
from ppolm.errors import EngineError
from ppolm.messages import brief
from ppolm.models import PolicyModel
from ppolm.models.language_model import LanguageModel
from ppolm.rollout.sampling import Sampled, Sampling

SCORED_TOKENS = 4096
"""Tokens per forward pass when we score the probe."""


class VllmEngine:
    """Brings the policy's adapter to the servers when it has changed, and samples there."""

    serves_all = True
    """Called on every process with all prompts: the work is done by the servers, which the first process asks."""

    def __init__(
        self,
        policy: PolicyModel,
        urls: Sequence[str],
        folder: str,
        timeout: float = 600.0,
        patience: Patience | None = None,
        ahead: bool = False,
        ours: bool = False,
    ) -> None:
        """``ahead``: whether the next rollout is sampled while one trains, which needs room for one more adapter.

        ``ours``: whether ``folder`` is a default, which goes as well once it is empty.
        """
        self.policy, self.ranks, setup = policy, policy.setup.ranks, policy.setup
        lora = policy.adapters.lora_config("policy")
        refuse_unserved(lora, policy.parameters())
        self.rank = largest_rank(lora)
        self.vocabulary = int(setup.text_config.vocab_size)
        self.texts = probe_ids(self.vocabulary, setup.context_length or 10**9)
        probe = Probe(self.texts, self._score(LanguageModel(policy.adapters, None)))
        self.pool: VllmPool  # of the first process alone, and so is this:
        self.versions: AdapterVersions
        self._version: Version | None = None

        def open_servers() -> None:
            waits = patience or Patience()
            clients = [VllmClient(url, self.vocabulary, timeout, waits.stalled, waits.look) for url in urls]
            servers = [VllmServer(client, probe, setup.name, 3 if ahead else 2) for client in clients]
            self.pool = VllmPool(servers, waits)
            self.versions = AdapterVersions(policy, folder, ours)
            # If nobody closes it. What cleans up does not keep the models alive.
            weakref.finalize(self, _clean_up, self.pool, self.versions.written)

        self.ranks.do_once(open_servers)
        try:
            self.publish()  # a server that cannot be used is reported before anything else is done
        except BaseException:
            self.release()
            raise

    def generate(self, prompts: Sequence[Sequence[int]], sampling: Sampling, uniforms: Tensor) -> list[Sampled]:
        """One response per prompt, sampled from the policy as it is now; ``uniforms`` decide the seeds.

        Log-probabilities are NaN if the servers report others than the policy's: whoever needs them scores the
        responses, and many do not.
        """
        version = self.publish()

        def ask() -> list[Sampled]:
            sampled = self.sample(version, prompts, sampling, uniforms)
            return sampled if logprobs_fit(self.mode, sampling) else [_without_logprobs(one) for one in sampled]

        return self.ranks.once(ask)

    def publish(self) -> Version:
        """Bring the adapter to every server, if it has changed, and to those that have come back.

        To be called by all processes: they compute what the servers' answers are compared with.
        """
        version = self._version
        if self.ranks.once(lambda: self.versions.update()) or version is None:
            ours = self._score(self.policy)
            version = self._version = self.ranks.once(lambda: self._newest(ours))
        self.ranks.do_once(lambda: self.pool.take(version))
        return version

    def _newest(self, ours: Tensor) -> Version:
        """The version that was written last, with our scores of the probe under it."""
        served = self.versions.served
        return Version(served[-1], self.versions.path(served[-1]), self.rank, ours, served[0])

    def sample(
        self,
        version: Version,
        prompts: Sequence[Sequence[int]],
        sampling: Sampling,
        uniforms: Tensor,
        stop: threading.Event | None = None,
    ) -> list[Sampled]:
        """One response per prompt from a published version, with the servers' log-probabilities. Uses no model.

        Raises soon after ``stop`` is set.
        """
        context = min(server.context for server in self.pool.servers if server.was_up)
        longest = max(map(len, prompts)) + sampling.max_new_tokens
        if longest > context:  # a server would cut the response short without a word
            raise EngineError(
                f"A prompt with its response may take {longest} tokens, and the servers have a context of {context}. "
                f"Start them with --max-model-len {longest} or more, or lower max_new_tokens."
            )
        jobs = jobs_of(prompts, sampling, uniforms, self.policy.setup.tokenizer.eos_ids)
        done = VllmRollout(self.pool, jobs, self._called).run(version, stop)
        return [one for samples in done for one in samples]

    def _called(self, job: Job) -> str:
        """The prompt of a request, for messages."""
        return brief(self.policy.setup.tokenizer.decode_prompt(job.prompt))

    def refuse_ahead(self, sampling: Sampling) -> None:
        """Raise if the servers' log-probabilities are not ours: the weights that sampled could not be asked later.

        Once is enough: a server that comes back and reports others is not used (``VllmPool.mode``).
        """
        if not logprobs_fit(self.mode, sampling):
            raise EngineError(
                f"async_rollouts needs log-probabilities of the sampled weights, and the servers report {self.mode} "
                f"ones, which are others at temperature {sampling.temperature:g}, top_k {sampling.top_k} and top_p "
                f"{sampling.top_p:g}. Set temperature: 1 (raw), or top_k: 0 and top_p: 1 (processed)."
            )

    @property
    def mode(self) -> LogprobsMode:
        """Which log-probabilities the servers report."""
        assert self.pool.mode is not None  # known since the first server was there
        return self.pool.mode

    def metrics(self) -> dict[str, float]:
        """Servers in use, requests moved so far, and the worst mismatch of the last proofs; nothing elsewhere than in
        the first process, which writes them."""
        if not self.ranks.first:
            return {}
        proofs = [server.proof for server in self.pool.up if server.proof is not None]
        return {
            "engine_servers": len(self.pool.up),
            "engine_moved": self.pool.moved,
            "engine_mismatch": max((proof.mismatch for proof in proofs), default=0.0),
        }

    def release(self) -> None:
        """Unload what was loaded and delete the folder of versions. What is sampled afterwards begins anew.

        To be called by all processes, which exchange nothing here: it may be called after an error of one of them.
        """
        self._version = None
        if self.ranks.first:
            _clean_up(self.pool, self.versions.written)
            self.versions.forget()

    def _score(self, model: LanguageModel) -> Tensor:
        """Our log-probabilities of the probe."""
        texts = [torch.tensor(ids) for ids in self.texts]
        sequences = TokenSequences([ids[:1] for ids in texts], [ids[1:] for ids in texts])
        return model.logprobs(sequences, 1.0, SCORED_TOKENS).double()


def _clean_up(pool: VllmPool, written: VersionFolder) -> None:
    pool.close()
    written.remove()


def _without_logprobs(one: Sampled) -> Sampled:
    return Sampled(one.token_ids, [math.nan] * len(one.token_ids), one.ended)


def logprobs_fit(mode: LogprobsMode, sampling: Sampling) -> bool:
    """Whether a server's log-probabilities are ours: of the softmax at the temperature, without top-k and top-p.

    Raw ones are at temperature 1. Processed ones are at the temperature, but among what top-k and top-p leave; a greedy
    sample has neither temperature nor limits.
    """
    if mode == "raw" or sampling.greedy:
        return sampling.temperature == 1
    return sampling.top_k == 0 and sampling.top_p == 1
