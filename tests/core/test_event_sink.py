"""Ids of items say which run they are of."""

from __future__ import annotations

import pytest

from tailrace.core.event_sink import runs_of_item, runs_of_request
from tailrace.ingest.base import Notebook


@pytest.mark.parametrize("run_id", ["run_5b2f", "mine", "my_own_run"])
def test_the_run_of_an_item_is_among_those_that_its_id_names(run_id: str) -> None:
    book = Notebook(run_id)
    assert run_id in runs_of_item(book.new_id("msg"))


@pytest.mark.parametrize("item_id", ["", "msg", "msg_", "msg_1", "_"])
def test_an_id_without_a_run_names_none(item_id: str) -> None:
    assert runs_of_item(item_id) == []


@pytest.mark.parametrize(
    "request_id", ["req_7_3", "req_call_7_3", "req_call_7_3.0a1b2c3d.1", "req_run_7_3"]
)
def test_the_run_of_a_request_is_known_by_its_id(request_id: str) -> None:
    assert "run_7" in runs_of_request(request_id)
