"""The server behind the front ends in clients/ts/examples; they run on another port."""

from tailrace import Agent, Tailrace, tool
from tailrace.models import Scripted, call, say, think


@tool
async def get_weather(city: str) -> dict[str, str]:
    """Current weather in a city."""
    return {"city": city, "temperature": "15C", "condition": "Sunny"}


@tool(needs_approval=True)
async def book_table(restaurant: str, guests: int) -> str:
    """Books a table. A person has to approve it."""
    return f"A table for {guests} at {restaurant} is booked."


ANSWER = "It is sunny in Paris, at 15 °C.[^1] " + "Take a light jacket, and enjoy the day. " * 6

weather = Agent(
    "weather",
    model=Scripted(
        [think("Which city? Paris."), call("get_weather", city="Paris")],
        [say(ANSWER, pace=30)],
    ),
    tools=[get_weather],
)
planner = Agent(
    "planner",
    model=Scripted(
        [call("book_table", restaurant="Chez Janou", guests=2)],
        [say("See you there.", pace=30)],
    ),
    tools=[book_table],
)

app = Tailrace([weather, planner], database="front_end.db", origins=["http://localhost:3000"])
