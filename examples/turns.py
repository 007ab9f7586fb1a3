"""Two turns of a conversation in one program, without a server: `python examples/turns.py`."""

import asyncio

from tailrace import Tailrace, Task


async def parrot(task: Task) -> str:
    sent = await task.history()
    asked = [item for item in sent.items if item.get("role") == "user"]
    return f"Question {len(asked)} was {task.text!r}."


async def main() -> None:
    app = Tailrace([parrot], database="sqlite://:memory:")
    async with app.running():
        first = await app.start("parrot", "Is it sunny?")
        print((await first.result()).text)
        second = await app.start("parrot", "And tomorrow?", thread=first.thread_id)
        print((await second.result()).text)


asyncio.run(main())
