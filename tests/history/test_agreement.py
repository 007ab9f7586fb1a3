"""How far the messages of a client are those of the server."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tailrace.history.agreement import agreement
from tailrace.history.inputs import InputItem, read_input

Json = dict[str, Any]


def read(message: Json) -> Iterator[InputItem]:
    return read_input([message])


def user(text: str) -> Json:
    return {"role": "user", "content": text}


def spoken(text: str) -> Json:
    return {"role": "assistant", "content": text}


def called(call_id: str) -> Json:
    return {"type": "function_call", "call_id": call_id, "name": "f", "arguments": "{}"}


def result(call_id: str, text: str = "15 C") -> Json:
    return {"type": "function_call_output", "call_id": call_id, "output": text}


def thought(ident: str) -> Json:
    return {"type": "reasoning", "id": ident}


RUNS: list[list[Json]] = [
    [user("one"), thought("r1"), called("a"), result("a"), called("b"), result("b"), spoken("1")],
    [user("two"), spoken("2")],
    [user("three"), spoken("3")],
]
ALL = [message for run in RUNS for message in run]
NEW = user("new")


def shown(runs: int) -> list[Json]:
    return [message for run in RUNS[:runs] for message in run]


def compared(messages: list[Json], *cut: int) -> tuple[int, list[Json]]:
    return agreement(messages, len(RUNS), shown, read, cut)


@pytest.mark.parametrize(
    ("messages", "runs", "new"),
    [
        ([*ALL, NEW], 3, [NEW]),
        (ALL, 3, []),
        ([one for one in ALL if one != thought("r1")] + [NEW], 3, [NEW]),
        ([*ALL, thought("r1"), NEW], 3, [NEW]),
        ([*ALL, thought("r9"), NEW], 3, [thought("r9"), NEW]),
        ([*ALL[:-1], NEW], 2, [user("three"), NEW]),  # the last answer was removed
        ([*ALL[:-2], NEW], 2, [NEW]),
        ([*ALL[:9], *ALL[11:], NEW], 2, [NEW]),
        ([*ALL[:7], *ALL[9:], NEW], 1, [*ALL[9:], NEW]),  # a pair in the middle was removed
        ([*ALL[7:], NEW], 0, [*ALL[7:], NEW]),  # the first pair
        ([user("ONE"), *ALL[1:], NEW], 0, [user("ONE"), *ALL[1:], NEW]),
        ([*ALL[:8], spoken("No."), *ALL[9:], NEW], 1, [user("two"), spoken("No."), *ALL[9:], NEW]),
        ([*ALL[:3], result("a", "No."), *ALL[4:]], 0, [*ALL[:3], result("a", "No."), *ALL[4:]]),
        ([*ALL[:3], *ALL[4:], NEW], 0, [*ALL[:3], *ALL[4:], NEW]),  # a result was removed
        ([NEW], 0, [NEW]),
    ],
)
def test_a_run_counts_if_it_and_all_before_it_are_unchanged(
    messages: list[Json], runs: int, new: list[Json]
) -> None:
    assert compared(messages) == (runs, new)


def test_results_may_stand_at_the_end_of_the_list() -> None:
    moved = [ALL[0], called("a"), called("b"), result("b"), result("a"), *ALL[6:], NEW]
    assert compared(moved) == (3, [NEW])


@pytest.mark.parametrize(
    ("order", "is_known", "agrees"),
    [
        ("ubac", True, True),  # a client's call is announced last
        ("ubca", True, True),
        ("abcu", True, False),
        ("ubac", False, False),
        ("ubc", True, False),
    ],
)
def test_an_answer_of_the_server_may_stand_elsewhere(
    order: str, is_known: bool, agrees: bool
) -> None:
    """AG-UI streams calls in another order than the run has them."""
    named = {"u": user("one"), "a": called("a"), "b": called("b"), "c": spoken("1")}
    run = [{**message, "id": ident} for ident, message in named.items()]
    by_id = {message["id"]: message for message in run}
    sent = [{**by_id[ident], "id": ident if is_known else f"my-{ident}"} for ident in order]
    found = agreement([*sent, NEW], 1, lambda runs: run[: runs * 4], read)
    assert found == ((1, [NEW]) if agrees else (0, [*sent, NEW]))


def test_a_message_may_stand_before_the_rest_of_the_answer_that_it_follows() -> None:
    """A client resumes a run and sends its next message in one request."""
    runs = [[user("one"), {**spoken("1"), "id": "m1"}], [user("two"), {**spoken("2"), "id": "m2"}]]
    [one, first], [two, second] = runs
    sent = [one, two, first, second]
    found = agreement([*sent, NEW], 2, lambda count: [*runs[0], *runs[1]][: count * 2], read)
    assert found == (2, [NEW])


def test_a_result_that_the_run_does_not_have_is_new() -> None:
    runs = [[user("one"), called("a"), called("b")]]
    sent = [*runs[0], result("a"), result("b")]
    assert agreement(sent, 1, lambda n: runs[0] if n else [], read) == (1, sent[3:])


def ui(*parts: Json) -> Json:
    return {"role": "assistant", "parts": list(parts)}


def ui_call(**more: Any) -> Json:
    return {"type": "tool-f", "toolCallId": "a", "state": "input-available", "input": {}, **more}


def test_a_message_with_a_new_result_is_new_only_as_the_last() -> None:
    first = [user("one"), ui(ui_call())]
    answered = [user("one"), ui(ui_call(state="output-available", output="x"))]

    def of(runs: int) -> list[Json]:
        return first if runs else []

    assert agreement(answered, 1, of, read) == (1, [])
    assert agreement([*answered, NEW], 1, of, read) == (0, [*answered, NEW])


def text(words: str) -> Json:
    return {"type": "text", "text": words}


@pytest.mark.parametrize(
    ("answer", "agrees"),
    [
        (ui(), True),
        (ui(text("Wa")), True),
        (ui(text("Wait.")), True),
        (ui(text("Wait."), ui_call()), True),
        (ui(text("Wait."), ui_call(state="output-available", output="x"), text("Do")), True),
        (ui(text("Stop.")), False),
        (ui(text("Wait."), text("More.")), False),
        (ui(text("Wait."), ui_call(state="output-available", output="y")), False),
    ],
)
def test_an_answer_that_was_cut_may_lack_its_rest(answer: Json, agrees: bool) -> None:
    whole = ui(text("Wait."), ui_call(state="output-available", output="x"), text("Done."))
    runs = [user("one"), whole, user("two"), ui(text("2"))]

    def of(count: int) -> list[Json]:
        return runs[: 2 * count]

    for sent in ([user("one"), answer, NEW], [user("one"), answer, *runs[2:], NEW]):
        count = len(sent) // 2
        assert agreement(sent, count, of, read, [1]) == ((count, [NEW]) if agrees else (0, sent))
        assert agreement(sent, count, of, read) == (0, sent)


def test_an_answer_that_was_cut_counts_as_a_whole_behind_a_change() -> None:
    """Its run may have paid since: the model must not read that the call has no result."""
    paid = ui_call(state="output-available", output="paid")
    whole = {**ui(text("Wait."), paid, text("Done.")), "id": "a2"}
    runs = [user("one"), ui(text("1")), user("two"), whole]
    begun = {**ui(text("Wait."), ui_call()), "id": "a2"}
    changed = {**ui(text("Stop."), ui_call()), "id": "a2"}
    idents: list[Any] = ["a3", {}, [], None]
    others = [{**begun, "id": ident} for ident in idents]
    for answer, read_as in ((begun, whole), (changed, changed), *zip(others, others, strict=True)):
        sent = [user("two"), answer, NEW]
        found = agreement(sent, 2, lambda count: runs[: 2 * count], read, [1])
        assert found == (0, [user("two"), read_as, NEW])


@pytest.mark.parametrize("ident", [{}, [], 7, None, "x"])
def test_a_client_may_send_any_json_as_an_id(ident: Any) -> None:
    empty = {"role": "user", "parts": [], "id": ident}
    runs, new = compared([*ALL, empty, NEW])
    assert runs == 3
    assert new[-1] == NEW


def test_an_answer_to_the_provider_and_a_reference_are_not_compared() -> None:
    answer = {"type": "mcp_approval_response", "approval_request_id": "x", "approve": True}
    assert compared([*ALL[:7], answer, *ALL[7:], NEW]) == (3, [NEW])
