"""OpenAI's chat completions stream: the root task as one message of the assistant that grows.

Chunks of one choice, a chunk without choices for the usage, `[DONE]`. What an item becomes:

| here | there |
| --- | --- |
| message: text, file | `delta.content`; a file is a Markdown link, a paragraph by itself |
| message: refusal, image | `delta.refusal`; `delta.images`, as OpenRouter has it |
| reasoning | `delta.reasoning_content`: the summary or the raw text, what came first |
| tool_call, executor `client` | `delta.tool_calls` |
| citation with a URL, or of a block | `delta.annotations`: `url_citation`, when its text ends |
| structured output | `delta.content`, if the run completes and has said nothing |
| any other tool_call, results, data and raw, sub-agents, steps, notices | nothing |

A call that is carried out here must not look like one: its reader would carry it out again.

The vocabulary has no items, only fields that grow, and nothing that takes back. Hence:

* One item at a time speaks in a field, in order of arrival; what others say meanwhile follows.
  Messages, and the texts of reasoning, are parted by a blank line.
* A call is unmistakably unfinished until the log has it completed: the end of its arguments is kept
  back (`wire.chat_calls`), because clients execute whatever parses, whenever it does.
* What was told and then superseded ends the stream with an `error`, never with another answer
  behind the wrong one. Whoever asks again is told the state, in which it is gone.
* `finish_reason` has the values that strict SDKs know. All that ended short of an answer is
  `length` (`content_filter` if it was that), and `native_finish_reason` says what cut it where
  that was no limit of the model: `cancelled`, `input_required` …
* A failure is a chunk with `error`, on which the SDKs raise. A run that waits for people is silent.

Lists in a delta number their entries by `index`: openai-python joins them by it.
"""

from __future__ import annotations

from tailrace.core import sse
from tailrace.core.errors import InvalidCursor
from tailrace.core.fold import State
from tailrace.core.snapshot import fork
from tailrace.wire.base import RETRY_MS, Cursor, Frame
from tailrace.wire.chat_encoder import ChatEncoder


class ChatFormat:
    """`openai-chat`: what every client of chat completions reads."""

    name = "openai-chat"
    headers: dict[str, str] = {}
    resumable = False
    stateful = True
    shows_attempts = False
    heartbeat: Frame = sse.comment("ping")

    def preamble(self, retry_ms: int = RETRY_MS) -> bytes:
        """Nothing: its clients do not connect again by themselves."""
        return b""

    def at(self, state: State) -> ChatEncoder:
        """An encoder for a client that has been told everything up to this state."""
        return ChatEncoder(fork(state))

    def open(self, state: State) -> tuple[ChatEncoder, list[Frame]]:
        """A replay in few chunks, of which what was superseded is no part."""
        frames: list[Frame] = []
        return ChatEncoder(fork(state), joins=frames), frames

    def cursor(self, text: str) -> Cursor:
        """The client has none: it asks for a replay."""
        raise InvalidCursor("This format has no cursor; ask again without one for a replay.")


FORMAT = ChatFormat()
