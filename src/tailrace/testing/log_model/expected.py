"""The model of the log: what a store must hold of a run, and what a follower must receive.

It is made of lists with one entry for each event.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import dataclass, field

from tailrace.core.codec import decode_event
from tailrace.core.events import Recorded
from tailrace.ports import Batch, Claim, InboxLetter


@dataclass
class ExpectedRun:
    """A run as the store must hold it."""

    run_id: str
    thread_id: str
    agent: str
    ordinal: int
    publics: list[bytes]
    privates: list[bytes]
    epochs: list[int]
    epoch: int = 1
    attempts: int = 0
    holder: tuple[str, int] | None = None
    leased: bool = False
    parked: bool = False
    woken: bool = False
    first_go: float = 0.0
    ended: bool = False
    trimmed: bool = False
    repacked: bool = False
    deleted: bool = False
    snapshots: dict[int, bytes] = field(default_factory=dict)
    letters: list[InboxLetter] = field(default_factory=list)
    last_letter: int = 0

    @property
    def last(self) -> int:
        return len(self.publics)

    @property
    def live(self) -> bool:
        return not (self.ended or self.deleted)

    def holds(self, batch: Batch) -> bool:
        """Whether these events are there, byte for byte."""
        here = slice(batch.first_seq - 1, batch.last_seq)
        wanted = (batch.publics, batch.privates, [batch.epoch] * len(batch.publics))
        there = (self.publics[here], self.privates[here], self.epochs[here])
        return not self.trimmed and there == wanted

    def take(self, batch: Batch) -> bool:
        """Apply a batch as the store must; return whether it is accepted."""
        fits = batch.first_seq == self.last + 1 and batch.epoch == self.epoch
        if self.deleted or self.ended or not fits:
            return not self.deleted and self.holds(batch)
        self.publics += batch.publics
        self.privates += batch.privates
        self.epochs += [batch.epoch] * len(batch.publics)
        if batch.snapshot is not None:
            self.snapshots[self.last] = batch.snapshot
        if batch.ended:
            self.ended, self.holder, self.leased = True, None, False
        return True

    def claimed(self, worker: str, lease: float, *, taken: bool = False) -> Claim:
        """Apply a claim, or a takeover (`taken`); return what the store must answer."""
        self.epoch += 1
        lost = self.holder is not None
        self.attempts += lost or self.attempts == 0
        self.holder, self.leased = (worker, self.epoch), lease > 0
        self.parked = self.woken = False
        return Claim(self.run_id, self.agent, self.epoch, self.attempts, self.last, lost or taken)

    def wake(self) -> None:
        """What a letter, or its worker, changes of a parked run."""
        if self.parked:
            self.parked, self.woken = False, True
            self.leased = self.holder is not None and self.first_go > 0

    def events(self) -> list[Recorded]:
        """The log as a reader must receive it."""
        return [
            Recorded(decode_event(public), public, epoch)
            for public, epoch in zip(self.publics, self.epochs, strict=True)
        ]


@dataclass(eq=False)
class Follower:
    """A client over all its reconnects; `seen` is the cursor that it comes back with."""

    run: ExpectedRun
    seen: int
    stream: AsyncGenerator[list[Recorded], None] | None = None
    waiting: asyncio.Task[list[Recorded] | None] | None = None
    over: bool = False
