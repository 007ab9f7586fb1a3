"""Tailrace: the stateful streaming runtime for AI agents.

An agent run is an append-only log of typed events. The live stream, the final object, the
history that the model sees and every client's wire format are folds or projections of that log.

This module stays light: importing it loads no web framework and no database.
"""

__version__ = "0.1.0.dev0"
