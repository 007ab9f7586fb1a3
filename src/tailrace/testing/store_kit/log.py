"""The store kit: what `EventLog` promises about appending and reading."""

from __future__ import annotations

import asyncio

import pytest

from tailrace.core.errors import SeqConflict
from tailrace.core.events import Unknown
from tailrace.ports import Batch, Store, Trimmed
from tailrace.ports.store import OpenStore, append_now_of
from tailrace.testing.store_kit.setup import (
    StoreTests,
    batch,
    created,
    ended,
    new_run,
    numbers,
    public,
    written,
)

HOSTILE = [
    "🙂‍↔️ é ß 中",
    'it\'s "quoted"; drop table runs; --',
    "back\\slash %s %(x)s $1 ?1 :x",
    "\u2028\u0085\u202e\ufeff",
    "line\nbreak\ttab",
    " ",
    "x" * 2_000,
]
PRIVATE = b'{"signature":"s"}'


class AppendTests(StoreTests):
    """Creating runs and appending to them."""

    async def test_a_created_run_has_its_first_event(self, store: Store) -> None:
        info = await created(store, "r", private=PRIVATE)
        assert (info.last_seq, info.epoch, info.attempts) == (1, 1, 0)
        assert (info.ordinal, info.ended_at, info.trimmed_to) == (1, None, 0)
        assert info.created_at > 0
        assert await store.info("r") == info
        (event,) = await store.read("r", 0)
        assert (event.public, event.epoch) == (public("r", 1), 1)
        assert await store.read_private("r") == {1: PRIVATE}

    async def test_epochs_rise_from_the_one_that_a_run_is_created_with(self, store: Store) -> None:
        assert (await created(store, "r", epoch=4711)).epoch == 4711
        (event,) = await store.read("r", 0)
        assert event.epoch == 4711
        claim = await store.take_over("r", "w", 60.0)
        assert claim is not None
        assert claim.epoch == 4712

    async def test_an_id_is_given_once(self, store: Store) -> None:
        info = await created(store, "r")
        assert await store.create(new_run("r", owner="o", thread_id="u", agent="b")) is None
        assert await store.info("r") == info
        assert await store.thread_runs("u") == []
        assert (await created(store, "s", owner="o", thread_id="u")).ordinal == 1

    async def test_of_creators_racing_for_one_id_exactly_one_wins(self, store: Store) -> None:
        made = await asyncio.gather(*(store.create(new_run("r")) for _ in range(50)))
        assert len([info for info in made if info is not None]) == 1
        assert await numbers(store, "r") == [1]

    async def test_what_a_run_was_given_is_kept(self, store: Store) -> None:
        info = await created(store, "r", owner="o", previous_run_id="earlier", agent="b")
        assert (info.owner, info.previous_run_id, info.agent) == ("o", "earlier", "b")

    async def test_a_threads_runs_are_numbered_without_holes_in_a_race(self, store: Store) -> None:
        infos = await asyncio.gather(*(created(store, f"r{n}") for n in range(50)))
        assert sorted(info.ordinal for info in infos) == list(range(1, 51))

    async def test_threads_of_two_owners_are_two_threads(self, store: Store) -> None:
        for owner in ("one", "two"):
            for ordinal in (1, 2):
                info = await created(store, f"{owner}{ordinal}", owner=owner)
                assert info.ordinal == ordinal

    async def test_a_place_in_a_thread_is_never_given_twice(self, store: Store) -> None:
        await created(store, "r1")
        await created(store, "r2")
        await store.delete("r2")
        assert (await created(store, "r3")).ordinal == 3

    async def test_what_was_appended_is_read_back_byte_for_byte(self, store: Store) -> None:
        await created(store, "r")
        await written(store, batch("r", 2, 3), batch("r", 5, 2))
        events = await store.read("r", 0)
        assert [recorded.event.sequence_number for recorded in events] == [1, 2, 3, 4, 5, 6]
        assert [recorded.public for recorded in events] == [public("r", seq) for seq in range(1, 7)]

    async def test_of_writers_racing_for_one_seq_exactly_one_wins(self, store: Store) -> None:
        await created(store, "r")
        racers = [batch("r", 2, text=f"racer {n}") for n in range(30)]
        answers = await asyncio.gather(*(store.append([racer]) for racer in racers))
        winners = [
            racer for racer, (answer,) in zip(racers, answers, strict=True) if answer is None
        ]
        assert len(winners) == 1
        assert all(isinstance(a, SeqConflict) for (a,) in answers if a is not None)
        assert [recorded.public for recorded in await store.read("r", 1)] == winners[0].publics

    @pytest.mark.parametrize(
        "wrong",
        [
            pytest.param(batch("r", 5), id="hole"),
            pytest.param(batch("r", 3, text="other"), id="taken"),
            pytest.param(batch("r", 3, 3, text="other"), id="overlap"),
            pytest.param(batch("r", 3, 3), id="longer-than-what-is-there"),
            pytest.param(batch("r", 4, epoch=2), id="epoch-to-come"),
            pytest.param(batch("r", 4, epoch=0), id="epoch-gone"),
            pytest.param(batch("missing", 1), id="unknown-run"),
        ],
    )
    async def test_what_does_not_continue_the_log_is_refused(
        self, store: Store, wrong: Batch
    ) -> None:
        await created(store, "r")
        await written(store, batch("r", 2, 2))
        (answer,) = await store.append([wrong])
        assert isinstance(answer, SeqConflict)
        assert await numbers(store, "r") == [1, 2, 3]

    async def test_what_is_written_without_a_wait_is_written_whole_or_not(
        self, store: Store
    ) -> None:
        append_now = append_now_of(store)
        if append_now is None:  # most stores have to wait
            return
        for run_id in ("a", "b"):
            await created(store, run_id)
        assert append_now([batch("a", 2), batch("b", 2, epoch=7)]) is None
        assert append_now([batch("a", 2), batch("b", 4)]) is None
        assert (await numbers(store, "a"), await numbers(store, "b")) == ([1], [1])
        if append_now([batch("a", 2), batch("b", 2, ended=True)]) is not None:
            assert (await numbers(store, "a"), await numbers(store, "b")) == ([1, 2], [1, 2])
            assert append_now([batch("b", 3)]) is None  # it has ended

    async def test_a_refused_batch_takes_no_other_with_it(self, store: Store) -> None:
        for run_id in "abc":
            await created(store, run_id)
        group = [batch("a", 2), batch("b", 9, snapshot=b"never"), batch("c", 2)]
        answers = await store.append(group)
        assert [type(answer) for answer in answers] == [type(None), SeqConflict, type(None)]
        assert [await numbers(store, run_id) for run_id in "abc"] == [[1, 2], [1], [1, 2]]
        assert await store.snapshot("b") is None

    async def test_a_malformed_batch_is_refused_alone(self, store: Store) -> None:
        await created(store, "a")
        await created(store, "b")
        empty = Batch(run_id="b", epoch=1, first_seq=2, publics=[], privates=[])
        uneven = Batch(run_id="b", epoch=1, first_seq=2, publics=[public("b", 2)], privates=[])
        answers = await store.append([empty, batch("a", 2), uneven])
        assert [answer is None for answer in answers] == [False, True, False]
        assert [await numbers(store, run_id) for run_id in "ab"] == [[1, 2], [1]]

    async def test_the_same_batch_again_changes_nothing(self, store: Store) -> None:
        await created(store, "r")
        first, last = batch("r", 2, 2, private=PRIVATE), batch("r", 4, 2, ended=True)
        await written(store, first)
        await written(store, first)
        await written(store, last)
        before = await store.info("r")
        await written(store, first, last)
        await store.repack("r")
        await written(store, first, last)
        assert await store.info("r") == before
        assert await numbers(store, "r") == [1, 2, 3, 4, 5]

    async def test_a_batch_that_got_through_before_a_take_over_is_accepted_again(
        self, store: Store
    ) -> None:
        await created(store, "r")
        await written(store, batch("r", 2))
        await store.take_over("r", "w", 60)
        await written(store, batch("r", 2))
        assert await numbers(store, "r") == [1, 2]

    async def test_the_same_events_of_another_epoch_are_others(self, store: Store) -> None:
        await created(store, "r")
        await written(store, batch("r", 2, 2))
        claim = await store.take_over("r", "w", 60)
        assert claim is not None
        (answer,) = await store.append([batch("r", 2, 2, epoch=claim.epoch)])
        assert isinstance(answer, SeqConflict)

    async def test_the_same_event_with_another_private_part_is_another(self, store: Store) -> None:
        await created(store, "r")
        await written(store, batch("r", 2, private=PRIVATE))
        for other in (b"", b'{"signature":"t"}'):
            (answer,) = await store.append([batch("r", 2, private=other)])
            assert isinstance(answer, SeqConflict)

    async def test_nothing_is_appended_after_the_end(self, store: Store) -> None:
        await ended(store, "r")
        for epoch in (1, 2):
            (answer,) = await store.append([batch("r", 4, epoch=epoch)])
            assert isinstance(answer, SeqConflict)
        assert await numbers(store, "r") == [1, 2, 3]

    async def test_runs_that_are_written_at_once_stay_apart(self, store: Store) -> None:
        async def write(run_id: str) -> None:
            await created(store, run_id)
            for first in range(2, 42, 2):
                await written(store, batch(run_id, first, 2, text=run_id))

        await asyncio.gather(*(write(f"r{n}") for n in range(20)))
        for n in range(20):
            assert await numbers(store, f"r{n}") == list(range(1, 42))
            assert all(b'"r%d"' % n in recorded.public for recorded in await store.read(f"r{n}", 0))

    async def test_a_writer_that_stops_waiting_leaves_no_hole(self, store: Store) -> None:
        await created(store, "r")
        waiting = asyncio.ensure_future(store.append([batch("r", 2, 2)]))
        await asyncio.sleep(0)
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        await written(store, batch("r", 2, 2))
        await written(store, batch("r", 4))
        assert await numbers(store, "r") == [1, 2, 3, 4]

    @pytest.mark.parametrize("text", HOSTILE, ids=range(len(HOSTILE)))
    async def test_any_text_is_only_text(self, store: Store, text: str) -> None:
        await created(store, "plain")
        info = await created(store, text, agent=text, thread_id=text, owner=text)
        assert (info.agent, info.thread_id, info.owner) == (text, text, text)
        await written(store, batch(text, 2, text=text, private=PRIVATE))
        assert [recorded.public for recorded in await store.read(text, 1)] == [
            public(text, 2, text)
        ]
        assert [run.run_id for run in await store.thread_runs(text, owner=text)] == [text]
        assert [claim.run_id for claim in await store.claim(text, [text], 60, 9)] == [text]
        assert await store.post(text, "input", text.encode()) == 1
        assert list(await store.letters([text, "plain"])) == [text]
        assert list(await store.heads([text])) == [text]
        assert await store.delete(text)
        assert await numbers(store, "plain") == [1]


