"""Sub-agents and citations: two researchers work at the same time, an editor cites what they found.

    tailrace serve examples.research:app

Each sub-agent's events are shown while it works. The editor's model reads their answers and the
sources that they cite, and nothing else.
"""

from collections.abc import AsyncIterator
from typing import Any

from tailrace import Agent, Tailrace, notify, streaming_tool
from tailrace.models import Scripted, call, say, think

PAGES = {
    "rivers": "The Loire is 1006 km long.",
    "mountains": "Mont Blanc is 4806 m high.",
}


@streaming_tool
async def search(topic: str) -> AsyncIterator[Any]:
    """Searches the library for a topic."""
    yield notify(f"searching for {topic}", progress=0.5)
    yield {"title": topic, "text": PAGES.get(topic, "Nothing was found.")}


def researcher(topic: str, finding: str) -> Agent:
    model = Scripted(
        [think(f"I look for {topic}."), call("search", topic=topic)], [say(f"{finding}[^1]")]
    )
    return Agent(topic, model=model, tools=[search], description=f"Knows about {topic}.")


rivers = researcher("rivers", "The Loire is the longest river.")
mountains = researcher("mountains", "Mont Blanc is the highest mountain.")

editor = Agent(
    "editor",
    model=Scripted(
        [call("rivers", prompt="The longest?"), call("mountains", prompt="The highest?")],
        [say("The Loire is the longest river[^1], Mont Blanc the highest mountain[^2].", pace=20)],
    ),
    instructions="Ask both researchers, then answer in one sentence.",
    tools=[rivers.as_tool(), mountains.as_tool()],
)

app = Tailrace([editor], database="research.db")
