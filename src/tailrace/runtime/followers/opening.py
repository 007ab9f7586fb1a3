"""What a client that joins a run gets first. Clients that join a large run share it."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from copy import deepcopy
from functools import partial

from tailrace.ports import RunInfo
from tailrace.runtime.event_log.offload import LARGE_BYTES, SharedBytes, build
from tailrace.runtime.followers.follow import RunState
from tailrace.wire.base import Encoder


class RunOpening(SharedBytes):
    """The frames of a run's state, and the encoder of the events after it.

    A client that reads slowly holds the frames only, which others share. Once it has them, it
    copies the encoder. The copy shares all texts.
    """

    __slots__ = ("encoder", "is_shared", "is_whole", "seq")

    def __init__(self, parts: Iterable[bytes], encoder: Encoder, look: RunState) -> None:
        super().__init__(parts)
        self.encoder = encoder
        self.is_shared = look.weight > LARGE_BYTES
        self.is_whole = look.is_whole
        self.seq = look.state.sequence_number

    async def own_encoder(self) -> Encoder:
        """The encoder for one client."""
        if not self.is_shared:
            return self.encoder
        return await build(self.size, partial(deepcopy, self.encoder))


def stage(info: RunInfo) -> Hashable:
    """Roughly how far a run is. Clients that join it in the same stage may share an opening.

    A stage of a run that goes on is at most a quarter of its events.
    """
    end = info.last_seq if info.ended_at is not None else 0
    places = max(info.last_seq.bit_length() - 3, 0)
    return end, places, info.last_seq >> places, info.epoch, info.trimmed_to
