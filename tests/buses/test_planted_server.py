"""The kit of buses with a server finds what is wrong: each of these mistakes, planted into a bus.

The bus and its server are small and in this process. Without a mistake they pass the kit.
"""

from __future__ import annotations

import msgspec
import pytest

from tailrace.buses.local import LocalBus
from tailrace.core.errors import TailraceError
from tailrace.core.events import Event, Notice, Private, Recorded
from tailrace.ports import Bus, Subscription
from tailrace.runtime.event_log.emitter import Emitter
from tailrace.testing import bus_kit
from tailrace.testing.bus_kit import ServerBusKit

WITHIN = 0.5
"""Seconds that the kit waits for what never comes."""


class Server:
    """Keeps messages, numbered from 1, for the buses that are connected."""

    def __init__(self) -> None:
        self.is_up = True
        self.flushes = 0
        self.last = 0
        self.messages: dict[int, tuple[str, list[Recorded]]] = {}
        self.buses: list[ServerBus] = []

    def send(self, sender: ServerBus, run_id: str, events: list[Recorded]) -> None:
        self.last += 1
        self.messages[self.last] = (run_id, events)
        for bus in self.buses:
            bus.read(passed_on=bus is not sender)

    def stop(self) -> None:
        self.is_up = False

    def start(self) -> None:
        self.is_up = True
        for bus in self.buses:
            bus.reconnect()

    def flush(self) -> None:
        self.flushes += 1
        self.last = 0
        self.messages.clear()


class ServerBus(LocalBus):
    """Readers of this process hear at once, readers of other processes through the server."""

    def __init__(self, server: Server) -> None:
        super().__init__()
        self.server = server
        self.place = server.last
        self.flushes = server.flushes
        server.buses.append(self)

    def publish(self, run_id: str, events: list[Recorded]) -> None:
        super().publish(run_id, events)
        if self.server.is_up and events:
            self.server.send(self, run_id, events)

    def read(self, passed_on: bool) -> None:
        """Pass the messages after the place on to the readers of this process."""
        if self.flushes != self.server.flushes:
            self.restart_at_flush()
        for number, (run_id, events) in self.server.messages.items():
            if number > self.place and passed_on:
                LocalBus.publish(self, run_id, events)
        self.place = self.server.last

    def restart_at_flush(self) -> None:
        self.flushes, self.place = self.server.flushes, 0

    def reconnect(self) -> None:
        self.miss()

    async def check(self) -> None:
        if not self.server.is_up:
            raise TailraceError("The server does not answer. Start it.")

    async def close(self) -> None:
        if self in self.server.buses:
            self.server.buses.remove(self)
        await super().close()


class RaisesWithoutItsServer(ServerBus):
    def publish(self, run_id: str, events: list[Recorded]) -> None:
        super().publish(run_id, events)
        if not self.server.is_up:
            raise ConnectionError("refused")


class IsSilentWithoutItsServer(ServerBus):
    def publish(self, run_id: str, events: list[Recorded]) -> None:
        if self.server.is_up:
            super().publish(run_id, events)


class ChecksNothing(ServerBus):
    async def check(self) -> None:
        pass


class StaysAway(ServerBus):
    """Its check fails for ever after the server was away."""

    async def check(self) -> None:
        if not self.server.is_up:
            self.server = Server()
            self.server.is_up = False
        await super().check()


class NeverReconnects(ServerBus):
    def reconnect(self) -> None:
        self.server.buses.remove(self)


class ForgetsNewReadersAfterARestart(ServerBus):
    is_old = False

    def reconnect(self) -> None:
        self.is_old = True

    def subscribe(self, run_id: str) -> Subscription:
        return super().subscribe("lost" if self.is_old else run_id)


class HidesARestart(ServerBus):
    def reconnect(self) -> None:
        pass


class KeepsItsPlaceAfterAFlush(ServerBus):
    def restart_at_flush(self) -> None:
        self.place = 10**9


class CountsMessagesThatMayBeTrimmed(ServerBus):
    heard = 0

    def read(self, passed_on: bool) -> None:
        messages = list(self.server.messages.values())
        for run_id, events in messages[self.heard :] if passed_on else []:
            LocalBus.publish(self, run_id, events)
        self.heard = max(self.heard, len(messages))


class KitOfServer(ServerBusKit):
    """The kit with a server of its own for each test."""

    bus: type[ServerBus] = ServerBus

    def __init__(self) -> None:
        self.server = Server()

    async def make(self) -> Bus:
        return self.bus(self.server)

    async def make_other(self, bus: Bus) -> Bus:
        return await self.make()

    async def stop_server(self) -> None:
        self.server.stop()

    async def start_server(self) -> None:
        self.server.start()

    async def flush_server(self) -> None:
        self.server.flush()

    async def trim_server(self) -> None:
        self.server.messages.clear()

    async def on_the_server(self) -> bytes:
        messages = self.server.messages.values()
        return b"\n".join(one.public for _, events in messages for one in events)


KIT = sorted(name for name in vars(ServerBusKit) if name.startswith("test_"))


@pytest.mark.parametrize("test", KIT)
async def test_the_kit_accepts_a_bus_without_a_mistake(test: str) -> None:
    await getattr(KitOfServer(), test)()


@pytest.mark.parametrize(
    ("bus", "test"),
    [
        (RaisesWithoutItsServer, "without_its_server_publishing_neither_waits_nor_raises"),
        (IsSilentWithoutItsServer, "without_its_server_publishing_neither_waits_nor_raises"),
        (ChecksNothing, "a_check_fails_while_the_server_does_not_answer"),
        (StaysAway, "a_check_fails_while_the_server_does_not_answer"),
        (NeverReconnects, "after_a_restart_readers_hear_again"),
        (ForgetsNewReadersAfterARestart, "after_a_restart_readers_hear_again"),
        (HidesARestart, "after_a_restart_readers_read_the_log"),
        (KeepsItsPlaceAfterAFlush, "after_a_flush_readers_hear_again"),
        (CountsMessagesThatMayBeTrimmed, "after_a_trim_readers_hear_again"),
    ],
)
async def test_the_kit_finds_a_bus_that(
    bus: type[ServerBus], test: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bus_kit, "DEADLINE", WITHIN)
    monkeypatch.setattr(KitOfServer, "bus", bus)
    found = (AssertionError, TimeoutError, ConnectionError, TailraceError, pytest.fail.Exception)
    with pytest.raises(found):
        await getattr(KitOfServer(), f"test_{test}")()


async def test_the_kit_finds_private_parts_on_the_server(monkeypatch: pytest.MonkeyPatch) -> None:
    emit = Emitter.emit

    def leak(self: Emitter, event: Event, private: Private | None = None) -> None:
        if isinstance(event, Notice) and private is not None:
            event = msgspec.structs.replace(event, message=f"{event.message} {private.raw}")
        emit(self, event, private)

    monkeypatch.setattr(Emitter, "emit", leak)
    with pytest.raises(AssertionError, match="canary"):
        await KitOfServer().test_no_private_part_reaches_the_server()


def test_every_test_of_the_kit_has_a_mistake_that_it_finds() -> None:
    marks = test_the_kit_finds_a_bus_that.pytestmark  # type: ignore[attr-defined]
    planted = {f"test_{test}" for _, test in marks[0].args[1]}
    assert planted | {"test_no_private_part_reaches_the_server"} == set(KIT)
