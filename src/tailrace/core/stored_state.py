"""A saved state as stores hold it: compressed, and read without restoring it where possible."""

from __future__ import annotations

import zstandard

from tailrace.core.errors import MalformedEvent
from tailrace.core.fold import State
from tailrace.core.snapshot import HEADS, PRIVATE_LINE, restore

_ZSTD_LEVEL = 1
_PACKED = b"\x28\xb5\x2f\xfd"  # every zstd frame begins like this, and no JSON does
_SUPERSEDED = b'"superseded":true'


def packed(raw: bytes) -> bytes:
    """A saved state as stores hold it: compressed, with a checksum that `decompress` verifies."""
    return zstandard.ZstdCompressor(level=_ZSTD_LEVEL, write_checksum=True).compress(raw)


def unpacked_size(raw: bytes) -> int:
    """How many bytes of JSON a stored state has. States of older versions are not compressed."""
    try:
        return zstandard.frame_content_size(raw) if raw.startswith(_PACKED) else len(raw)
    except zstandard.ZstdError:  # damaged: `restored` finds no state in it
        return 0


def restored(raw: bytes | None) -> State:
    """The state that a store holds, or an empty state to fold from the start.

    A newer version may have saved a state that this version cannot restore. It can read the events.
    """
    if raw is None:
        return State()
    try:
        return restore(zstandard.decompress(raw) if raw.startswith(_PACKED) else raw)
    except (MalformedEvent, zstandard.ZstdError):
        return State()


def may_have_superseded(raw: bytes) -> bool:
    """Whether a stored state may have superseded items, without restoring it.

    It is looked for in pieces: restoring a large state takes ten times as long, and its memory.
    """
    if not raw.startswith(_PACKED):
        return True  # of an older version
    before, left = b"", unpacked_size(raw)
    try:
        for piece in zstandard.ZstdDecompressor().read_to_iter(raw):
            found = before + piece
            if not before and not found.startswith(HEADS):
                return True  # of a version that may write it another way
            # In JSON, no string holds these bytes: a quote inside a string has a backslash.
            if _SUPERSEDED in found:
                return True
            before, left = piece[-len(_SUPERSEDED) :], left - len(piece)
    except zstandard.ZstdError:  # damaged: the run is folded from its events
        return True
    return left != 0 or not before  # if it is cut, too


def public_part(raw: bytes) -> list[bytes] | None:
    """The JSON that `save` returns without private parts, in pieces, from a state that a store has.

    None if the state is not stored that way, so that it has to be restored first.
    """
    try:
        lines = zstandard.decompress(raw)
    except zstandard.ZstdError:
        return None
    if not lines.startswith(HEADS[-1]):
        return None
    found, start = list[bytes](), 0
    # Line by line: one search in all bytes would hold the GIL for as long as it takes, and `split`
    # would need one more copy. Stop at the first private line, so that no private part is sent.
    while not lines.startswith(PRIVATE_LINE, start):
        stop = lines.find(b"\n", start)
        if stop < 0:
            return None
        found.append(lines[start:stop])
        start = stop + 1
    return [*found, b"}"]
