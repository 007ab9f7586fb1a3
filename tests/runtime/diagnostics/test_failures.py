"""An agent that raises: clients get a code and an id, the log the same id, neither the text."""

from __future__ import annotations

import asyncio
import json
import logging
import re
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from tailrace.app import Tailrace
from tailrace.core.errors import RateLimited, TailraceError
from tailrace.core.events import TextDelta
from tailrace.core.items import ErrorInfo
from tailrace.core.run_object import client_view
from tailrace.runtime.diagnostics.failures import DebugHint
from tailrace.runtime.tasks.task import Task

SECRET = "hunter2"


async def plain(_task: Task) -> None:
    raise RuntimeError(f"the password is {SECRET}")


async def own(_task: Task) -> None:
    raise TailraceError(f"the password is {SECRET}")


async def provider(_task: Task) -> None:
    raise RateLimited(f"the key {SECRET} has no budget left")


async def grouped(_task: Task) -> None:
    raise ExceptionGroup(SECRET, [ValueError(SECRET)])


async def chained(_task: Task) -> None:
    try:
        raise KeyError(SECRET)
    except KeyError as error:
        raise ValueError(f"no such user: {SECRET}") from error


async def illegal(task: Task) -> None:
    task.emit(
        TextDelta(task_id=task.task_id, item_id="x", output_index=0, block_index=0, delta="Hi.")
    )


async def on_purpose(task: Task) -> None:
    task.fail(ErrorInfo(code="sold_out", message="The show is sold out."))


async def shown(agent: Callable[[Task], Awaitable[None]]) -> dict[str, Any]:
    """The error as clients see it."""
    app = Tailrace({"a": agent}, "sqlite://:memory:")
    async with asyncio.timeout(120), app.running():
        run_id = await app._runs.start("a", "?")
        assert await app._runs.reader.ended(run_id, 120)
        view = client_view(await app._runs.state(run_id))
        assert SECRET not in json.dumps(view)
        error: dict[str, Any] = view["error"]
        return error


@pytest.mark.parametrize(
    ("agent", "code", "types"),
    [
        (plain, "agent_error", ["builtins.RuntimeError"]),
        (own, "error", ["tailrace.core.errors.TailraceError"]),
        (provider, "rate_limited", ["tailrace.core.errors.RateLimited"]),
        (chained, "agent_error", ["builtins.ValueError", "builtins.KeyError"]),
        (grouped, "agent_error", ["builtins.ExceptionGroup", "builtins.ValueError"]),
    ],
)
async def test_clients_get_a_code_and_an_id_that_the_log_also_has(
    agent: Any, code: str, types: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "tailrace")
    error = await shown(agent)
    assert error["code"] == code
    (ident,) = re.findall(r"err_[0-9a-f]{12}", error["message"])
    (line,) = [text for text in caplog.messages if ident in text]
    assert re.findall(r"^  (\S+)$", line, re.MULTILINE) == types
    hint = '; logging.getLogger("tailrace").setLevel("DEBUG") shows the text'
    assert line.splitlines()[0].endswith(hint)
    assert re.search(rf"test_failures\.py:\d+ in {agent.__name__}$", line, re.MULTILINE)
    assert SECRET not in caplog.text


async def test_the_text_is_logged_when_debug_is_asked_for(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG, "tailrace")
    error = await shown(plain)
    (ident,) = re.findall(r"err_[0-9a-f]{12}", error["message"])
    (record,) = [
        one for one in caplog.records if one.levelno == logging.DEBUG and ident in one.message
    ]
    assert record.exc_info is not None
    assert SECRET in caplog.text


def test_without_a_handler_the_hint_names_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """As mounted in FastAPI under uvicorn, which sets up its own loggers only."""
    monkeypatch.setattr(logging.getLogger(), "handlers", [])
    asked = 'logging.basicConfig() and logging.getLogger("tailrace").setLevel("DEBUG")'
    assert DebugHint.text() == f"{asked} show the text"


async def test_what_our_own_code_refuses_is_explained_in_the_log(
    caplog: pytest.LogCaptureFixture,
) -> None:
    assert (await shown(illegal))["code"] == "illegal_event"
    assert "IllegalEvent: " in caplog.text


async def test_an_error_that_the_agent_writes_itself_reaches_clients_as_it_is() -> None:
    error = await shown(on_purpose)
    assert (error["code"], error["message"]) == ("sold_out", "The show is sold out.")
