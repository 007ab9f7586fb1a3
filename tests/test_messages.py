"""What the project writes when something is wrong: errors and log lines."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from tailrace import errors

SOURCE = Path(__file__).parents[1] / "src" / "tailrace"

CALLERS = {
    *("LimitReached", "StorageBusy", "StorageError", "BusUnavailable", "StreamTooLarge"),
    *(
        name
        for name in errors.__all__
        if issubclass(getattr(errors, name), errors.CallerError) and name != "InvalidArguments"
    ),
}
"""Errors that the caller can do something about. The others are faults of a provider or of ours.

The model reads `InvalidArguments`, and knows what to do.
"""

_VERBS = (
    "add annotate answer ask await cancel change check choose close compact connect convert copy"
    " correct create declare decorate encode flatten give import install leave list make name open"
    " pass pip put record remove rename replace restore return run see send set start store try"
    " upgrade use wait wrap write"
)
NEXT = re.compile(
    rf"(?:^|[.;:,] (?:and |or |then )?)(?:{'|'.join(_VERBS.split())})\b"
    r"|; (?:it|they) must\b|\bmust\b.*[;,] (?:not |but )?…|did you mean"
    r"|[.;] (?:….?)+$|is not …\.$|^…+$",
    re.IGNORECASE,
)
"""How a message says what to do.

`…; use asc or desc`, a rule with the value (`` `limit` is 0; it must be …``, `… must be a list,
not 5`), or an advice in a variable. A rule or a reason alone is not enough.
"""

PASSED_ON = {
    "models/scripted/script.py: …: ….",
    "runtime/agents/agent.py: Agent …: …",
    "runtime/tools/parameters.py: Tool …, parameter `…`: ….",
    "server/request_body.py: `…`: …",
    "server/request_fields.py: `text.format`: …",
}
"""Messages that put a place before the message of another error, which says what to do."""


def raised(path: Path) -> Iterator[tuple[int, str]]:
    """The line and the message of each such error, with `…` for a value."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.args):
            continue
        message = node.args[0]
        if node.func.id in CALLERS and isinstance(message, ast.Constant):
            yield node.lineno, str(message.value)
        elif node.func.id in CALLERS and isinstance(message, ast.JoinedStr):
            parts = message.values
            yield (
                node.lineno,
                "".join(
                    str(part.value) if isinstance(part, ast.Constant) else "…" for part in parts
                ),
            )


def modules() -> list[Path]:
    return [
        path
        for path in sorted(SOURCE.glob("**/*.py"))
        if not {"testing", "ingest"} & set(path.parts)  # `ingest` has faults of providers
    ]


def test_an_error_of_the_caller_says_what_to_do_next() -> None:
    found = [
        (path.relative_to(SOURCE).as_posix(), line, words)
        for path in modules()
        for line, words in raised(path)
    ]
    assert len(found) > 150
    lacking = [each for each in found if not NEXT.search(each[2])]
    assert {f"{path}: {words}" for path, _, words in lacking} == PASSED_ON


@pytest.mark.parametrize(
    ("words", "is_enough"),
    [
        ("`limit` is …; it must be from 1 to 100.", True),
        ("`after` must be a sequence number, not ….", True),
        ("`order` is …; use asc or desc.", True),
        ("Unknown format …. …", True),
        ("`limit` must be from 1 to 100.", False),
        ("The settings in … cannot be read: ….", False),
        ("The saved state has version ….", False),
        ("Thread … has another run ….", False),
    ],
)
def test_a_rule_or_a_reason_alone_is_not_what_to_do_next(words: str, is_enough: bool) -> None:
    assert bool(NEXT.search(words)) == is_enough


# --- log lines ---------------------------------------------------------------------------------

IN_A_RUN = {
    *("runtime/agents/functions.py", "runtime/diagnostics/failures.py"),
    *("runtime/tools/from_mcp.py", "runtime/tools/tool.py"),
    *("runtime/workers/worker.py:_work", "runtime/workers/worker.py:_prepare"),
}
"""What runs in the tasks of a run: a worker has set `current_fields` there."""

