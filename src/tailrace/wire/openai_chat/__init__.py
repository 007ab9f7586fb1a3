"""OpenAI's chat completions stream: the root task as a message of the assistant.

The stream has chunks with a single choice, a chunk without choices for the usage, and `[DONE]`.

| here | there |
| --- | --- |
| message: text, file | `delta.content`; a file is a Markdown link in its own paragraph |
| message: refusal, image | `delta.refusal`; `delta.images`, as in OpenRouter's API |
| reasoning | `delta.reasoning_content`: the summary or the raw text, whichever came first |
| tool_call, executor `client` | `delta.tool_calls` |
| citation with a URL, or of a block | `delta.annotations`: `url_citation`, when its text ends |
| structured output | `delta.content`, if the run completes without any other content |
| another agent speaks | `model` of the chunks from there on, the first of them empty |
| any other tool_call, results, data and raw, sub-agents, steps, notices | nothing |

A call of the server is not shown: the client would execute it again.

The format has no items, only fields that grow. Nothing can be taken back:

* One item at a time writes to a field, in order of arrival. The others wait. A blank line separates
  messages, and the texts of reasoning.
* A client's call stays unparsable until the log has it completed (`openai_chat.calls`), because
  clients execute arguments as soon as they parse.
* If a shown item is superseded, the stream ends with an `error`. A client that asks again gets a
  replay of the state, which does not have the item.
* `finish_reason` has the values that strict SDKs know. A run that ended early has `length`, or
  `content_filter`. `native_finish_reason` names the reason unless it is a limit of the model:
  `cancelled`, `max_turns` …
* A failure is a chunk with `error`, which the SDKs raise. So is the end of a stream whose run goes
  on: `stream_cut`, or `input_required` if it waits for people. A run that waits sends nothing.

Entries of lists in a delta have an `index`: openai-python merges them by it.
"""

from __future__ import annotations

from tailrace.core.fold import State
from tailrace.core.state_copy import copy_state
from tailrace.wire.base import Frame, ReplayFormat
from tailrace.wire.openai_chat.encoder import ChatEncoder
from tailrace.wire.openai_chat.messages import messages, read, runs_of
from tailrace.wire.openai_chat.object import completion

__all__ = ["FORMAT", "WITHOUT_USAGE", "ChatFormat", "completion", "messages", "read", "runs_of"]


class ChatFormat(ReplayFormat):
    """`openai-chat`: for clients of chat completions."""

    def __init__(self, *, usage: bool = True) -> None:
        """Without `usage` the stream has no chunk without choices."""
        self.name = "openai-chat" if usage else "openai-chat-without-usage"
        self._usage = usage

    def at(self, state: State) -> ChatEncoder:
        """An encoder for a client that has seen everything up to this state."""
        return ChatEncoder(copy_state(state), usage=self._usage)

    def open(self, state: State) -> tuple[ChatEncoder, list[Frame]]:
        """A replay in few chunks, without superseded items."""
        frames: list[Frame] = []
        return ChatEncoder(copy_state(state), replay=frames, usage=self._usage), frames


FORMAT = ChatFormat()

WITHOUT_USAGE = ChatFormat(usage=False)
"""The stream of a request that did not ask for `stream_options.include_usage`."""
