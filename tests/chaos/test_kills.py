"""Processes are killed at random while followers read: nothing is lost, repeated or reordered.

A short storm, with a quarter of its kills on PostgreSQL and Redis, which take longer. `make soak
PARTS=storms KILLS=n` runs long ones.
"""

from __future__ import annotations

import pytest

from tests.chaos.bugs import BUGS
from tests.chaos.nemesis import Chaos, attack
from tests.effort import KILLS, SEED
from tests.services import Postgres, Redis


def assert_well(chaos: Chaos) -> None:
    found = "\n".join(chaos.findings[:30])
    assert not chaos.findings, f"SEED={chaos.seed} repeats it. {chaos.summary()}\n{found}"
    assert chaos.events > 0


async def test_kills_on_sqlite() -> None:
    assert_well(await attack(KILLS, SEED))


async def test_kills_on_postgres_and_redis(postgres: Postgres, redis: Redis) -> None:
    assert_well(await attack(max(KILLS // 4, 1), SEED, postgres=postgres, redis=redis))


FOUND = {
    "publish_first": "I2: event",
    "repeat_on_resume": "I1: a repeat",
    "skip_on_resume": "I1: (a gap|it ended before)",
    "no_epoch_check": "I3: event [0-9]+ was written in epoch [0-9]+ after the claim",
    "no_seq_check": "I3: after event [0-9]+ the log goes on with",
    "no_end_check": "I4: task run_[0-9a-f]+ ends again",
    # Two write one log: what one of them wrote is gone, and so is the call whose tool it ran.
    "no_fencing": "I[23]: |I6: the tool of .* ran, and the log does not know",
    "private_on_the_wire": "a private part is on the wire",
    "two_ends": "I4: task run_[0-9a-f]+ ends again",
    # Nothing ends such a run: neither its agent nor a cancel.
    "repeat_to_the_stalled": "I1: a repeat",
    "plan_over_holes": "I3: .* does not follow",
    "join_over_holes": "I3: after event [0-9]+ the log goes on with",
    "no_renewal": "lives, and lost the run to",
    "no_bounds": "cancel was answered 413|did not end within",
}
"""What the checker says of each planted bug."""


def test_every_planted_bug_is_to_be_found() -> None:
    assert set(FOUND) == set(BUGS)


@pytest.mark.parametrize("bug", BUGS)
async def test_a_planted_bug_is_found(bug: str) -> None:
    chaos = await attack(150, SEED, bug=bug, until=FOUND[bug])
    found = chaos.found(FOUND[bug])
    assert found, f"{bug} was not found. {chaos.summary()}\n{chaos.findings[:10]}"
    print(found)


@pytest.mark.soak
@pytest.mark.parametrize("bug", ["no_epoch_check", "no_seq_check", "no_end_check"])
async def test_a_missing_guard_of_postgres_is_found(
    bug: str, postgres: Postgres, redis: Redis
) -> None:
    chaos = await attack(150, SEED, postgres=postgres, redis=redis, bug=bug, until=FOUND[bug])
    found = chaos.found(FOUND[bug])
    assert found, f"{bug} was not found. {chaos.summary()}\n{chaos.findings[:10]}"
