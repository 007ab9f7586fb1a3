"""The store kit: letters to a run."""

from __future__ import annotations

import asyncio

from tailrace.ports import Store
from tailrace.testing.store_kit.setup import (
    StoreTests,
    created,
    ended,
)


class LetterTests(StoreTests):
    """What reaches a run's writer."""

    async def test_letters_wait_in_order_until_they_are_acknowledged(self, store: Store) -> None:
        await created(store, "r")
        await created(store, "other")
        assert await store.post("r", "input", b"\x00\xff any bytes") == 1
        assert await store.post("other", "input", b"") == 1
        assert await store.post("r", "cancel", b"") == 2
        waiting = await store.letters(["r", "other", "missing"])
        assert [(letter.number, letter.kind, letter.body) for letter in waiting["r"]] == [
            (1, "input", b"\x00\xff any bytes"),
            (2, "cancel", b""),
        ]
        assert set(waiting) == {"r", "other"}
        await store.acknowledge("r", 1)
        assert [letter.number for letter in (await store.letters(["r"]))["r"]] == [2]
        await store.acknowledge("r", 99)
        assert await store.letters(["r"]) == {}
        assert list(await store.letters(["r", "other"])) == ["other"]
        assert await store.letters([]) == {}

    async def test_unread_letters_are_counted_with_their_bytes(self, store: Store) -> None:
        await created(store, "r")
        await created(store, "other")
        assert await store.unread("r") == await store.unread("missing") == (0, 0)
        for body in (b"", b"a\x00b", "ü".encode()):
            await store.post("r", "input", body)
        await store.post("other", "cancel", b"x" * 9)
        assert await store.unread("r") == (3, 5)
        await store.acknowledge("r", 2)
        assert await store.unread("r") == (1, 2)
        await store.acknowledge("r", 3)
        assert await store.unread("r") == (0, 0)

    async def test_numbers_go_on_after_an_acknowledgement(self, store: Store) -> None:
        await created(store, "r")
        await store.post("r", "input", b"1")
        await store.acknowledge("r", 7)
        assert await store.post("r", "input", b"2") == 2
        assert [letter.number for letter in (await store.letters(["r"]))["r"]] == [2]

    async def test_letters_that_are_posted_at_once_are_numbered_without_holes(
        self, store: Store
    ) -> None:
        await created(store, "r")
        posted = await asyncio.gather(*(store.post("r", "input", b"%d" % n) for n in range(50)))
        assert sorted(number or 0 for number in posted) == list(range(1, 51))
        waiting = (await store.letters(["r"]))["r"]
        assert [letter.number for letter in waiting] == list(range(1, 51))
        assert {letter.number: int(letter.body) for letter in waiting} == {
            number: n for n, number in enumerate(posted)
        }

    async def test_letters_wait_for_the_next_writer(self, store: Store) -> None:
        await created(store, "r")
        await store.take_over("r", "w", 60)
        await store.post("r", "input", b"x")
        await store.take_over("r", "other", 60)
        assert [letter.number for letter in (await store.letters(["r"]))["r"]] == [1]

    async def test_a_run_that_is_over_gets_no_letters(self, store: Store) -> None:
        await ended(store, "r")
        assert await store.post("r", "cancel", b"") is None
        assert await store.post("missing", "cancel", b"") is None
        assert await store.letters(["r", "missing"]) == {}
