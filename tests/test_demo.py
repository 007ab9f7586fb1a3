"""The scripted model of the demo: its words fit what people answer and ask."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from typing import Any

import pytest

from tailrace import Answer, Tailrace
from tailrace.demo import assistant
from tailrace.events import TaskInputRequired, TextDone
from tailrace.testing import run_agent

SEPTIME = {"restaurant": "Septime", "guests": 3, "time": "20:00"}


@pytest.mark.parametrize(
    ("answer", "evening"),
    [
        ({"approved": True}, "A table for 2 at Chez Janou is booked, at 19:30[^4]."),
        ({"approved": True, "value": SEPTIME}, "A table for 3 at Septime is booked, at 20:00[^4]."),
        ({"approved": False}, "Free: without a table."),
    ],
)
async def test_the_plan_has_the_table_that_was_booked(answer: dict[str, Any], evening: str) -> None:
    run = await run_agent(
        assistant(pace=0),
        "Plan a day.",
        answer=lambda request: Answer(request_id=request.id, **answer),
    )
    assert run.result.output.evening == evening


async def test_after_a_stopped_run_the_next_question_is_played_from_the_start(
    tmp_path: Path,
) -> None:
    app = Tailrace([assistant(pace=0)], tmp_path / "demo.db")
    cited: list[str] = []
    async with app.running(), asyncio.timeout(60):
        for _ in range(2):
            run = await app.start("assistant", "Plan a day.", thread="t")
            async for event in run.events():
                if isinstance(event, TextDone) and event.task_id == run.id:
                    cited += re.findall(r"\[\^\d\] ", event.item.text)
                if isinstance(event, TaskInputRequired):
                    await run.cancel()
    assert cited == ["[^1] ", "[^3] "] * 2  # the weather, the garden
