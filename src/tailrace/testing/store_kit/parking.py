"""The store kit: parked runs, which wait for people without a lease."""

from __future__ import annotations

from tailrace.core.errors import SeqConflict
from tailrace.ports import Store
from tailrace.testing.store_kit.queue import LEASE
from tailrace.testing.store_kit.setup import StoreTests, batch, created, written


def unread(epochs: dict[str, int]) -> list[tuple[str, int, int]]:
    """Claims of a worker that has read no letter."""
    return [(run_id, epoch, 0) for run_id, epoch in epochs.items()]


class ParkTests(StoreTests):
    """Runs that wait for people hold no lease."""

    async def parked(self, store: Store, *run_ids: str, first_go: float = 60.0) -> dict[str, int]:
        """Runs that worker `w` claimed and parked, with their epochs."""
        for run_id in run_ids:
            await created(store, run_id)
        claims = await store.claim("w", ["a"], 60, len(run_ids))
        epochs = {claim.run_id: claim.epoch for claim in claims}
        assert await store.park("w", unread(epochs), first_go) == set(run_ids)
        return epochs

    async def test_a_parked_run_is_claimed_by_no_worker_until_a_letter_comes(
        self, store: Store
    ) -> None:
        epochs = await self.parked(store, "r", first_go=LEASE)
        await self.wait(LEASE + 0.1)
        assert await store.claim("other", ["a"], 60) == []
        assert await store.woken("w") == set()
        assert await store.post("r", "input", b"x") == 1
        assert await store.claim("other", ["a"], 60) == []  # its worker has the first go
        assert await store.woken("w") == {"r"}
        assert await store.woken("other") == set()
        await self.wait(LEASE + 0.1)
        (claim,) = await store.claim("other", ["a"], 60)
        assert (claim.run_id, claim.epoch, claim.attempt) == ("r", epochs["r"] + 1, 2)
        assert await store.woken("w") == await store.woken("other") == set()
        (stale,) = await store.append([batch("r", 2, epoch=epochs["r"])])
        assert isinstance(stale, SeqConflict)

    async def test_the_worker_that_parked_a_run_goes_on_in_its_epoch(self, store: Store) -> None:
        epochs = await self.parked(store, "r", first_go=LEASE)
        await written(store, batch("r", 2, epoch=epochs["r"]))
        await store.post("r", "input", b"x")
        assert await store.extend("w", [("r", epochs["r"])], 60) == set()
        await self.wait(LEASE + 0.1)
        assert await store.claim("other", ["a"], 60) == []
        await written(store, batch("r", 3, epoch=epochs["r"]))
        await store.acknowledge("r", 1)
        assert await store.park("w", unread(epochs), 60) == {"r"}
        assert await store.woken("w") == set()
        await store.post("r", "cancel", b"")
        await written(store, batch("r", 4, epoch=epochs["r"], ended=True))
        assert await store.woken("w") == set()
        assert await store.claim("other", ["a"], 60) == []

    async def test_a_parked_run_that_was_released_is_claimed_as_soon_as_a_letter_comes(
        self, store: Store
    ) -> None:
        epochs = await self.parked(store, "r")
        await store.release("r", epochs["r"])
        assert await store.claim("other", ["a"], 60) == []
        await store.post("r", "input", b"x")
        (claim,) = await store.claim("other", ["a"], 60)
        assert (claim.epoch, claim.attempt) == (epochs["r"] + 1, 1)

    async def test_a_run_is_parked_only_by_its_worker_and_without_a_letter(
        self, store: Store
    ) -> None:
        for run_id in ("letter", "taken", "over", "unclaimed"):
            await created(store, run_id)
        epochs = {claim.run_id: claim.epoch for claim in await store.claim("w", ["a"], 60, 3)}
        await store.post("letter", "input", b"x")
        await store.take_over("taken", "other", 60)
        await written(store, batch("over", 2, epoch=epochs["over"], ended=True))
        claims = unread(epochs | {"unclaimed": 1, "missing": 1})
        assert await store.park("w", claims, 60) == set()
        assert await store.park("other", unread(epochs), 60) == set()
        await store.acknowledge("letter", 1)
        assert await store.park("w", claims, 60) == {"letter"}

    async def test_a_run_is_parked_with_letters_that_its_worker_has_read_and_not_acknowledged(
        self, store: Store
    ) -> None:
        await created(store, "r")
        (claim,) = await store.claim("w", ["a"], 60)
        for body in (b"1", b"2", b"3"):
            await store.post("r", "input", body)
        await store.acknowledge("r", 1)
        assert await store.park("w", [("r", claim.epoch, 2)], LEASE) == set()
        assert await store.park("w", [("r", claim.epoch, 3)], LEASE) == {"r"}
        await self.wait(LEASE + 0.1)
        assert await store.claim("other", ["a"], 60) == []
        assert await store.woken("w") == set()
        await store.post("r", "input", b"4")
        assert await store.woken("w") == {"r"}
        await self.wait(LEASE + 0.1)
        assert [claim.run_id for claim in await store.claim("other", ["a"], 60)] == ["r"]
        letters = (await store.letters(["r"]))["r"]
        assert [(letter.number, letter.body) for letter in letters] == [
            (2, b"2"),
            (3, b"3"),
            (4, b"4"),
        ]

    async def test_a_parked_run_is_taken_over_and_its_worker_may_end_the_parking(
        self, store: Store
    ) -> None:
        epochs = await self.parked(store, "taken", "kept")
        taken = await store.take_over("taken", "canceller", 60)
        assert taken is not None
        assert taken.epoch == epochs["taken"] + 1
        assert await store.extend("w", list(epochs.items()), LEASE) == {"taken"}
        assert await store.woken("w") == {"kept"}
        await self.wait(LEASE + 0.1)
        (claim,) = await store.claim("other", ["a"], 60, 9)  # a lease as any other by now
        assert claim.run_id == "kept"
