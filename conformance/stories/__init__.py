"""One function for each golden trace; the docstring's first line says what the trace shows."""

from conformance.stories import agents, answers, citations, documents, life, readers, tools

ALL = (documents, answers, tools, agents, citations, life, readers)
"""Importing this is what registers the stories, in the order in which README.md lists them."""
