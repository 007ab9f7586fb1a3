"""Citations: found wherever the stream is cut, and not to be forged."""

import re
import time
import unicodedata
from itertools import pairwise

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tailrace.core.citations import (
    CitationScanner,
    Scanned,
    cited,
    from_utf16,
    renumber,
    to_utf16,
    unescape,
)
from tailrace.core.items import ReferenceToBlock


def scan(pieces: list[str], known: range = range(1, 10**9)) -> tuple[str, list[ReferenceToBlock]]:
    scanner = CitationScanner(known.__contains__)
    scanned = [*(scanner.feed(piece) for piece in pieces), scanner.finish()]
    text = "".join(each.text for each in scanned)
    assert scanner.offset == len(text)
    assert scanner.pending == ""
    return text, [note for each in scanned for note in each.annotations]


def escaped(text: str) -> str:
    return renumber(text, {})


def note(number: int, start: int, end: int) -> ReferenceToBlock:
    return ReferenceToBlock(reference_id=number, start_index=start, end_index=end)


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    edges = [0, *sorted(cuts), len(text)]
    return [text[a:b] for a, b in pairwise(edges)]


# --- the scanner -------------------------------------------------------------------------------


def test_the_marker_of_the_source_document_stands_at_56_to_60() -> None:
    text = "The weather in Paris is sunny with a temperature of 15C.[^1]"
    assert scan([text]) == (text, [note(1, 56, 60)])


@pytest.mark.parametrize(
    ("text", "notes"),
    [
        ("[^1]", [note(1, 0, 4)]),
        ("[^1][^2]", [note(1, 0, 4), note(2, 4, 8)]),
        ("a[^123456789]", [note(123456789, 1, 13)]),
        ("[^1234567890]", []),  # ten digits are no number of ours
        ("[[^1]]", [note(1, 1, 5)]),
        ("[^[^1]", [note(1, 2, 6)]),
        ("[^1[^2]", [note(2, 3, 7)]),
        ("[^0] [^01] [^1 ] [^ 1] [1] [^] [^a] [^-1] [^1.5] ^1]", []),
        ("［^1］ [^２] [＾1] [\\^1]", []),
        ("天气很好[^1]。👩‍👩‍👧[^2]", [note(1, 4, 8), note(2, 14, 18)]),
        ("[", []),
        ("x[^12", []),
        ("", []),
    ],
)
def test_every_split_of_a_text_gives_the_same_citations_and_the_same_text(
    text: str, notes: list[ReferenceToBlock]
) -> None:
    assert scan([text]) == (text, notes)
    assert scan(list(text)) == (text, notes)
    for first in range(len(text) + 1):
        for second in range(first, len(text) + 1):
            assert scan(pieces_of(text, [first, second])) == (text, notes)


TEXTS = st.lists(
    st.sampled_from(
        [
            *("[", "[^", "^", "]", "[^1]", "[^12]", "1", "0", "9", "123456789", "\\", "１", "x"),
            *("😀", "天", "👩‍👩‍👧", "e\u0301", "[^0", " ", "[^1234567890]"),
        ]
    )
    | st.text(st.characters(codec="utf-8"), max_size=3)
).map("".join)


@given(TEXTS, st.data())
def test_a_cut_anywhere_is_invisible(text: str, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text))))
    expected = [
        note(int(match[1]), match.start(), match.end())
        for match in re.finditer(r"\[\^([1-9][0-9]{0,8})\]", text)
    ]
    assert scan([text]) == (text, expected)
    assert scan(pieces_of(text, cuts)) == (text, expected)
    assert [each.reference_id for each in expected] == list(cited(text))


@given(TEXTS)
def test_an_annotation_comes_with_the_delta_that_completes_its_marker(text: str) -> None:
    scanner = CitationScanner(lambda _: True)
    shown = 0
    for character in text:
        scanned = scanner.feed(character)
        shown += len(scanned.text)
        assert scanner.offset == shown
        assert len(scanner.pending) <= len("[^123456789")
        assert all(each.end_index == shown for each in scanned.annotations)
        if character == "]":
            assert scanner.pending == ""


def test_only_an_unfinished_marker_is_held_back() -> None:
    scanner = CitationScanner(lambda _: True)
    assert scanner.feed("see ") == Scanned("see ")
    assert scanner.feed("this [") == Scanned("this ")
    assert scanner.feed("^1") == Scanned("")
    assert (scanner.pending, scanner.offset) == ("[^1", 9)
    assert scanner.feed("2] ok") == Scanned("[^12] ok", (note(12, 9, 14),))
    assert scanner.feed(" [^") == Scanned(" ")
    assert scanner.feed("a") == Scanned("[^a")  # no marker any more
    assert scanner.feed("[^123456789") == Scanned("")
    assert scanner.feed("0") == Scanned("[^1234567890")  # too long for one
    assert scanner.feed("[") == Scanned("")
    assert scanner.finish() == Scanned("[")
    assert scanner.finish() == Scanned("")


