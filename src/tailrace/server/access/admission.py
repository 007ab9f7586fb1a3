"""Lets a request in: it finds the principal, and the runs that this request may see."""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Awaitable, Callable
from contextvars import ContextVar
from dataclasses import dataclass
from functools import partial
from inspect import isawaitable

from starlette.requests import HTTPConnection

from tailrace.runtime.runs.all_runs import Runs
from tailrace.runtime.workers.exits import EXITS
from tailrace.server.access.auth import (
    ApiKeys,
    Authenticate,
    AuthFailed,
    Principal,
    Unauthorized,
    checked,
)
from tailrace.server.access.limits import Allowance, Allowances, ServerLimits
from tailrace.server.access.tickets import COOKIE, TICKET_SECONDS, Tickets
from tailrace.server.access_log import PRINCIPAL

PUBLIC = frozenset(
    ("/", "/health", "/ready", "/openapi.json", "/inspector/{file}", "/inspector/client/{file}")
)
"""The routes that need no key. The inspector asks for a key when the API refuses it."""

TICKETED = frozenset(("/runs/{run_id}/events", "/threads/{thread}/events"))
"""The routes that take a ticket instead of a key."""

logger = logging.getLogger("tailrace")


@dataclass(frozen=True, slots=True)
class AdmittedRequest:
    """A request that was let in: the runs that it sees, and its principal if there is auth."""

    runs: Runs
    principal: Principal | None = None
    allowance: Allowance | None = None
    still_valid: Callable[[], Awaitable[bool]] | None = None
    """Whether the key is still valid, for a stream that stays open."""
    cookie: str | None = None
    """The `Set-Cookie` of a stream that was opened with a ticket."""


admitted: ContextVar[AdmittedRequest] = ContextVar("admitted")
"""The current request. Every API takes its runs from here, so that none can forget the owner."""


class Access:
    """Lets requests in."""

    def __init__(
        self,
        runs: Runs,
        auth: Authenticate | None = None,
        limits: ServerLimits | None = None,
        tickets: Tickets | None = None,
    ) -> None:
        self._runs = runs
        self._auth = auth
        self._tickets = tickets or Tickets()
        allowed = limits or ServerLimits()
        self._allowances = Allowances(partial(Allowance, allowed, runs.store))

    async def enter(self, request: HTTPConnection, route: str | None) -> None:
        """Begin a request to a route, or raise the error that refuses it."""
        if self._auth is None or route in PUBLIC:
            admitted.set(AdmittedRequest(self._runs.of("")))
            return
        cookie = None
        refusal = _NO_KEY if isinstance(self._auth, ApiKeys) else _REFUSED
        principal = await _sender(self._auth, request)
        still_valid = partial(self._has_key, principal)
        if not isinstance(self._auth, ApiKeys):
            still_valid = partial(_is_sender, self._auth, request)
        if principal is None and route in TICKETED:
            principal, cookie = await self._with_ticket(request)
            if principal is None:
                refusal = self._why_no_ticket(request) or refusal
            if not await self._has_key(principal):
                principal = None
            still_valid = partial(self._has_key, principal)
        if principal is None:
            raise Unauthorized(refusal)
        request.scope.get(PRINCIPAL, []).append(principal.id)
        allowance = self._allowances.of(principal.id)
        allowance.request()
        runs = self._runs.of(principal.id, allowance.runs)
        admitted.set(AdmittedRequest(runs, principal, allowance, still_valid, cookie))

    async def _with_ticket(self, request: HTTPConnection) -> tuple[Principal | None, str | None]:
        """The principal of a ticket or of its cookie. A ticket is used once, and gets a cookie.

        A HEAD request, or a request above a limit, leaves the ticket unused: no stream opens.
        """
        root = request.scope.get("root_path", "")
        path = request.scope["path"].removeprefix(root)
        ticket = request.query_params.get("ticket", "")
        principal = self._tickets.read(ticket, "ticket", path)
        if principal is not None:
            name = f"ticket {hashlib.sha256(ticket.encode()).hexdigest()}"
            store = self._runs.store
            if request.scope["method"] == "HEAD":
                if not await store.used(name):
                    return principal, None
                principal = None
            else:
                self._allowances.of(principal.id).check()
                if not await store.use_once(name, TICKET_SECONDS):
                    principal = None
        if principal is None:
            return self._tickets.read(request.cookies.get(COOKIE, ""), "cookie", path), None
        secure = request.url.scheme == "https"
        return principal, self._tickets.cookie(principal, path, root, secure=secure)

    def _why_no_ticket(self, request: HTTPConnection) -> str | None:
        """Why the ticket of a request, or its cookie, opens no stream; None if it has neither."""
        given = request.query_params.get("ticket") or request.cookies.get(COOKIE)
        if not given:
            return None
        return _TICKET_ENDED if self._tickets.signed(given) else _TICKET_UNSIGNED

    async def _has_key(self, principal: Principal | None) -> bool:
        """Whether the principal's API key is valid; a function of the application has no keys."""
        if principal is None or not isinstance(self._auth, ApiKeys):
            return principal is not None
        return self._auth.is_valid(principal)


async def _is_sender(auth: Authenticate, request: HTTPConnection) -> bool:
    return await _sender(auth, request) is not None


async def _sender(auth: Authenticate, request: HTTPConnection) -> Principal | None:
    try:
        found = auth(request)
        return checked(await found if isawaitable(found) else found)
    except AuthFailed as error:
        logger.error("%s", error)
        raise AuthFailed(_FAILED) from None
    except (Exception, *EXITS) as error:  # noqa: BLE001
        # Its message and its traceback may hold the key.
        place = error.__traceback__
        while place is not None and place.tb_next is not None:
            place = place.tb_next
        where = f"{place.tb_frame.f_code.co_filename}:{place.tb_lineno}" if place else "?"
        logger.error("`auth` raised %s at %s", type(error).__name__, where)
        raise AuthFailed(_FAILED) from None


_NO_KEY = (
    "The API key is missing or invalid. Send `Authorization: Bearer KEY` or `x-api-key: KEY`; "
    "`tailrace keys create` makes a key."
)
_REFUSED = (
    "The `auth` function of this application does not admit the request: send the credentials "
    "that it reads."
)
_TICKET_ENDED = (
    "The ticket has expired, was used before, or is for another stream. Ask for a new ticket with "
    "`POST /tickets`."
)
_TICKET_UNSIGNED = (
    "This server process did not sign the ticket. Processes accept each other's tickets, and those "
    "from before a restart, only with the same TAILRACE_SECRET. Set it, or ask for a new ticket."
)
_FAILED = "The server could not check the key. Its log has the details."
