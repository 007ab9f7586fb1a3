"""A loop of your own: an async function that writes its run, event by event.

    tailrace serve examples.own_loop:app

The log, the formats, resume and cancel are the same as for an `Agent`.
"""

from tailrace import Tailrace, Task


async def weather(task: Task) -> None:
    with task.reasoning() as thinking:
        thinking.summary("The forecast will tell.")

    with task.call("get_weather") as call:
        call.arguments('{"city":"Paris"}')
    call.start()
    await task.drain()  # the tool starts only after its start is durable
    call.result({"temperature": "15C", "condition": "Sunny"})

    with task.message() as message:
        for word in ("Yes, ", "it ", "is ", "sunny ", "at ", "15C.[^1]"):
            message.text(word)
            await task.drain()


app = Tailrace({"weather": weather}, database="own_loop.db")