class ReadTests(StoreTests):
    """Reading what is there."""

    @pytest.mark.parametrize("after", range(9))
    async def test_reading_starts_right_after_any_cursor(self, store: Store, after: int) -> None:
        await created(store, "r")
        await written(store, batch("r", 2, 3), batch("r", 5, 3))
        assert await numbers(store, "r", after) == list(range(after + 1, 8))

    async def test_a_reader_gets_about_as_much_as_it_asked_for(self, store: Store) -> None:
        await created(store, "r")
        for first in range(2, 32, 3):
            await written(store, batch("r", first, 3))
        few = await store.read("r", 0, limit=4)
        assert [recorded.event.sequence_number for recorded in few] == list(range(1, len(few) + 1))
        assert 4 <= len(few) < 31
        assert len(await store.read("r", 4, limit=1)) >= 1

    async def test_a_long_run_is_read_whole_in_pieces(self, store: Store) -> None:
        await created(store, "r")
        await written(store, *(batch("r", first, 700) for first in range(2, 14_002, 700)))
        assert await numbers(store, "r") == list(range(1, 14_002))

    async def test_large_events_are_kept_whole(self, store: Store) -> None:
        await created(store, "r")
        await written(store, batch("r", 2, 5, text="é" * 1_000_000, private=b'"p"'))
        assert await numbers(store, "r") == [1, 2, 3, 4, 5, 6]
        (last,) = await store.read("r", 5)
        assert last.public == public("r", 6, "é" * 1_000_000)

    async def test_events_of_a_later_version_are_kept_as_they_are(self, store: Store) -> None:
        await created(store, "r")
        raw = b'{"type":"task.to_come","task_id":"r","sequence_number":2,"new":[1,{"x":null}]}'
        await written(store, Batch(run_id="r", epoch=1, first_seq=2, publics=[raw], privates=[b""]))
        (event,) = await store.read("r", 1)
        assert isinstance(event.event, Unknown)
        assert event.public == raw

    async def test_each_event_names_the_epoch_that_wrote_it(self, store: Store) -> None:
        await created(store, "r")
        await written(store, batch("r", 2))
        claim = await store.take_over("r", "w", 60)
        assert claim is not None
        await written(store, batch("r", 3, epoch=claim.epoch, ended=True))
        for _ in range(2):
            assert [recorded.epoch for recorded in await store.read("r", 0)] == [1, 1, claim.epoch]
            await store.repack("r")

    async def test_private_parts_are_kept_beside_their_events(self, store: Store) -> None:
        await created(store, "r")
        await written(store, batch("r", 2, 2), batch("r", 4, 2, private=PRIVATE), batch("r", 6))
        assert await store.read_private("r") == {4: PRIVATE, 5: PRIVATE}
        assert await store.read_private("r", after=4) == {5: PRIVATE}
        assert not any(PRIVATE in recorded.public for recorded in await store.read("r", 0))

    async def test_an_ended_run_that_is_packed_reads_as_before(self, store: Store) -> None:
        await created(store, "r")
        for seq in range(2, 40):
            await written(store, batch("r", seq, private=PRIVATE if seq % 2 else b""))
        await store.repack("r")
        for seq in range(40, 50):
            await written(store, batch("r", seq, ended=seq == 49))
        events, privates = await store.read("r", 0), await store.read_private("r")
        for _ in range(2):
            await store.repack("r")
            for after in (0, 1, 20, 39, 48, 49):
                assert await store.read("r", after) == events[after:]
            assert await store.read_private("r") == privates
            assert await store.read_private("r", 20) == {n: privates[n] for n in range(21, 40, 2)}

    async def test_of_the_snapshots_of_a_packed_run_the_last_is_there(self, store: Store) -> None:
        await created(store, "r")
        for seq in range(2, 12):
            await written(store, batch("r", seq, snapshot=b"%d" % seq))
        await store.repack("r")
        found = await store.snapshot("r")
        assert found is not None
        assert (found.seq, found.state) == (11, b"11")
        source = await store.state_source("r", 10)
        assert source is not None
        assert len(source.events) >= 10 - (
            source.snapshot.seq if source.snapshot is not None else 0
        )

    async def test_a_listing_knows_the_head_and_the_end(self, store: Store) -> None:
        await created(store, "live")
        await ended(store, "over")
        live, over = await store.info("live"), await store.info("over")
        assert live is not None
        assert over is not None
        assert (live.last_seq, live.ended_at) == (1, None)
        assert over.last_seq == 3
        assert over.ended_at is not None
        assert over.ended_at >= over.created_at
        heads = await store.heads(["live", "missing", "over", "live"])
        assert {run_id: (h.last_seq, h.epoch, h.ended) for run_id, h in heads.items()} == {
            "live": (1, 1, False),
            "over": (3, 1, True),
        }
        assert await store.heads([]) == {}

    async def test_thousands_of_heads_are_one_question(self, store: Store) -> None:
        await created(store, "r")
        assert list(await store.heads(["r", *(f"missing {n}" for n in range(40_000))])) == ["r"]

    async def test_of_an_unknown_run_there_is_nothing(self, store: Store) -> None:
        assert await store.info("missing") is None
        assert await store.read("missing", 0) == []
        assert await store.read_private("missing") == {}
        assert await store.snapshot("missing") is None
        assert await store.thread_runs("nowhere") == []
        assert not await store.delete("missing")
        await store.repack("missing")
        await store.trim("missing", b"final")
        await store.release("missing", 1)
        await store.acknowledge("missing", 1)

    async def test_the_newest_snapshot_up_to_a_place_is_found(self, store: Store) -> None:
        await created(store, "r")
        await written(store, batch("r", 2, 2, snapshot=b"one"), batch("r", 4, 2, snapshot=b"two"))
        found = {at: await store.snapshot("r", at) for at in (None, 6, 5, 4, 3, 2)}
        assert {at: value and (value.seq, value.state) for at, value in found.items()} == {
            None: (5, b"two"),
            6: (5, b"two"),
            5: (5, b"two"),
            4: (3, b"one"),
            3: (3, b"one"),
            2: None,
        }

    async def test_one_look_brings_what_a_state_is_folded_from(self, store: Store) -> None:
        await created(store, "r")
        await written(store, batch("r", 2, 2, snapshot=b"one"))
        claim = await store.take_over("r", "w", 60)
        assert claim is not None
        await written(store, batch("r", 4, 3, epoch=claim.epoch))
        await store.take_over("r", "w", 60)  # who has written nothing yet
        for packed in (False, True):
            if packed:
                await store.repack("r")
            for at in (None, 9, 6, 5, 4, 3, 2, 1, 0):
                found = await store.state_source("r", at)
                assert found is not None
                assert found.info == await store.info("r")
                assert found.snapshot == await store.snapshot("r", at)
                last = 6 if at is None else min(at, 6)
                seen = found.snapshot.seq if found.snapshot is not None else 0
                following = await store.read("r", seen) if seen < last else []
                assert found.events == following[: len(found.events)]
                assert seen + len(found.events) >= last
                assert found.epoch == (None if at == 0 else 1 if last < 4 else claim.epoch)
        assert await store.state_source("missing") is None

    async def test_of_a_trimmed_run_one_look_brings_the_final_state(self, store: Store) -> None:
        await created(store, "r")
        await written(store, batch("r", 2, 3, snapshot=b"early", ended=True))
        await store.trim("r", b"final")
        for at in (None, 4, 9):
            found = await store.state_source("r", at)
            assert found is not None
            assert found.snapshot is not None
            assert (found.snapshot.seq, found.snapshot.state) == (4, b"final")
            assert (found.events, found.epoch) == ([], None)
        for at in (1, 3):
            with pytest.raises(Trimmed):
                await store.state_source("r", at)

    async def test_what_was_answered_is_there_after_reopening(
        self, store: Store, opener: OpenStore
    ) -> None:
        await created(store, "r", owner="o")
        claim = await store.take_over("r", "w", 60)
        assert claim is not None
        await asyncio.gather(
            *(
                store.append([batch("r", seq, epoch=2, private=PRIVATE, snapshot=b"s")])
                for seq in (2, 3, 4)
            )
        )
        await store.post("r", "input", b"letter")
        digest = await store.put_blob(b"blob", "text/plain")
        before = await store.info("r")
        await store.close()
        again = await opener()
        try:
            assert await again.info("r") == before
            assert await numbers(again, "r") == [1, 2, 3, 4]
            assert await again.read_private("r") == dict.fromkeys((2, 3, 4), PRIVATE)
            assert await again.snapshot("r") is not None
            assert list(await again.letters(["r"])) == ["r"]
            assert await again.blob(digest) == (b"blob", "text/plain")
            assert await again.claim("other", ["a"], 60) == []
            await written(again, batch("r", 5, epoch=claim.epoch))
        finally:
            await again.close()

    async def test_closing_finishes_what_is_under_way(
        self, store: Store, opener: OpenStore
    ) -> None:
        await created(store, "r")
        writing = asyncio.ensure_future(store.append([batch("r", 2, 500)]))
        await asyncio.sleep(0)
        await store.close()
        assert await writing == [None]
        await store.close()
        if self.durable:
            again = await opener()
            assert len(await numbers(again, "r")) == 501
            await again.close()

    async def test_two_that_share_a_store_see_the_same_log(
        self, store: Store, second: Store
    ) -> None:
        await created(store, "r")
        await written(second, batch("r", 2, 2))
        await written(store, batch("r", 4))
        assert await numbers(second, "r") == await numbers(store, "r") == [1, 2, 3, 4]
        racers = [
            (opened, batch("r", 5, text=f"racer {n}"))
            for n in range(10)
            for opened in (store, second)
        ]
        answers = await asyncio.gather(*(racer.append([rival]) for racer, rival in racers))
        assert [answer for (answer,) in answers].count(None) == 2  # each text is sent by both
        assert await numbers(second, "r") == [1, 2, 3, 4, 5]
