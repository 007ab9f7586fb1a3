"""The base of the models that OpenAI's SDK calls, at OpenAI or at any compatible server."""

from __future__ import annotations

from tailrace.models.prices import Prices, list_price
from tailrace.models.sdk import CONNECT_SECONDS, SdkModel
from tailrace.models.transport import address, key_for, missing_sdk


class OpenAISdkModel(SdkModel):
    """A model with a client of OpenAI's SDK, which makes no retries of its own."""

    def __init__(
        self,
        name: str,
        *,
        base_url: str | None = None,
        api_key: str | None = None,
        prices: Prices | None = None,
        connect: float = CONNECT_SECONDS,
    ) -> None:
        try:
            import httpx2
            import openai
        except ImportError:
            raise missing_sdk("openai") from None
        place = address("OPENAI_BASE_URL", base_url)
        key = key_for("OPENAI_API_KEY", api_key, place.url)
        client = openai.AsyncOpenAI(
            api_key=key,
            base_url=place.url,
            default_headers=place.headers,
            timeout=httpx2.Timeout(None, connect=connect),
            max_retries=0,
        )
        secrets = [key, *place.secrets]
        super().__init__(name, prices or list_price("openai", place.url), client, secrets)
