"""A reward served over HTTP: JSON in, JSON out."""

from __future__ import annotations

import http.client
import json
import os
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from typing import Any

from ppolm.config.secrets import expand, hide
from ppolm.errors import ConfigError, RewardError
from ppolm.http_call import TooLargeError, call, without_login
from ppolm.messages import brief, reason
from ppolm.rewards.protocol import RewardCallError

BACK_OFF = 0.5
"""Seconds before the first retry; each further one waits twice as long."""
AUTHORIZATION = "PPOLM_REWARD_AUTHORIZATION"
"""Environment variable whose value is sent as the Authorization header of every call, such as "Bearer ..."."""


class HTTPReward:
    """POSTs ``{"prompts": [...], "responses": [...], "columns": {...}}``, reads ``{"rewards": [...]}`` or a list.

    ``timeout`` limits each attempt, from the first packet to the last byte of the response; with retries a call takes
    at most (retries + 1) times as long, plus the pauses between. The URL may contain environment variables
    (``?api_key=$MY_KEY``), whose values are sent to the endpoint and nowhere else.
    """

    def __init__(self, url: str, timeout: float, retries: int) -> None:
        self.url, self.timeout, self.retries = url, timeout, retries
        try:
            expand(url)  # report a missing variable before anything large is loaded
            self._headers()
        except ConfigError as error:
            raise RewardError(f"Reward {error}") from None

    def __call__(self, prompts: Sequence[Any], responses: Sequence[str], **columns: Sequence[Any]) -> Any:
        """The scores that the endpoint returns; transient failures are retried, refusals are not."""
        body: dict[str, Any] = {
            "prompts": list(prompts),
            "responses": [str(text) for text in responses],
            "columns": columns,
        }
        if all(hasattr(text, "tokens") for text in responses):  # a per-token reward needs one score for each
            body["tokens"] = [text.tokens for text in responses]  # type: ignore[attr-defined]
        data = json.dumps(body, default=str).encode()
        for attempt in range(self.retries + 1):
            if attempt:
                time.sleep(BACK_OFF * 2 ** (attempt - 1))
            try:
                return self._scores(call(expand(self.url), data, self._headers(), self.timeout))
            except TooLargeError as error:
                problem = f"answered with more than {error}: scores are small. It was not read to its end"
                break
            except urllib.error.HTTPError as error:
                problem = f"answered {error.code} {brief(error.reason)[1:-1]}"
                if 300 <= error.code < 400:
                    problem += ", a redirect. Prompts go only to the address that was given: give the new one"
                if error.code < 500 and error.code != 429:
                    break
            except (urllib.error.URLError, http.client.HTTPException, OSError, ValueError) as error:
                cause = getattr(error, "reason", error)
                problem = f"could not be reached ({reason(cause) if isinstance(cause, Exception) else cause})"
        raise self._error(f"{problem}, attempt {attempt + 1} of {self.retries + 1}.")

    def _headers(self) -> dict[str, str]:
        given = os.environ.get(AUTHORIZATION, "").strip()
        if not given.isascii() or not given.isprintable():
            raise RewardError(f"The environment variable {AUTHORIZATION} holds a character that no header can have.")
        headers = {"Content-Type": "application/json", "Accept": "application/json"}
        return headers | ({"Authorization": given} if given else {})

    def _scores(self, body: bytes) -> Any:
        try:
            answer = json.loads(body)
        except (ValueError, RecursionError):
            shown = self._hidden(body[:4096].decode("utf-8", "surrogateescape"))[:60]  # before cutting a secret in two
            start = shown.encode("utf-8", "surrogateescape")
            raise self._error(f"did not answer with JSON but with {start!r}.") from None
        if isinstance(answer, dict):
            if "rewards" not in answer:
                found = brief(", ".join(answer) or "nothing")[1:-1]
                raise self._error(f'must answer {{"rewards": [...]}}, found: {found}.')
            return answer["rewards"]
        return answer

    def _error(self, problem: str) -> RewardCallError:
        """An error that names the URL and the problem, without secrets."""
        return RewardCallError(f"Reward {self.url} {self._hidden(problem)}")

    def _hidden(self, text: str) -> str:
        """The text with secrets hidden, since an endpoint may echo its URL or headers."""
        header = os.environ.get(AUTHORIZATION, "").strip()
        login = without_login(expand(self.url))[1].get("Authorization", "").removeprefix("Basic ")
        for secret in filter(None, (header, header.partition(" ")[2], login)):
            text = text.replace(secret, "(hidden)")
        return hide(text, self.url)
