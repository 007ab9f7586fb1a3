"""The cost of a model call, by the price list of genai-prices, without network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.core.items import Usage

Prices = Callable[[str, Usage], float | None]
"""Takes a model's name and a call's usage, returns US dollars; None if unknown."""


def list_price(provider: str | None, base_url: str | None = None) -> Prices:
    """The list prices of a provider, or of the provider at a URL."""

    def price(model: str, usage: Usage) -> float | None:
        try:
            import genai_prices
        except ImportError:
            return None
        used = genai_prices.Usage(
            input_tokens=usage.input_tokens,
            output_tokens=usage.output_tokens,
            cache_read_tokens=usage.cached_input_tokens or None,
            cache_write_tokens=usage.cache_write_tokens or None,
        )
        where: dict[str, Any] = (
            {"provider_id": provider} if base_url is None else {"provider_api_url": base_url}
        )
        try:
            found = genai_prices.calc_price(used, usage.model or model, **where)
        except (LookupError, ValueError):  # unknown model, or impossible counts
            return None
        return float(found.total_price)

    return price
