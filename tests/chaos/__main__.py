"""The storms of `make soak`: KILLS on SQLite, then as many on PostgreSQL and Redis."""

from __future__ import annotations

import asyncio
import os
import sys
import tempfile
from pathlib import Path

from tests.chaos import agent_storm
from tests.chaos.nemesis import attack
from tests.chaos.stage import Place
from tests.effort import KILLS, SEED
from tests.services import Postgres, Redis

AWAY = 5.0
"""Seconds for which a database stays down at most, or its disk full."""


def main() -> int:
    only = os.environ.get("ON") or "sqlite postgres"
    print(f"{KILLS} kills each on {only}; SEED={SEED} repeats them")
    wrong = 0
    if "sqlite" in only:
        wrong += storm("SQLite")
    if "postgres" in only:
        postgres, redis = Postgres(), Redis()
        try:
            wrong += storm("PostgreSQL and Redis", postgres, redis)
        finally:
            postgres.close()
            redis.close()
    return 1 if wrong else 0


def storm(where: str, postgres: Postgres | None = None, redis: Redis | None = None) -> int:
    """Run a storm; return the number of findings."""

    def say(line: str) -> None:
        print(f"{where}: {line}", flush=True)

    chaos = asyncio.run(attack(KILLS, SEED, postgres=postgres, redis=redis, away=AWAY, say=say))
    with tempfile.TemporaryDirectory(prefix="tailrace-chaos-") as folder:
        place = Place(Path(folder), postgres, redis)
        agents = asyncio.run(agent_storm.storm(place, KILLS, SEED, say))
    findings = [*chaos.findings, *agents.findings]
    for finding in findings[:50]:
        say(f"SEED={SEED}: {finding}")
    return len(findings)


if __name__ == "__main__":
    sys.exit(main())
