"""A language model behind any OpenAI-compatible endpoint (vLLM, Ollama, llama.cpp), through the openai client."""

from __future__ import annotations

import os
from typing import Any

from gfm_rag.ircot import Messages
from nips_common.runtime import require


class ChatEndpoint:
    """Messages in, a reply out; usable as the `llm` of `ircot`.

    Args:
        base_url: such as http://localhost:8000/v1.
        model: the server's name of the model.
        api_key: None = OPENAI_API_KEY of the environment, if there is one. It is never logged.
        timeout: seconds for a reply.
        max_retries: after time-outs, lost connections, 429 (waiting as the server asks) and 5xx.
        temperature: 0 asks for the most probable reply.
        max_tokens: of a reply.
        json_mode: ask for JSON objects; a server that refuses the option is asked without it from then on.

    Raises:
        ImportError: the client is missing; names the extra.
        ValueError: an address that is none.
    """

    def __init__(
        self,
        base_url: str,
        model: str,
        *,
        api_key: str | None = None,
        timeout: float = 120.0,
        max_retries: int = 4,
        temperature: float = 0.0,
        max_tokens: int = 4096,
        json_mode: bool = False,
    ) -> None:
        openai = require("openai", "gfm-rag[llm]")
        if not base_url.startswith(("http://", "https://")):
            raise ValueError(f"base_url must begin with http:// or https://, got {base_url!r}")
        self.base_url, self.model, self.json_mode = base_url, model, json_mode
        self.temperature, self.max_tokens = temperature, max_tokens
        key = api_key or os.environ.get("OPENAI_API_KEY") or "none"  # local servers take any
        self._openai = openai
        self._client: Any = openai.OpenAI(base_url=base_url, api_key=key, timeout=timeout, max_retries=max_retries)

    def __call__(self, messages: Messages) -> str:
        """The reply.

        Raises:
            ConnectionError: the server did not answer in time, or with an error, after all retries.
        """
        try:
            return self._ask(messages)
        except self._openai.OpenAIError as error:
            reason = " ".join(str(error).split())[:300]
            raise ConnectionError(f"{self.base_url}, model {self.model!r}: {type(error).__name__}: {reason}") from None

    def _ask(self, messages: Messages) -> str:
        options: dict[str, Any] = {"response_format": {"type": "json_object"}} if self.json_mode else {}
        try:
            reply = self._client.chat.completions.create(
                model=self.model,
                messages=messages,
                temperature=self.temperature,
                max_tokens=self.max_tokens,
                **options,
            )
        except (self._openai.BadRequestError, self._openai.UnprocessableEntityError) as error:
            if not self.json_mode or "response_format" not in str(error):
                raise
            self.json_mode = False
            return self._ask(messages)
        return str(reply.choices[0].message.content or "") if reply.choices else ""
