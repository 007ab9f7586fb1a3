"""Random legal runs, to test programs that read events:

    @given(legal_runs())
    def test_my_store_gives_back_what_it_got(run: Run) -> None: ...

A run obeys every rule of PROTOCOL.md section 3, and may have any event of the protocol. There are
all endings, nested and parallel sub-agents whose events interleave, attempts and requests for
input, citations over text of many scripts, and private parts. Hypothesis shortens a failing run.
"""

from __future__ import annotations

from hypothesis import strategies as st

from tailrace.testing.strategies.open_items import Draw, WrittenRun
from tailrace.testing.strategies.writer import RunWriter

__all__ = ["WrittenRun", "legal_runs"]

_GO_ON = (False,) + (True,) * 60


@st.composite
def _runs(
    draw: Draw, max_events: int, complete: bool, max_tasks: int, max_depth: int
) -> WrittenRun:
    writer = RunWriter(draw, max_events=max_events, max_tasks=max_tasks, max_depth=max_depth)
    writer.create()
    # Whether to go on is asked before each move, and not once for all. So a move can be taken out
    # of a failing run without any other choice changing its meaning.
    while (legal := writer.moves()) and draw(st.sampled_from(_GO_ON)):
        draw(st.sampled_from(legal))()
    if complete:
        writer.close_everything()
    return writer.run


def legal_runs(
    max_events: int = 60, *, complete: bool = True, max_tasks: int = 6, max_depth: int = 3
) -> st.SearchStrategy[WrittenRun]:
    """Runs that a writer may write: recorded events with their private parts.

    `max_events` bounds the length, and with it the time that an example takes. With
    `complete=False` a run stops anywhere, as a reader of a live run sees it. `max_tasks` counts the
    root and all its sub-agents; `max_depth` is how deep agents call agents, 0 for none.
    """
    if max_events < 2:
        raise ValueError("max_events must be at least 2: a run begins and ends")
    return _runs(max_events, complete, max_tasks, max_depth)
