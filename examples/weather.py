"""An agent with a tool: `tailrace serve examples.weather:app`, then ask it.

    curl -N localhost:8000/v1/responses -H 'content-type: application/json' \
         -d '{"model": "weather", "input": "Is it sunny in Paris?", "stream": true}'

`MODEL=openai:gpt-5-mini OPENAI_API_KEY=… tailrace serve examples.weather:app` asks a real model.
"""

import os

from tailrace import Agent, Tailrace, tool
from tailrace.models import Scripted, call, say

script = Scripted(
    [call("get_weather", city="Paris")], [say("Yes, it is sunny at 15C.[^1]", pace=20)]
)


@tool
async def get_weather(city: str) -> dict[str, str]:
    """Current weather in a city."""
    return {"city": city, "temperature": "15C", "condition": "Sunny"}


weather = Agent("weather", model=os.environ.get("MODEL") or script, tools=[get_weather])

app = Tailrace([weather], database="weather.db")
