"""The base of the models that use an official SDK: a name, prices, a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from importlib import import_module
from typing import Any, ClassVar
from urllib.parse import urlsplit

from tailrace.core.items import Usage
from tailrace.core.values import Json
from tailrace.history import Api, History, history
from tailrace.models.prices import Prices, list_price
from tailrace.models.transport import address, key_for, missing_sdk, streamed
from tailrace.ports import Request

CONNECT_SECONDS = 10.0
"""How long to wait for a connection. The caller has the timeouts after that."""


def with_options(body: Json, options: Json) -> Json:
    """The body with the provider's own fields; None removes a field."""
    return {name: value for name, value in {**body, **options}.items() if value is not None}


def noted_history(
    request: Request, api: Api, model: str, host: str | None, *, store: bool = True
) -> History:
    """The conversation for this model at this host; notes what the history leaves out."""
    made = history(
        request.chain,
        api,
        request.history,
        task_id=request.task_id,
        model=model,
        host=host,
        store=store,
        load=request.load,
    )
    for note in made.notes:
        request.note(note)
    return made


class SdkModel:
    """A model that an SDK's client calls. The client makes no retries of its own."""

    provider: ClassVar[str]
    """The SDK's package; also the beginning of its variables, and a name in the price list."""
    client: ClassVar[str]
    """The client's class in the SDK."""

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

            self._sdk: Any = import_module(self.provider)
        except ImportError:
            raise missing_sdk(self.provider) from None
        variable = self.provider.upper()
        place = address(f"{variable}_BASE_URL", base_url)
        key, secrets = self._key(f"{variable}_API_KEY", api_key, place.url)
        self._client = getattr(self._sdk, self.client)(
            api_key=key,
            base_url=place.url,
            default_headers=place.headers,
            timeout=httpx2.Timeout(None, connect=connect),
            max_retries=0,
        )
        self._name = name
        self._prices = prices or list_price(self.provider, place.url)
        self._secrets = [*secrets, *place.secrets]
        """Strings that no error message shows."""
        self._host = urlsplit(str(self._client.base_url)).netloc.lower()

    def _key(
        self, variable: str, given: str | None, url: str | None
    ) -> tuple[str | None, list[str]]:
        """The API key, and the secrets of the requests."""
        key = key_for(variable, given, url)
        return key, [key]

    @property
    def host(self) -> str:
        """The host that is called. Another host cannot read what this host sealed."""
        return self._host

    @property
    def name(self) -> str:
        """The model's name at its provider."""
        return self._name

    def cost(self, usage: Usage) -> float | None:
        """The cost by the price list."""
        return self._prices(self._name, usage)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _ask(self, create: Callable[..., Any], body: Json, *named: str) -> AsyncIterator[list[str]]:
        """The answer's events. `named` are the fields that the SDK wants as arguments."""
        given = {key: body.pop(key) for key in named}
        return streamed(self._sdk, lambda: create(**given, extra_body=body), self._secrets)