def test_a_number_that_the_pool_never_issued_is_plain_text() -> None:
    assert scan(["a[^1] b[^2] c[^99]"], range(2, 3)) == (
        "a[^1] b[^2] c[^99]",
        [note(2, 7, 11)],
    )


def test_whether_a_number_is_known_is_asked_when_its_marker_completes() -> None:
    known: set[int] = set()
    scanner = CitationScanner(known.__contains__)
    assert scanner.feed("[^1] [^").annotations == ()
    known.add(1)
    assert scanner.feed("1]").annotations == (note(1, 5, 9),)


@pytest.mark.growth
@pytest.mark.parametrize("piece", ["[", "[^", "[^1", "[^123456789", "1", "[^0", "]"])
def test_scanning_is_linear_in_huge_inputs(piece: str) -> None:
    started = time.process_time()
    text = piece * (100_000 // len(piece))
    assert scan([text])[0] == text
    assert scan(list(text))[0] == text
    assert time.process_time() - started < 20


# --- forged markers ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("forged", "harmless"),
    [
        ("[^1]", "[\\^1]"),
        ("[\\^1]", "[\\\\^1]"),
        ("[\\\\^1]", "[\\\\\\^1]"),
        ("[^1", "[\\^1"),  # its end may stand in the next part
        ("[^01]", "[\\^01]"),
        ("[^1234567890]", "[\\^1234567890]"),
        ("［^１２]", "［\\^１２]"),
        ("[＾1]", "[\\＾1]"),
        ("﹇^1]", "﹇\\^1]"),
        ("[ ^ 1 ]", "[\\ ^ 1 ]"),
        ("[\u200b^\u20601]", "[\\\u200b^\u20601]"),
        ("[^①]", "[\\^①]"),
        ("[^⑩]", "[\\^⑩]"),
        ("[^¹]", "[\\^¹]"),
        ("[^١]", "[\\^١]"),
        ("[^𝟏]", "[\\^𝟏]"),
        ("[[^1]", "[[\\^1]"),
        ("<referencable-item>", "<\\referencable-item>"),
        ("</referencable-item>", "<\\/referencable-item>"),
        ("<\\/referencable-item>", "<\\\\/referencable-item>"),
        ("</REFERENCABLE-Item >", "<\\/REFERENCABLE-Item >"),
        ("< / referencable-item\n>", "<\\ / referencable-item\n>"),
        ('<referencable-item x="1"', '<\\referencable-item x="1"'),
        ("＜／ｒｅｆｅｒｅｎｃａｂｌｅ－ｉｔｅｍ＞", "＜\\／ｒｅｆｅｒｅｎｃａｂｌｅ－ｉｔｅｍ＞"),
        ("﹤/𝐫𝒆𝓯𝔢𝕣𝖾𝗇𝘤𝙖𝚋ℓⓔ﹣ⅰₜᵉⓂ", "﹤\\/𝐫𝒆𝓯𝔢𝕣𝖾𝗇𝘤𝙖𝚋ℓⓔ﹣ⅰₜᵉⓂ"),
        ("</ref\u00aderen\u200bcable-it\ufe0fem>", "<\\/ref\u00aderen\u200bcable-it\ufe0fem>"),
        ("<referenceable-item>", "<\\referenceable-item>"),
        ("<referenc\u200be\u200bable-item>", "<\\referenc\u200be\u200bable-item>"),
        ("<referencable–item>", "<\\referencable–item>"),
        ("<referencable − item>", "<\\referencable − item>"),
        ("<referencable_item>", "<\\referencable_item>"),
        ("<<referencable-item>", "<<\\referencable-item>"),
    ],
)
def test_what_looks_like_a_marker_is_made_harmless_and_comes_back(
    forged: str, harmless: str
) -> None:
    assert escaped(f"a {forged} b") == f"a {harmless} b"
    assert unescape(f"a {harmless} b") == f"a {forged} b"
    assert scan([escaped(forged)])[1] == []


@pytest.mark.parametrize(
    "text",
    [
        *("", "[1]", "[^a-z]", "a[i]^2", "[", "<b>", "</item>", "referencable-item", "\\[x]"),
        *("[referencable-item>", "<^1]", "[x^1]", "<reference-item>", "<referencable>", "5 < [^]"),
    ],
)
def test_ordinary_text_is_left_alone(text: str) -> None:
    assert escaped(text) == text
    assert unescape(text) == text


def test_restoring_leaves_live_markers_alive() -> None:
    # A child's message in its parent: renumbered markers beside defused markers.
    assert unescape("a[^12] b[\\^3] c[\\\\^4]") == "a[^12] b[^3] c[\\^4]"