OF_THE_PROCESS = {
    "cli/serve.py": "the variables of the process",
    "stores/postgres/replica.py": "the replica",
    "stores/sqlite/connections.py": "the checkpoint",
    "server/proxy.py": "a proxy has no runs",
    "server/access/admission.py": "before a request is admitted",
    "server/access/guard.py": "before any route",
    "server/access/auth.py": "the file of keys",
    "server/apis/openai_responses_socket.py": "a message that names no run",
    "runtime/workers/watchdog.py": "the event loop",
    "runtime/workers/worker.py:_keep": "all runs",
    "runtime/workers/worker.py:_look": "all runs",
    "runtime/workers/worker.py:_warn": "the store",
    "runtime/followers/tail.py:_poll": "all runs",
    "runtime/followers/other_processes.py": "all runs",
    "runtime/event_log/outage.py": "the store",
    "runtime/event_log/retention.py": "all runs",
    "buses/redis/writer.py": "commands of many runs",
    "buses/redis/connections.py": "the server",
}
"""Lines that are about no single run, and what they are about."""

WITHOUT_ALL_FIELDS = {
    "buses/redis/bus.py:publish": "a bus has the id of a run and its events",
    "runtime/followers/tail.py:_report_failure": "a tail has the id of a run and its newest events",
    "runtime/workers/watchdog.py:_blocked": "a guess, which names an agent",
    "server/router.py:_call": "what the path of the request names",
    "server/streams/thread_stream.py:log_extra": "the thread; its runs have lines of their own",
}
"""Where agent or thread could only be learned by reading the store."""


def log_calls(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Each call of a logger, with its module and function."""
    where = path.relative_to(SOURCE).as_posix()
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and LOGS.match(ast.unparse(node.func)):
                    yield f"{where}:{function.name}", node


LOGS = re.compile(r"logger\.(debug|info|warning|error|exception|critical|log)$")
PROPER_NAMES = re.compile(r"(Redis|SQLite|MCP)\b")


def test_a_log_line_begins_in_lower_case_and_has_no_full_stop() -> None:
    found = [
        (place, str(call.args[0].value))
        for path in modules()
        for place, call in log_calls(path)
        if call.args and isinstance(call.args[0], ast.Constant)
    ]
    assert len(found) > 40
    odd = [
        (place, words)
        for place, words in found
        if words.endswith(".") or (words[0].isupper() and not PROPER_NAMES.match(words))
    ]
    assert odd == []


def test_a_log_line_has_the_run_that_it_is_about() -> None:
    found = [call for path in modules() for call in log_calls(path)]
    assert len(found) > 40
    known = {*IN_A_RUN, *OF_THE_PROCESS}
    lacking = {
        place
        for place, call in found
        if all(word.arg != "extra" for word in call.keywords)
        and not {place, place.partition(":")[0]} & known
    }
    assert lacking == set()
    places = {name for place, _ in found for name in (place, place.partition(":")[0])}
    assert known <= places


def calls_of_about_run(path: Path) -> Iterator[tuple[str, ast.Call]]:
    """Each call of `about_run`, with its module and function."""
    where = path.relative_to(SOURCE).as_posix()
    for function in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            for node in ast.walk(function):
                if isinstance(node, ast.Call) and ast.unparse(node.func) == "about_run":
                    yield f"{where}:{function.name}", node


def has_all_fields(call: ast.Call) -> bool:
    """Whether a line gets run, agent and thread: three values, or the row of the run."""
    given = [ast.unparse(each) for each in call.args]
    is_row = (
        len(given) == 1 and not call.keywords and not given[0].split(" or ")[0].endswith("run_id")
    )
    names = {keyword.arg for keyword in call.keywords}
    is_starred = len(given) == 2 and given[1].startswith("*")
    return is_row or is_starred or len(given) + len(names) == 3


def test_a_log_line_has_the_agent_and_the_thread_where_they_are_known() -> None:
    found = [each for path in modules() for each in calls_of_about_run(path)]
    assert len(found) > 10
    lacking = {place for place, call in found if not has_all_fields(call)}
    assert lacking == set(WITHOUT_ALL_FIELDS)


@pytest.mark.parametrize(
    ("code", "has_all"),
    [
        ("about_run(run)", True),
        ("about_run(run or run_id)", True),
        ("about_run(claim.run_id, claim.agent, thread_id)", True),
        ("about_run(self._run_id, *self._names)", True),
        ("about_run(run_id)", False),
        ("about_run(claim.run_id, claim.agent)", False),
        ("about_run(thread=thread_id)", False),
    ],
)
def test_a_line_without_agent_or_thread_is_found(code: str, has_all: bool) -> None:
    call = ast.parse(code, mode="eval").body
    assert isinstance(call, ast.Call)
    assert has_all_fields(call) == has_all
