"""A model's answer in a real log: durable, and what broke off stays in it."""

from __future__ import annotations

from pathlib import Path

from tailrace.core.events import OutputItemDone, TaskAttempt
from tailrace.core.run_object import client_view
from tailrace.models.scripted import Scripted, call, cut, say, think, tries
from tailrace.ports import Request
from tailrace.runtime.event_log.whole_state import whole_state
from tailrace.runtime.model_calls.call import Patience, call_model
from tests.runtime.tasks.begun import begun_in

RUN = "run_1"


async def test_a_new_attempt_is_in_the_log_with_what_it_supersedes(tmp_path: Path) -> None:
    model = Scripted(
        tries(
            [think("Hm."), say("It is"), cut()],
            [call("get_weather", city="Paris"), cut()],
            [say("It is sunny.")],
        )
    )
    async with begun_in(tmp_path, RUN, input="Is it sunny?") as (task, log, state):
        outcome = await call_model(
            model,
            Request(chain=[state]),
            task,
            patience=Patience(first_wait=0.001),
            drain=task.drain,
        )
        task.complete()
        await task.drain()
        kept = await whole_state(log, RUN)
        events = [one.event for one in await log.read(RUN, 0)]
    assert outcome.status == "completed"
    attempts = [event for event in events if isinstance(event, TaskAttempt)]
    assert [attempt.attempt for attempt in attempts] == [2, 3]
    made = [event.item.id for event in events if isinstance(event, OutputItemDone)]
    assert [ident for attempt in attempts for ident in attempt.superseded] == made[:-1]
    shown = client_view(kept)
    assert shown["status"] == "completed"
    assert [item["type"] for item in shown["output"]] == ["message"]
    assert shown["output"][0]["block_list"][0]["text"] == "It is sunny."
