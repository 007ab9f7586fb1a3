"""Processes are killed at random while declared agents work: every run ends, no tool runs twice.

`make soak PARTS=storms KILLS=n` kills more of them.
"""

from __future__ import annotations

from pathlib import Path

from tests.chaos.agent_storm import storm
from tests.chaos.stage import Place, Stage
from tests.effort import KILLS, SEED
from tests.services import Postgres, Redis


def assert_well(stage: Stage) -> None:
    found = "\n".join(stage.findings[:20])
    assert not stage.findings, f"SEED={stage.seed} repeats it. {stage.endings}\n{found}"
    assert stage.events > 0


async def test_kills_of_declared_agents_on_sqlite(tmp_path: Path) -> None:
    assert_well(await storm(Place(tmp_path), max(KILLS // 4, 1), SEED))


async def test_kills_of_declared_agents_on_postgres_and_redis(
    tmp_path: Path, postgres: Postgres, redis: Redis
) -> None:
    assert_well(await storm(Place(tmp_path, postgres, redis), max(KILLS // 8, 1), SEED))
