"""The error of a constructor for an unknown keyword argument: it names the nearest known."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from difflib import get_close_matches
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")


def checks_names(init: Callable[P, None]) -> Callable[P, None]:
    """Raise a `TypeError` for an unknown argument that says what to write instead."""
    kind = init.__qualname__.partition(".")[0]
    known = list(inspect.signature(init).parameters)[1:]  # without `self`

    @wraps(init)
    def checked(*args: P.args, **given: P.kwargs) -> None:
        for name in given.keys() - set(known):
            near = get_close_matches(name, known, 1)
            advice = f"did you mean `{near[0]}`?" if near else f"use {', '.join(known)}."
            raise TypeError(f"{kind} has no argument `{name}`; {advice}")
        init(*args, **given)

    return checked
