"""Models of the providers that a simulator plays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

from tailrace.models import open_model
from tailrace.testing.simulator import Simulator


@asynccontextmanager
async def opened(api: str, provider: Simulator) -> AsyncIterator[Any]:
    """A model of this API."""
    base = provider.url if api == "anthropic" else provider.openai_url
    model = open_model(f"{api}:model-1", base_url=base, api_key="any")
    try:
        yield model
    finally:
        await model.close()
