"""The base of the models that use an official SDK: a name, prices, a client."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any
from urllib.parse import urlsplit

from tailrace.core.items import Usage
from tailrace.core.values import Json
from tailrace.history import Api, History, history
from tailrace.models.prices import Prices
from tailrace.models.transport import streamed
from tailrace.ports import Request

CONNECT_SECONDS = 10.0
"""How long to wait for a connection. The caller has the timeouts after that."""


def with_options(body: Json, options: Json) -> Json:
    """The body with the provider's own fields; None removes a field."""
    return {name: value for name, value in {**body, **options}.items() if value is not None}


def conversation(
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
    """A model that an SDK's client calls. No error message shows a string in `secrets`."""

    def __init__(self, name: str, prices: Prices, client: Any, secrets: Sequence[str]) -> None:
        self._name = name
        self._prices = prices
        self._client = client
        self._secrets = secrets
        self._host = urlsplit(str(client.base_url)).netloc.lower()

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

    def _ask(
        self, sdk: Any, create: Callable[..., Any], body: Json, *named: str
    ) -> AsyncIterator[list[str]]:
        """The answer's events. `named` are the fields that the SDK wants as arguments."""
        given = {key: body.pop(key) for key in named}
        return streamed(sdk, lambda: create(**given, extra_body=body), self._secrets)
