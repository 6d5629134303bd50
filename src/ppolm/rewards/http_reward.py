"""A reward served over HTTP: JSON in, JSON out."""

from __future__ import annotations

import http.client
import json
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from ppolm.rewards.protocol import RewardCallError

BACK_OFF = 0.5
"""Seconds before the first retry; each further one waits twice as long."""


class HTTPReward:
    """POSTs ``{"prompts": [...], "responses": [...], "columns": {...}}``, reads ``{"rewards": [...]}`` or a list."""

    def __init__(self, url: str, timeout: float, retries: int) -> None:
        self.url, self.timeout, self.retries = url, timeout, retries

    def __call__(self, prompts: Sequence[Any], responses: Sequence[str], **columns: Sequence[Any]) -> Any:
        """The scores that the endpoint answers; passing faults are retried, a refusal is not."""
        body: dict[str, Any] = {
            "prompts": list(prompts),
            "responses": [str(text) for text in responses],
            "columns": columns,
        }
        if all(hasattr(text, "tokens") for text in responses):  # what a reward per token has to match in number
            body["tokens"] = [text.tokens for text in responses]  # type: ignore[attr-defined]
        request = urllib.request.Request(
            self.url,
            data=json.dumps(body, default=str).encode(),
            headers={"Content-Type": "application/json", "Accept": "application/json"},
        )
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(BACK_OFF * 2 ** (attempt - 1))
            try:
                with urllib.request.urlopen(request, timeout=self.timeout) as answer:
                    return self._scores(answer.read())
            except urllib.error.HTTPError as error:
                problem = f"answered {error.code} {error.reason}"
                if error.code < 500 and error.code != 429:
                    break
            except (urllib.error.URLError, http.client.HTTPException, OSError) as error:
                problem = f"could not be reached ({getattr(error, 'reason', error)})"
        raise RewardCallError(f"Reward {self.url} {problem}, attempt {attempt + 1} of {self.retries + 1}.")

    def _scores(self, body: bytes) -> Any:
        try:
            answer = json.loads(body)
        except ValueError:
            raise RewardCallError(f"Reward {self.url} did not answer with JSON but with {body[:60]!r}.") from None
        if isinstance(answer, dict):
            if "rewards" not in answer:
                keys = ", ".join(answer) or "nothing"
                raise RewardCallError(f'Reward {self.url} must answer {{"rewards": [...]}}, found: {keys}.')
            return answer["rewards"]
        return answer
