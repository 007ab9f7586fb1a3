"""One function for each golden trace; the docstring's first line says what the trace shows."""

from conformance.stories import (
    agents,
    answers,
    citations,
    documents,
    life,
    newer_versions,
    odd_orders,
    odd_values,
    tools,
)

ALL = (
    *(documents, answers, tools, agents, citations, life),
    *(newer_versions, odd_values, odd_orders),
)
"""Importing this registers the stories, in the order in which README.md lists them."""
