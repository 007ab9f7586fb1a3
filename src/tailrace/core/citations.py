"""Citation markers: find `[^n]` in streaming text, and escape markers that tools forge.

A marker is `[^`, one to nine ASCII digits without a leading zero, `]`. The scanner, `renumber` and
`cited` share that grammar. `renumber` escapes more, because a model also accepts what only looks
like a marker.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import cache

import msgspec

from tailrace.core.items import ReferenceToBlock

_MARKER = re.compile(r"\[\^([1-9][0-9]{0,8})\]")
_UNFINISHED = re.compile(r"\[(?:\^(?:[1-9][0-9]{0,8})?)?")
_LONGEST_UNFINISHED = len("[^123456789")


class Scanned(msgspec.Struct, frozen=True, gc=False):
    """Text that may be shown now, and the citations that it completes."""

    text: str
    annotations: tuple[ReferenceToBlock, ...] = ()


_NOTHING = Scanned("")


class CitationScanner:
    """Turns markers into annotations while their text streams.

    Only an unfinished marker, at most eleven characters, is held back. So an annotation follows the
    delta that completes its marker. The returned texts together are exactly the input. A marker
    whose number is not `known` is plain text.
    """

    __slots__ = ("_known", "place")

    def __init__(self, known: Callable[[int], bool]) -> None:
        self._known = known
        self.place = (0, "")
        """`offset` and `pending`. Set it to undo a `feed` whose text was refused."""

    @property
    def offset(self) -> int:
        """Code points returned so far; `pending` begins there."""
        return self.place[0]

    @property
    def pending(self) -> str:
        """The unfinished marker that is held back, or an empty string."""
        return self.place[1]

    def feed(self, delta: str) -> Scanned:
        """Take the next piece of the text."""
        offset, pending = self.place
        if "[" not in delta and not pending:  # nearly every piece
            self.place = (offset + len(delta), "")
            return Scanned(delta)
        text, pending = pending + delta, ""
        last = text.rfind("[", max(0, len(text) - _LONGEST_UNFINISHED))
        if last >= 0 and _UNFINISHED.fullmatch(text, last):
            text, pending = text[:last], text[last:]
        scanned = Scanned(text, tuple(self._citations(text, offset)))
        self.place = (offset + len(text), pending)
        return scanned

    def _citations(self, text: str, offset: int) -> Iterator[ReferenceToBlock]:
        for match in _MARKER.finditer(text):
            number = int(match[1])
            if self._known(number):
                start, end = match.span()
                yield ReferenceToBlock(
                    reference_id=number, start_index=offset + start, end_index=offset + end
                )

    def finish(self) -> Scanned:
        """The text has ended: return what was held back as plain text."""
        offset, rest = self.place
        if not rest:
            return _NOTHING
        self.place = (offset + len(rest), "")
        return Scanned(rest)


def cited(text: str) -> Iterator[int]:
    """The number of every marker, in order, issued or not."""
    return (int(match[1]) for match in _MARKER.finditer(text))


# --- forged markers ------------------------------------------------------------------------------

# The ranges of Unicode that NFKC folds to ASCII letters, digits and signs. A search through all of
# Unicode takes half a second; a test does it and finds no others.
_LOOKALIKES = (
    range(0x2FF),
    range(0x1D00, 0x1DC0),
    range(0x2000, 0x2500),
    range(0x3200, 0x3400),
    range(0xA700, 0xA800),
    range(0xFE30, 0xFFF0),
    range(0x1D400, 0x1D800),
    range(0x1F100, 0x1F200),
    range(0x1CCD6, 0x1CCFA),  # outlined letters, since Unicode 16
)
# Invisible characters (Unicode's Default_Ignorable_Code_Point, as far as they are in use).
_INVISIBLE = (
    "\u00ad\u034f\u061c\u115f\u1160\u17b4\u17b5\u180b-\u180f\u200b-\u200f\u202a-\u202e"
    "\u2060-\u206f\u3164\ufe00-\ufe0f\ufeff\uffa0\U000e0000-\U000e0fff"
)
_DASHES = (
    "\u2010-\u2015\u2043\u2212"  # NFKC does not fold them to the hyphen, but they look like it
)
_LESS = "<\ufe64\uff1c"
_BRACKET = "[\ufe47\uff3b"


def unescape(text: str) -> str:
    """Undo the escapes of `renumber`."""
    if not _suspicious(text):
        return text
    tag, marker = _forgeries()
    text = marker.sub(lambda match: match[0] if match[2] else match[1] + match[3][1:], text)
    return tag.sub(lambda match: match[1] + match[2][1:], text)


def renumber(text: str, numbers: Mapping[int, int]) -> str:
    """Translate a text from one pool to another: `[^n]` becomes `[^numbers[n]]`.

    Other markers are escaped, because their number could mean something else in the other pool. The
    escape is a backslash after the first character of text that looks like `<referencable-item`,
    `</referencable-item` or `[^1`. Letter case, lookalike characters, spaces and invisible
    characters make no difference. The end of the marker may be in the next part. Existing
    backslashes get another, so `unescape` returns the text before the escapes.
    """
    if not _suspicious(text):
        return text
    tag, marker = _forgeries()

    def renumbered(match: re.Match[str]) -> str:
        if not match[2]:
            return match[1] + "\\" + match[3]
        number = numbers.get(int(match[2]))
        return rf"[\^{match[2]}]" if number is None else f"[^{number}]"

    text = marker.sub(renumbered, text)
    return tag.sub(lambda match: match[1] + "\\" + match[2], text)


def _suspicious(text: str) -> bool:
    return any(sign in text for sign in _LESS + _BRACKET)


@cache
def _forgeries() -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Patterns for forged tags and forged markers, compiled at first use.

    A match starts at a character that cannot occur in the rest of it, and all quantifiers are
    possessive: any text takes one pass.
    """
    alike: dict[str, str] = {}
    for block in _LOOKALIKES:
        for character in map(chr, block):
            folded = unicodedata.normalize("NFKC", character).casefold()
            # A character may fold to several digits, such as a circled 10.
            folded = "1" if folded[:1] in set("0123456789") else folded
            alike[folded] = alike.get(folded, "") + character

    unseen = f"[{_INVISIBLE}]*+"
    gap = rf"[\s{_INVISIBLE}]*+"
    dash = rf"{gap}[_{_DASHES}{re.escape(alike['-'])}]{gap}"
    letters = {letter: f"[{re.escape(alike[letter])}]" for letter in "abcefilmnrt"}
    # Our spelling and the dictionary's: a model accepts both.
    before = unseen.join(letters[letter] for letter in "referenc")
    between = f"{unseen}(?:{letters['e']}{unseen})?+"
    able, item = (unseen.join(letters[letter] for letter in word) for word in ("able", "item"))
    slash = f"(?:[{re.escape(alike['/'])}]{gap})?+"
    tag = rf"([{_LESS}])(\\*+)(?={gap}{slash}{before}{between}{able}{dash}{item})"
    marker = (
        rf"([{re.escape(_BRACKET)}])"
        r"(?:(?<=\[)\^([1-9][0-9]{0,8})\]"
        rf"|(\\*+)(?={gap}[{re.escape(alike['^'])}]{gap}[\d{re.escape(alike['1'])}]))"
    )
    return re.compile(tag), re.compile(marker)


# --- offsets for clients that count in UTF-16 ----------------------------------------------------

_ASTRAL = re.compile("[\U00010000-\U0010ffff]")


def to_utf16(text: str, offsets: Iterable[int]) -> list[int]:
    """Code-point offsets as UTF-16 offsets, as JavaScript counts; one pass over the text."""
    astral = [match.start() for match in _ASTRAL.finditer(text)]
    return [offset + bisect_left(astral, offset) for offset in offsets]


def from_utf16(text: str, offsets: Iterable[int]) -> list[int]:
    """UTF-16 offsets as code-point offsets. Inside a surrogate pair, its start is used."""
    astral = [match.start() + before for before, match in enumerate(_ASTRAL.finditer(text))]
    return [offset - bisect_left(astral, offset) for offset in offsets]
