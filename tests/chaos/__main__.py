"""`make chaos KILLS=n`: so many kills on SQLite, then as many on PostgreSQL and Redis."""

from __future__ import annotations

import asyncio
import os
import random
import sys

from tests.chaos.nemesis import attack
from tests.services import Postgres, Redis

AWAY = 5.0
"""Seconds for which a database stays down at most, or its disk full."""


def main() -> int:
    kills = int(os.environ.get("KILLS") or 200)
    seed = int(os.environ.get("SEED") or random.randrange(10**6))
    only = os.environ.get("ON") or "sqlite postgres"
    print(f"{kills} kills each on {only}; SEED={seed} repeats them")
    wrong = 0
    if "sqlite" in only:
        wrong += storm("SQLite", kills, seed)
    if "postgres" in only:
        postgres, redis = Postgres(), Redis()
        try:
            wrong += storm("PostgreSQL and Redis", kills, seed, postgres, redis)
        finally:
            postgres.close()
            redis.close()
    return 1 if wrong else 0


def storm(
    where: str,
    kills: int,
    seed: int,
    postgres: Postgres | None = None,
    redis: Redis | None = None,
) -> int:
    """One storm; how much is wrong."""

    def say(line: str) -> None:
        print(f"{where}: {line}", flush=True)

    chaos = asyncio.run(attack(kills, seed, postgres=postgres, redis=redis, away=AWAY, say=say))
    for finding in chaos.findings[:50]:
        say(f"SEED={seed}: {finding}")
    return len(chaos.findings)


if __name__ == "__main__":
    sys.exit(main())
