"""Kills processes at random while declared agents work, and has every run checked.

A run has parallel tools, approvals and sub-agents two levels deep. Clients follow the runs and
answer the approvals, each of them twice.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Callable
from contextlib import suppress

from tailrace.core.codec import decode_event
from tailrace.core.fold import State
from tests.chaos.actors import DEAD, post
from tests.chaos.checker import Story, decode, unpack
from tests.chaos.declared import ANSWER, NAME
from tests.chaos.stage import Place, Stage, Watched

MORE_KILLS = 30
"""Most further kills, until a run has lost its worker."""

RUNS_AT_ONCE = 20


async def answer(stage: Stage, run: Watched) -> None:
    """Approve whatever the run asks, as soon as a follower has seen the question."""
    answered: set[str] = set()
    [follower] = run.followers
    while not run.is_over:
        for shown in list(follower.seen.shown):
            if b'"task.input_required"' not in shown.data:
                continue
            for request in json.loads(shown.data)["requests"]:
                if request["id"] not in answered and await approved(stage, run, request["id"]):
                    answered.add(request["id"])
        await asyncio.sleep(0.05)


async def approved(stage: Stage, run: Watched, request_id: str) -> bool:
    """Send an approval twice; whether it has arrived."""
    statuses: list[int] = []
    for port in stage.ports:
        with suppress(*DEAD, ValueError):
            body = {"request_id": request_id, "approved": True}
            status, reply = await post(port, f"/runs/{run.story.run_id}/input", body)
            statuses.append(status)
            if status not in (200, 202, 400, 423, 503):
                stage.findings.append(f"an approval was answered {status}: {reply}")
    return any(status in (200, 202) for status in statuses)


async def kill(stage: Stage, kills: int, begun: asyncio.Event) -> None:
    """Kill servers and workers, and start them again."""
    chance = stage._chance
    await begun.wait()
    for _ in range(kills):
        await asyncio.sleep(chance.uniform(0.1, 0.6))
        actor = chance.choice(stage.actors)
        actor.kill()
        await asyncio.sleep(chance.choice((0.0, 0.1, 0.4)))
        actor.start()


async def check_log(stage: Stage, story: Story) -> int:
    """The log is legal, event by event, and the run came to its answer; its lost workers."""
    log, _ = unpack(await stage.place.rows(story.run_id))
    state = State()
    for one in log:
        state.apply(decode_event(one.data))
    events, _ = decode(log)
    asked = Counter(
        request["id"]
        for event in events
        if event["type"] == "task.input_required"
        for request in event["requests"]
    )
    received = Counter(
        event["request_id"] for event in events if event["type"] == "task.input_received"
    )
    where = f"run {story.run_id}"
    last = events[-1]
    # A run that lost too many workers may end before it has the answer to its question.
    answered = asked if last["type"] == "task.completed" else asked & received
    if received != answered or set(asked.values()) - {1}:
        stage.findings.append(f"{where}: it asked {asked}, and received {received}")
    if last["type"] != "task.completed" and last.get("error", {}).get("code") != (
        "too_many_attempts"
    ):
        stage.findings.append(f"{where}: it ended with {last}")
    items = [event["item"] for event in events if event["type"] == "task.output_item.done"]
    if last["type"] == "task.completed" and items[-1]["block_list"][0].get("text") != ANSWER:
        stage.findings.append(f"{where}: its last item is {items[-1]}")
    return sum(event["type"] == "task.attempt" for event in events)


async def storm(place: Place, kills: int, seed: int, say: Callable[[str], None] = print) -> Stage:
    """Let 20 runs at a time go on until so many processes were killed."""
    async with Stage(place, seed, say=say, servers_work=place.redis is None) as stage:
        begun = asyncio.Event()
        lost = 0

        async def kill_workers() -> None:
            await kill(stage, kills, begun)
            for _ in range(MORE_KILLS):  # the killed processes may have had no run in the middle
                if lost:
                    return
                await kill(stage, 1, begun)

        killing = asyncio.ensure_future(kill_workers())

        async def keep_running() -> None:
            nonlocal lost
            while True:
                run = await stage.begin(1, followers=1, agent=NAME)
                await run.shown(8)
                begun.set()
                await answer(stage, run)
                await run.over()
                lost += await check_log(stage, run.story)
                if killing.done():
                    return

        await asyncio.gather(*(keep_running() for _ in range(RUNS_AT_ONCE)))
        await killing
        await stage.check_again()
        stage.check_leases()
    stage.say(f"{stage.endings.total()} runs ({dict(stage.endings)}), {lost} attempts")
    if not lost:
        stage.findings.append("no worker was lost in the middle of a run")
    return stage
