"""The embedded log keeps what `EventLog` promises."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import apsw
import msgspec
import pytest

from tailrace.core.codec import encode_event
from tailrace.core.errors import SeqConflict, StorageError
from tailrace.core.events import Notice, TaskCreated, recorded
from tailrace.ports import Batch, RunInfo
from tailrace.stores.sqlite import SqliteLog


def info(run_id: str, thread_id: str = "t1", created_at: float = 1.0) -> RunInfo:
    return RunInfo(
        run_id=run_id, agent="a", thread_id=thread_id, last_seq=0, epoch=1, created_at=created_at
    )


def batch(
    run_id: str,
    first: int,
    count: int,
    *,
    epoch: int = 1,
    private: bytes = b"",
    ended: bool = False,
) -> Batch:
    events = [
        recorded(
            TaskCreated(task_id=run_id) if n == 1 else Notice(task_id=run_id, message=f"n{n}"), n
        )
        for n in range(first, first + count)
    ]
    return Batch(
        run_id=run_id,
        epoch=epoch,
        first_seq=first,
        publics=[encode_event(event) for event in events],
        privates=[private] * count,
        ended=ended,
    )


@pytest.fixture(params=["file", "memory"])
async def log(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[SqliteLog]:
    made = SqliteLog(tmp_path / "log.db" if request.param == "file" else ":memory:", now=lambda: 9)
    yield made
    await made.close()


async def test_what_was_appended_is_read_back_byte_for_byte(log: SqliteLog) -> None:
    await log.create(info("r"))
    assert await log.append([batch("r", 1, 3), batch("r", 4, 2)]) == [None, None]
    events = await log.read("r", 0)
    assert [one.event.sequence_number for one in events] == [1, 2, 3, 4, 5]
    assert [one.public for one in events] == batch("r", 1, 5).publics


@pytest.mark.parametrize("after", range(7))
async def test_reading_starts_right_after_any_cursor(log: SqliteLog, after: int) -> None:
    await log.create(info("r"))
    await log.append([batch("r", 1, 3), batch("r", 4, 3)])
    events = await log.read("r", after)
    assert [one.event.sequence_number for one in events] == list(range(after + 1, 7))


async def test_a_reader_gets_about_as_much_as_it_asked_for(log: SqliteLog) -> None:
    await log.create(info("r"))
    await log.append([batch("r", 1, 3), batch("r", 4, 3), batch("r", 7, 3)])
    assert len(await log.read("r", 0, limit=4)) == 6


async def test_an_id_is_given_once(log: SqliteLog) -> None:
    assert await log.create(info("r"))
    assert not await log.create(info("r"))


async def test_of_two_writers_of_one_place_one_wins(log: SqliteLog) -> None:
    await log.create(info("r"))
    await log.append([batch("r", 1, 2)])
    rival = batch("r", 1, 1)
    answers = await log.append([rival, batch("r", 3, 1)])
    assert isinstance(answers[0], SeqConflict)
    assert answers[1] is None


@pytest.mark.parametrize(
    "wrong", [batch("r", 5, 1), batch("r", 3, 1, epoch=2), batch("unknown", 1, 1)]
)
async def test_holes_foreign_epochs_and_unknown_runs_are_refused(
    log: SqliteLog, wrong: Batch
) -> None:
    await log.create(info("r"))
    await log.append([batch("r", 1, 2)])
    (answer,) = await log.append([wrong])
    assert isinstance(answer, SeqConflict)
    assert len(await log.read("r", 0)) == 2


async def test_the_same_batch_again_changes_nothing(log: SqliteLog) -> None:
    await log.create(info("r"))
    await log.append([batch("r", 1, 2, private=b"{}"), batch("r", 3, 2)])
    assert await log.append([batch("r", 1, 2, private=b"{}")]) == [None]
    assert len(await log.read("r", 0)) == 4
    (answer,) = await log.append([batch("r", 1, 2, private=b'{"signature":"x"}')])
    assert isinstance(answer, SeqConflict)


async def test_private_parts_are_kept_beside_their_events(log: SqliteLog) -> None:
    await log.create(info("r"))
    await log.append([batch("r", 1, 2), batch("r", 3, 2, private=b'{"signature":"s"}')])
    assert await log.read_private("r") == {3: b'{"signature":"s"}', 4: b'{"signature":"s"}'}
    assert await log.read_private("r", after=3) == {4: b'{"signature":"s"}'}


async def test_a_listing_knows_the_head_and_the_end(log: SqliteLog) -> None:
    await log.create(info("r", created_at=2))
    await log.create(info("older", created_at=1))
    await log.append([batch("r", 1, 2, ended=True)])
    found = await log.info("r")
    assert found is not None
    assert (found.last_seq, found.ended_at) == (2, 9)
    assert [one.run_id for one in await log.runs("t1")] == ["older", "r"]
    assert await log.info("nobody") is None


async def test_the_newest_snapshot_up_to_a_place_is_found(log: SqliteLog) -> None:
    await log.create(info("r"))
    for first, state in ((1, b"one"), (3, b"two")):
        with_state = batch("r", first, 2)
        await log.append([msgspec.structs.replace(with_state, snapshot=state)])
    newest, older = await log.snapshot("r"), await log.snapshot("r", 3)
    assert newest is not None
    assert older is not None
    assert (newest.seq, newest.state, older.seq, older.state) == (4, b"two", 2, b"one")
    assert await log.snapshot("r", 1) is None


async def test_what_was_acknowledged_is_there_after_reopening(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    await log.create(info("r"))
    await asyncio.gather(log.append([batch("r", 1, 2)]), log.append([batch("r", 3, 2)]))
    await log.close()
    again = SqliteLog(tmp_path / "log.db")
    assert len(await again.read("r", 0)) == 4
    await again.close()


async def test_a_damaged_row_is_noticed(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    await log.create(info("r"))
    await log.append([batch("r", 1, 2)])
    other = apsw.Connection(str(tmp_path / "log.db"))
    other.execute("update batches set public = cast(replace(public, 'n2', 'n3') as blob)")
    other.close()
    with pytest.raises(StorageError, match="damaged"):
        await log.read("r", 0)
    await log.close()


async def test_a_file_that_cannot_be_opened_is_one_clear_error(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="could not be opened"):
        SqliteLog(tmp_path / "no" / "such" / "folder" / "log.db")


async def test_a_failing_transaction_reaches_whoever_waits_for_it(tmp_path: Path) -> None:
    log = SqliteLog(tmp_path / "log.db")
    await log.create(info("r"))
    other = apsw.Connection(str(tmp_path / "log.db"))
    other.execute("drop table batches")
    other.close()
    with pytest.raises(StorageError):
        await log.append([batch("r", 1, 1)])
    await log.close()
