"""An agent of one's own: `tailrace serve examples.weather:app`, then ask it.

    curl -N localhost:8000/v1/responses -H 'content-type: application/json' \
         -d '{"model": "weather", "input": "Is it sunny in Paris?", "stream": true}'
"""

from tailrace import Tailrace, TaskWriter


async def weather(task: TaskWriter) -> None:
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


app = Tailrace({"weather": weather}, database="weather.db")
