"""What the models behind an official SDK have in common: a name, a price list, a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from tailrace.core.history import Api, History, history
from tailrace.core.items import Usage
from tailrace.models.prices import Prices
from tailrace.models.transport import streamed
from tailrace.ports import Request

Json = dict[str, Any]

CONNECT_SECONDS = 10.0
"""How long to wait for a connection. What comes after it is the caller's patience."""


def taken_out(body: Json, options: Json) -> Json:
    """The body with the provider's own fields; None takes one out."""
    return {name: value for name, value in {**body, **options}.items() if value is not None}


def said_before(
    request: Request, api: Api, model: str, host: str | None, *, store: bool = True
) -> History:
    """What was said so far, for this model at this host; what is left out of it is told."""
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
    """A model that an SDK's client is asked for; `secrets` are what no word of it may show."""

    def __init__(self, name: str, prices: Prices, client: Any, secrets: Sequence[str]) -> None:
        self._name = name
        self._prices = prices
        self._client = client
        self._secrets = secrets
        self._host = urlsplit(str(client.base_url)).netloc.lower()

    @property
    def host(self) -> str:
        """Who is asked: hosts of one API cannot read what another of them sealed."""
        return self._host

    @property
    def name(self) -> str:
        """The model's name at its provider."""
        return self._name

    def cost(self, usage: Usage) -> float | None:
        """By the price list."""
        return self._prices(self._name, usage)

    async def close(self) -> None:
        """Close the connections."""
        await self._client.close()

    def _ask(
        self, sdk: Any, create: Callable[..., Any], body: Json, *named: str
    ) -> AsyncIterator[list[str]]:
        """The answer to a body, raw. The SDK insists on some fields by name."""
        given = {key: body.pop(key) for key in named}
        return streamed(sdk, lambda: create(**given, extra_body=body), self._secrets)
