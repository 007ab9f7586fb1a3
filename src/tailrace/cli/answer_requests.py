"""Answers the requests of a run: a person at the keyboard does, or the command itself."""

from __future__ import annotations

import asyncio
import sys
from typing import Any, Literal

from tailrace.cli.background_screen import BackgroundScreen
from tailrace.core.items import InputRequest

APPROVAL_SECONDS = 1.0
"""How long a call that the command approves by itself is shown as waiting."""

AnswerMode = Literal["ask", "approve", "leave"]
"""Who answers: the person at the keyboard, the command itself, or another client."""


class RequestAnswerer:
    """Answers one request after the other. Another client may answer first."""

    def __init__(
        self, run: Any, screen: BackgroundScreen, manner: AnswerMode, keys: asyncio.Queue[str]
    ) -> None:
        self._run = run
        self._screen = screen
        self._manner = manner
        self._keys = keys
        self._asked = ""
        self._answering: asyncio.Task[None] | None = None

    def look(self) -> InputRequest | None:
        """Begin to answer the first open request; the request that is left to others."""
        request = next((request for _, request in self._screen.state.requests()), None)
        if request is None or request.id != self._asked:
            self.stop()
        if request is None:
            return None
        if self._manner == "leave" or (self._manner == "approve" and request.kind != "approval"):
            return request
        if self._answering is None:
            self._asked = request.id
            self._answering = asyncio.create_task(self._answer(request))
        return None

    def stop(self) -> None:
        """Ask no more."""
        if self._answering is not None:
            self._answering.cancel()
        self._answering = None
        self._asked = ""
        self._screen.prompt("")

    async def _answer(self, request: InputRequest) -> None:
        answer: dict[str, Any] = {"request_id": request.id}
        while not self._keys.empty():  # pressed before the question, so no answer to it
            self._keys.get_nowait()
        if self._manner == "approve":
            self._screen.note("The call waits for an approval. It is approved after a second.")
            await asyncio.sleep(APPROVAL_SECONDS)
            answer["approved"] = True
        elif request.kind == "approval":
            self._screen.prompt("Press y to approve, n to deny.")
            while (key := (await self._keys.get()).lower()) not in ("y", "n"):
                pass
            answer["approved"] = key == "y"
        else:
            self._screen.note(f"{request.message or 'A value is needed.'} Type it, then Enter.")
            answer["value"] = await self._typed()
        await self._run.send(answer)

    async def _typed(self) -> str:
        text = ""
        while (key := await self._keys.get()) not in ("\n", "\r"):
            if key in ("\x7f", "\b"):
                text = text[:-1]
                sys.stdout.write("\b \b")
            elif key.isprintable():
                text += key
                sys.stdout.write(key)
            sys.stdout.flush()
        return text