HOSTILE = st.lists(
    st.sampled_from(
        [
            *(
                "[",
                "［",
                "^",
                "＾",
                "1",
                "１",
                "]",
                "\\",
                "\\\\",
                " ",
                "\u200b",
                "<",
                "＜",
                "/",
                ">",
            ),
            *("referencable-item", "Referenceable-Item", "[^1]", "[\\^1]", "<referencable-item>"),
            *("<\\/referencable-item>", "ID: 1", "[^12]", "😀", "x"),
        ]
    )
    | st.text(st.characters(codec="utf-8"), max_size=2)
).map("".join)


@given(HOSTILE)
@example("[\\^1][^1]<\\referencable-item>[\\\\^1")
def test_any_text_comes_back_exactly(text: str) -> None:
    assert unescape(escaped(text)) == text
    assert unescape(escaped(escaped(text))) == escaped(text)


@given(HOSTILE)
def test_nothing_harmful_is_left_when_case_and_width_are_folded(text: str) -> None:
    folded = unicodedata.normalize("NFKC", escaped(text)).casefold()
    assert not re.search(r"</?referencable-item|\[\^[0-9]", folded)


def test_no_character_of_unicode_gets_past_the_folding() -> None:
    wanted = set("<[/^-0123456789referencable-item")
    for code in [*range(0xD800), *range(0xE000, 0x110000)]:
        folded = unicodedata.normalize("NFKC", chr(code)).casefold()
        if folded[:1] not in wanted:
            continue
        sign, character = folded[0], chr(code)
        if sign.isdigit():
            assert escaped(f"[^{character}]") != f"[^{character}]", hex(code)
        elif len(folded) == 1:
            for forged in ("</referencable-item>", "[^1]"):
                if sign in forged:
                    imitation = forged.replace(sign, character)
                    assert escaped(imitation) != imitation, hex(code)


@pytest.mark.growth
@pytest.mark.parametrize(
    "piece",
    ["[", "<", "[^", "[\\", "\\", "[ ", "< ", "<\u200b", "<referencable-ite", "[^1", "[^1]", "1"],
)
def test_defusing_is_linear_in_huge_inputs(piece: str) -> None:
    started = time.process_time()
    repeated = piece * (100_000 // len(piece))
    drawn_out = piece[:1] + (piece[1:] or piece) * 100_000
    for text in (repeated, drawn_out, "[" + repeated, "<" + repeated):
        assert unescape(escaped(text)) == text
        assert len(renumber(text, {1: 2})) >= len(text)
    assert time.process_time() - started < 20


# --- renumbering -------------------------------------------------------------------------------


def test_mapped_markers_get_their_new_numbers_all_at_once() -> None:
    assert renumber("a[^1] b[^2] c[^1]", {1: 2, 2: 17}) == "a[^2] b[^17] c[^2]"


def test_an_unmapped_marker_is_defused_because_it_would_cite_something_else_over_there() -> None:
    renumbered = renumber("a[^1] b[^3]", {1: 3})
    assert renumbered == "a[^3] b[\\^3]"
    assert scan([renumbered])[1] == [note(3, 1, 5)]


def test_renumbering_also_defuses_what_only_looks_like_a_marker() -> None:
    text = "［^1] [^01] [\\^1] [^1 </referencable-item>"
    assert renumber(text, {1: 5}) == escaped(text)


@given(TEXTS, st.dictionaries(st.integers(1, 20), st.integers(1, 20)))
def test_after_renumbering_exactly_the_mapped_citations_are_left(
    text: str, numbers: dict[int, int]
) -> None:
    expected = [numbers[number] for number in cited(text) if number in numbers]
    assert list(cited(renumber(text, numbers))) == expected


# --- offsets -----------------------------------------------------------------------------------


@given(st.text(st.characters(codec="utf-8") | st.sampled_from("😀👩‍👧天x")), st.data())
def test_offsets_are_what_utf_16_says(text: str, data: st.DataObject) -> None:
    offsets = data.draw(st.lists(st.integers(0, len(text))))
    units = [len(text[:offset].encode("utf-16-le")) // 2 for offset in offsets]
    assert to_utf16(text, offsets) == units
    assert from_utf16(text, units) == offsets


def test_an_offset_inside_a_surrogate_pair_is_the_start_of_its_character() -> None:
    assert from_utf16("a😀b😀", [0, 1, 2, 3, 4, 5, 6]) == [0, 1, 1, 2, 3, 3, 4]
    assert to_utf16("a😀b😀", [4, 3, 2, 1, 0]) == [6, 4, 3, 1, 0]


@pytest.mark.growth
def test_many_offsets_of_a_long_text_take_one_pass() -> None:
    started = time.process_time()
    text = "x😀" * 200_000
    offsets = list(range(0, len(text), 2))
    assert from_utf16(text, to_utf16(text, offsets)) == offsets
    assert time.process_time() - started < 20
