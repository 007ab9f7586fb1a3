"""From the body of a Responses request to its run: what it continues, and what it answers.

A request with answers to approvals starts no run. The run that waits for them goes on, and its
further output is a response of its own.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, NamedTuple

from tailrace.core.errors import CallerError, NotFound
from tailrace.core.event_sink import runs_of_item
from tailrace.core.ids import is_id
from tailrace.core.values import Json
from tailrace.history.compaction import SUMMARY
from tailrace.server import request_fields
from tailrace.server.apis.base import HttpApi
from tailrace.server.apis.openai_responses_socket import Segment, UnstoredConversation
from tailrace.wire import openai_responses
from tailrace.wire.openai_responses import ApprovalResponse

_ANSWERS_ALONE = (
    "The answers to approvals go to the run that waits for them, which takes only outputs of "
    "functions beside them. Send a message in the next request."
)


class PreviousResponseNotFound(NotFound):
    """The response that a request continues is not stored, or belongs to another owner."""

    code = "previous_response_not_found"


class ContinuedRun(NamedTuple):
    """The run that a request continues, and the event where it forks that run."""

    run_id: str | None = None
    seq: int | None = None


class ResponseRequests(HttpApi):
    """Starts the runs of requests, or sends their answers to the runs that wait for them."""

    async def begin(
        self, body: Json, window: UnstoredConversation | None = None, key: str | None = None
    ) -> Segment:
        """Start the run of a request, which may continue the window of its connection.

        Or send its answers to the run that waits for them.
        """
        model = self.agent(body)
        given: Any = request_fields.response_input(body)
        previous = request_fields.optional_id(body, "previous_response_id")
        asking = await self._ids_of_asking(given)
        answers = openai_responses.approvals_of(given, asking)
        if answers and (previous is not None or not openai_responses.asks_itself(given, answers)):
            return await self._answered(previous, given, answers, asking, key)
        inside = openai_responses.answered_inside(given, asking)
        if inside and (previous is not None or await self._waits_for(inside)):
            raise CallerError(_ANSWERS_ALONE, param="input")
        asked_again = await self._outputs_alone(previous, given, key)
        if asked_again is not None:
            return asked_again
        options = request_fields.response_options(body)
        earlier: list[Json] = []
        if window is not None and window.response_id == previous:
            given = await self._resolved(given, await self._named(given))
            given = openai_responses.without_approvals(given)
            earlier, continued = window.items, ContinuedRun()
            options["previous_response_id"] = previous
        else:
            given, continued = await self.continued(given, previous, options)
        await self._check_outputs(given, earlier, continued.run_id)
        if earlier:
            new = given if isinstance(given, list) else [{"role": "user", "content": given}]
            given = [*earlier, *new]
        run = await self.started(
            key,
            model,
            given,
            previous_run_id=continued.run_id,
            previous_seq=continued.seq,
            options=options,
            metadata=request_fields.response_metadata(body),
            forget=body.get("store") is False,
            follows=body.get("background") is not True or body.get("stream") is True,
        )
        return Segment(run.run_id)

    async def _answered(
        self,
        previous: str | None,
        given: Any,
        answers: list[ApprovalResponse],
        asking: Collection[str],
        key: str | None,
    ) -> Segment:
        """Send answers to the run that waits for them; the response that goes on with them.

        Outputs of functions that come with them go to the run, too. Answers that are sent again, or
        to a run that has ended, change nothing.
        """
        run_id = await self._asking(previous, answers[0])
        look = await self.runs.look(run_id)
        found = [
            openai_responses.pause_of(look.state, answer.approval_request_id) for answer in answers
        ]
        pause = found[0]
        for answer, other in zip(answers, found, strict=True):
            if other is None or other != pause:
                raise NotFound(
                    f"The response has no approval request {answer.approval_request_id[:80]!r}. "
                    "Send the id of one of its `mcp_approval_request` items.",
                    param=f"{answer.param}.approval_request_id",
                )
        assert pause is not None
        new = openai_responses.new_item(look.state, given, asking)
        if new is not None:
            raise CallerError(_ANSWERS_ALONE, param=f"input[{new}]")
        await self._check_outputs(given, [], run_id)
        outputs = openai_responses.answers_with_outputs(look.state, given, pause + 1, asking)
        asked = openai_responses.asked_approvals(look.state, pause)
        sent = [
            {
                "request_id": asked[answer.approval_request_id],
                "approved": answer.approve,
                **({} if answer.reason is None else {"reason": answer.reason}),
            }
            for answer in answers
        ]
        await self.check_answers(key, look.state, [*outputs, *sent])
        waiting = openai_responses.open_approvals(look.state, pause)
        missing = waiting - {answer.approval_request_id for answer in answers}
        if missing:
            raise CallerError(
                f"The response asks for more approvals; answer {', '.join(sorted(missing))}, too.",
                param="input",
            )
        for one in outputs:  # before the last approval, after which the run goes on
            await self.runs.send(run_id, one)
        for answer, one in zip(answers, sent, strict=True):
            if answer.approval_request_id in waiting:
                await self.runs.send(run_id, one)
        return Segment(run_id, pause + 1)

    async def _outputs_alone(
        self, previous: str | None, given: Any, key: str | None
    ) -> Segment | None:
        """Send outputs of functions to a run that still waits for approvals; its response again.

        None if the input does not end with outputs of a run that waits.
        """
        call_id = openai_responses.last_output(given)
        if call_id is None:
            return None
        named = None if previous is None else await self.segment(previous)
        runs = runs_of_item(call_id) if previous is None else [named.run_id] if named else []
        found = [one for one in runs if await self.runs.exists(one)]
        look = await self.runs.look(found[0]) if found else None
        pause = None if look is None else openai_responses.open_pause(look.state)
        if look is None or pause is None or pause != (pause if named is None else named.number):
            return None
        if not openai_responses.has_only_outputs(look.state, given):
            return None
        outputs = openai_responses.answers_with_outputs(look.state, given, pause + 1)
        await self.check_answers(key, look.state, outputs)
        for one in outputs:
            await self.runs.send(found[0], one)
        return Segment(found[0], pause, again=True)

    async def _ids_of_asking(self, given: Any) -> Collection[str]:
        """The ids of the response that asked for the last approval that an input answers."""
        ident = openai_responses.last_answered(given)
        for run_id in openai_responses.runs_of_approval(ident or ""):
            if await self.runs.exists(run_id):
                state = (await self.runs.look(run_id)).state
                return openai_responses.ids_of_asking(state, ident or "")
        return ()

    async def _waits_for(self, approvals: list[str]) -> bool:
        """Whether a run waits for one of these approvals. Others are history."""
        for ident in approvals:
            for run_id in openai_responses.runs_of_approval(ident):
                if await self.runs.exists(run_id):
                    state = (await self.runs.look(run_id)).state
                    pause = openai_responses.pause_of(state, ident)
                    if pause is not None:
                        return ident in openai_responses.open_approvals(state, pause)
        return False

    async def _asking(self, previous: str | None, answer: ApprovalResponse) -> str:
        """The run that asked for an approval: of the previous response, or by the request's id."""
        if previous is not None:
            found = await self.segment(previous)
            if found is None:
                raise _not_stored(previous)
            return found.run_id
        for run_id in openai_responses.runs_of_approval(answer.approval_request_id):
            if await self.runs.exists(run_id):
                return run_id
        raise NotFound(
            f"There is no approval request {answer.approval_request_id[:80]!r}. Send the id of an "
            "`mcp_approval_request`.",
            param=f"{answer.param}.approval_request_id",
        )

    async def continued(
        self, given: Any, previous: str | None, options: Json
    ) -> tuple[Any, ContinuedRun]:
        """The new items of an input, and the run that they continue: by its id, or by its items."""
        named = await self._named(given)
        items = await self._resolved(given, named)
        if previous is None and isinstance(given, list):
            found = openai_responses.continued(given, items, named)
            if found.run_id is not None:
                options |= openai_responses.BY_ITEMS
                return found.rest, ContinuedRun(found.run_id)
        new = openai_responses.without_approvals(items)
        return new, await self._previous(previous, options)

    async def _previous(self, response_id: str | None, options: Json) -> ContinuedRun:
        """What a request continues. A response with `store: false` is not stored."""
        if response_id is None:
            return ContinuedRun()
        found = await self.segment(response_id)
        if found is None:
            raise _not_stored(response_id)
        look = await self.runs.look(found.run_id)
        if look.info.forget:
            raise _not_stored(response_id)
        if found.number:
            options["previous_response_id"] = response_id
        end = openai_responses.end_of(look.state, found.number)
        if end is not None and look.info.trimmed_to:
            raise _not_stored(response_id)
        return ContinuedRun(found.run_id, end)

    async def segment(self, response_id: str) -> Segment | None:
        """The segment of a run that a response shows; None if there is no such response."""
        # Our run ids get the prefix that OpenAI's clients expect.
        named = response_id.removeprefix("resp_")
        if await self.runs.find(named) is not None:
            return Segment(named)
        numbered = openai_responses.segment_of(named)
        if numbered is None or await self.runs.find(numbered[0]) is None:
            return None
        found = Segment(*numbered)
        pauses = (await self.runs.look(found.run_id)).state.pauses
        return found if found.number <= len(pauses) else None

    async def _check_outputs(self, given: Any, earlier: list[Json], previous: str | None) -> None:
        """Refuse the output of a call that the conversation does not have."""
        outputs = openai_responses.outputs_of(given)
        known = openai_responses.calls_of(given) | openai_responses.calls_of(earlier)
        for call_id in await self.unknown_calls(outputs, known, previous):
            raise CallerError(
                f"The conversation has no call {call_id[:80]}; send its `function_call` before "
                "its output, or the `previous_response_id` of the response with the call.",
                param=outputs[call_id],
            )

    async def _named(self, given: Any) -> openai_responses.NamedItems:
        """The items of earlier responses that an input has, by their ids or whole."""
        found = openai_responses.NamedItems()
        for index, ident in openai_responses.references(given).items():
            if ident not in found.items:
                await self._find(ident, found)
            if ident not in found.items:
                message = f"Item {ident[:80]} is not stored here; send the item itself."
                raise NotFound(message, param=f"input[{index}]")
        for ident in openai_responses.returned(given):
            if ident not in found.runs:
                await self._find(ident, found)
        return found

    async def _find(self, ident: str, found: openai_responses.NamedItems) -> None:
        """Add the items of the run that an item's id names."""
        for run_id in (
            *runs_of_item(openai_responses.own_id(ident)),
            *openai_responses.runs_of_approval(ident),
        ):
            info = await self.runs.find(run_id) if is_id(run_id) else None
            if info is not None and not info.forget:
                found.add(run_id, await self.runs.state(run_id), ident)

    async def _resolved(self, given: Any, named: openai_responses.NamedItems) -> Any:
        """The input, with each reference replaced: an item by itself, a compaction by its summary.

        The items are stored with the new run, so deleting the other run loses nothing.
        """
        found = openai_responses.resolved(given, named.items)
        if not isinstance(found, list):
            return found
        return [
            await self._summary(item, f"input[{index}]")
            if openai_responses.is_compaction(item)
            else item
            for index, item in enumerate(found)
        ]

    async def _summary(self, item: Json, param: str) -> Json:
        """The message that a compaction item stands for."""
        run_id = openai_responses.compaction_run(item)
        if run_id is not None and await self.runs.exists(run_id):
            root = (await self.runs.look(run_id)).state.root
            if root is not None and root.compacted is not None:
                return {"role": "user", "content": SUMMARY + root.compacted["summary"]}
        raise NotFound("This compaction is not stored here; compact again.", param=param)


def _not_stored(response_id: str) -> PreviousResponseNotFound:
    return PreviousResponseNotFound(
        f"Response {response_id} is not stored here. Send the whole conversation in `input`.",
        param="previous_response_id",
    )
