"""What a model call costs, by the price list of genai-prices, which needs no network."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from tailrace.core.items import Usage

Prices = Callable[[str, Usage], float | None]
"""From a model's name and what a call used to US dollars; None if nobody knows."""


def list_price(provider: str | None, base_url: str | None = None) -> Prices:
    """The list prices of a provider, or of whoever is at that address."""

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
        except (LookupError, ValueError):  # no such model there, or counts that cannot be
            return None
        return float(found.total_price)

    return price
