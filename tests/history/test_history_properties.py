"""No chain of runs, however it went, makes a history that a provider refuses."""

from __future__ import annotations

from itertools import product
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tailrace.core.snapshot import restore, save
from tailrace.history import History, Mode, history
from tailrace.testing.provider_rules import (
    ErrorBody,
    Issued,
    check_anthropic_messages,
    check_openai_chat,
    check_openai_responses,
)
from tests.history.conversations import APIS, HOST, Chain, chains, conversations

CHECKS: Any = {
    "openai_responses": check_openai_responses,
    "anthropic_messages": check_anthropic_messages,
    "openai_chat": check_openai_chat,
}
MODES: tuple[Mode, ...] = ("drop", "encrypted", "stored")
SLOW = [HealthCheck.too_slow, HealthCheck.data_too_large]


def refused(sent: History, issued: Issued, *, store: bool) -> ErrorBody | None:
    request = sent.request()
    if sent.api == "openai_responses":
        request["store"] = store
    elif sent.api == "anthropic_messages" and sent.can_think:
        request["thinking"] = {"type": "enabled", "budget_tokens": 1024}
    error: ErrorBody | None = CHECKS[sent.api](request, issued)
    return error


def check_all(chain: Chain, *, store: bool, model: str | None) -> None:
    tasks = [None, *(task_id for task_id in chain.states[-1].tasks)]
    for api, mode, task_id in product(APIS, MODES, tasks):
        made: Any = history(
            chain.states,
            api,
            mode,
            store=store,
            model=model,
            host=HOST,
            task_id=task_id,
        )
        error = refused(made, chain.issued[api], store=store)
        assert error is None, f"{api}, {mode}, {task_id}: {error.message}\n{made.request()}"


MODELS = st.sampled_from((None, "a"))


@settings(suppress_health_check=SLOW)
@given(chain=conversations(), store=st.booleans(), model=MODELS)
def test_no_conversation_is_refused(chain: Chain, store: bool, model: str | None) -> None:
    check_all(chain, store=store, model=model)


@settings(suppress_health_check=SLOW)
@given(chain=chains(), store=st.booleans(), model=MODELS)
def test_no_chain_of_legal_runs_is_refused(chain: Chain, store: bool, model: str | None) -> None:
    check_all(chain, store=store, model=model)


def bare(item: dict[str, Any]) -> dict[str, Any]:
    """A message without the reasoning that servers of chat completions want back within a turn."""
    return {name: value for name, value in item.items() if not name.startswith("reasoning")}


@settings(suppress_health_check=SLOW)
@given(chain=conversations())
def test_a_longer_history_begins_as_the_shorter_one_did(chain: Chain) -> None:
    """What the provider has cached stays good: only the last turn's reasoning may go."""
    for api in APIS:
        whole: Any = history(chain.states, api, "encrypted", store=False)
        part: Any = history(chain.states[:-1], api, "encrypted", store=False)
        if chain.states[-1].root.facts.get("input") and len(chain.states) > 1:  # type: ignore[union-attr]
            turns = [at for at, one in enumerate(part.items) if one.get("role") == "user"]
            turn = max(turns, default=0)  # what began without a user may change altogether
            assert list(map(bare, whole.items[:turn])) == list(map(bare, part.items[:turn]))


@settings(suppress_health_check=SLOW)
@given(chain=chains(max_runs=2))
def test_a_saved_and_restored_run_has_the_same_history(chain: Chain) -> None:
    restored = [restore(save(state, private=True)) for state in chain.states]
    for api, mode in product(APIS, MODES):
        one: Any = history(chain.states, api, mode)
        assert history(restored, api, mode) == one
