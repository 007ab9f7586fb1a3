"""`GET /openapi.json`: every route as OpenAPI 3.1, made from the route table.

A handler names its parameters, its body and its answers with `@operation`, and its docstring says
what it does. The errors that every route may answer with are added here. `scripts/generate_docs.py`
writes `docs/reference/http.md` from the same document.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from copy import deepcopy
from functools import partial
from importlib.metadata import version
from typing import Any, TypeVar, get_args

import msgspec
from starlette.routing import Route

from tailrace.core.events import KNOWN
from tailrace.core.values import Json
from tailrace.server.access.admission import PUBLIC, TICKETED
from tailrace.server.idempotency import ABOUT
from tailrace.server.openapi.schemas import COMMON, Error, Id
from tailrace.wire.agents.events import AgentsEvent
from tailrace.wire.run.events import RunFormatEvent
from tailrace.wire.task import TaskGap, TaskSnapshot

DocumentedHandler = TypeVar("DocumentedHandler", bound=Callable[..., Any])

_PLACE = "#/components/schemas/"
SSE = "text/event-stream"
_FRAME: Json = {"event": {"type": "string"}, "id": {"type": "string"}}
STREAM: Json = {
    SSE: {"type": "object", "properties": {**_FRAME, "data": {"type": "string"}}},
}
"""A stream of frames in the format of the API."""

EVENTS: Json = {
    SSE: {
        "type": "object",
        "properties": {
            **_FRAME,
            "data": {
                "type": "string",
                "anyOf": [
                    *(
                        {
                            "contentMediaType": "application/json",
                            "contentSchema": {"$ref": f"{_PLACE}{name}"},
                        }
                        for name in ("TaskFrame", "RunFrame", "AgentsFrame")
                    ),
                    {"type": "string"},
                ],
                "description": "In the formats `task`, `run` and `agents` as described; the other "
                "formats are those of other APIs.",
            },
        },
    }
}
"""A stream of a run or a thread, in any format."""

OBJECT: Json = {"type": "object"}
FLAG: Json = {"type": "string", "enum": ["true", "false", "1", "0", "yes", "no", "on", "off", ""]}

ERRORS = {
    400: "The request is invalid: the message says what to change.",
    401: "The key is missing or invalid.",
    403: "Pages of this origin may not call the server.",
    404: "It does not exist, or belongs to another principal.",
    408: "The body did not come in time.",
    409: "The run has ended and takes no input.",
    413: "The body is too large.",
    415: "The body is not declared as JSON.",
    421: "The server does not answer for this host.",
    422: "The `Idempotency-Key`, in AG-UI the `runId`, was used with another body.",
    423: "Another run of the thread has not ended.",
    424: "The run failed: the error is that of its agent or model.",
    429: "A limit of the principal is reached; try again after `Retry-After`.",
    431: "Path, query and headers are too large.",
    500: "An error of the server; its log has the details.",
    503: "The store is away, or the server stops; try again after `Retry-After`.",
}
"""Every status of an error, and what it means."""

_ALWAYS = (400, 401, 403, 404, 421, 429, 431, 500, 503)
_WITH_BODY = (408, 413, 415)

_ANTHROPIC_ERROR: Json = {
    "type": "object",
    "required": ["type", "error"],
    "properties": {
        "type": {"const": "error"},
        "error": {
            "type": "object",
            "required": ["type", "message"],
            "properties": {"type": {"type": "string"}, "message": {"type": "string"}},
        },
    },
}


class RouteInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the handler of a route takes and answers with."""

    query: Mapping[str, Any] = {}
    """JSON Schemas of the query's parameters; with `required: true` of those that must be there."""
    headers: Mapping[str, Any] = {}
    body: Any = None
    """The type or the JSON Schema of the body."""
    answers: Mapping[int, Any] = msgspec.field(default_factory=lambda: {200: OBJECT})
    """By status: a type, a JSON Schema, content by media type, or None for no content."""
    errors: tuple[int, ...] = ()
    """Statuses of errors beside those that every route may have."""


def operation(**fields: Any) -> Callable[[DocumentedHandler], DocumentedHandler]:
    """Declare what a handler takes and answers with."""

    def declare(handler: DocumentedHandler) -> DocumentedHandler:
        handler.operation = RouteInfo(**fields)  # type: ignore[attr-defined]
        return handler

    return declare


def document(routes: Iterable[Route], *, root: str = "", keys: bool = True) -> Json:
    """The OpenAPI document. `keys`: the server has keys; `root` is the prefix of its mount."""
    made = _Document()
    for route in routes:
        for method in sorted((route.methods or set()) - {"HEAD"}):
            made.add(route, method, keys=keys)
    events = made.events()
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "Tailrace",
            "version": version("tailrace"),
            "description": "PROTOCOL.md has the rules of streams, cursors and events.",
        },
        "servers": [{"url": root or "/"}],
        "paths": made.paths,
        "components": {
            "schemas": dict(sorted({**deepcopy(COMMON), **events, **made.schemas}.items())),
            **({"securitySchemes": _SECURITY} if keys else {}),
        },
    }


_SECURITY: Json = {
    "bearer": {"type": "http", "scheme": "bearer"},
    "key": {"type": "apiKey", "in": "header", "name": "x-api-key"},
    "ticket": {"type": "apiKey", "in": "query", "name": "ticket"},
}


def _choice(types: Iterable[Any], prefix: str = "") -> tuple[Json, Json]:
    """The schema of any of these tagged types, and the schemas that it refers to."""
    types = list(types)
    refs, parts = msgspec.json.schema_components(types, ref_template=_PLACE + prefix + "{name}")
    tags = [str(one.__struct_config__.tag) for one in types]
    mapping = {tag: ref["$ref"] for tag, ref in zip(tags, refs, strict=True)}
    return _any_of(mapping), {prefix + name: schema for name, schema in parts.items()}


def _any_of(mapping: dict[str, str]) -> Json:
    refs = [{"$ref": ref} for ref in mapping.values()]
    return {"oneOf": refs, "discriminator": {"propertyName": "type", "mapping": mapping}}


class _Document:
    def __init__(self) -> None:
        self.paths: dict[str, Json] = {}
        self.schemas: dict[str, Json] = {}

    def events(self) -> dict[str, Json]:
        """The schema of every event and frame of our own formats.

        `Event` is any event. `TaskFrame`, `RunFrame` and `AgentsFrame` are any frame of a format.
        """
        events, parts = _choice(KNOWN)
        others, more = _choice((TaskGap, TaskSnapshot))
        mapping = {**events["discriminator"]["mapping"], **others["discriminator"]["mapping"]}
        found = {**parts, **more, "Event": events, "TaskFrame": _any_of(mapping)}
        runs, parts = _choice(get_args(RunFormatEvent))
        agents, more = _choice(get_args(AgentsEvent), "agents.")  # `AgentName` is there twice
        return {**found, **parts, **more, "RunFrame": runs, "AgentsFrame": agents}

    def add(self, route: Route, method: str, *, keys: bool) -> None:
        handler = route.endpoint.func if isinstance(route.endpoint, partial) else route.endpoint
        about: RouteInfo = getattr(handler, "operation", RouteInfo())
        summary, _, rest = (inspect.getdoc(handler) or "").partition("\n\n")
        named = getattr(handler, "__self__", None)
        parameters = [
            {"name": name, "in": "path", "required": True, "schema": self._schema(Id)}
            for name in route.param_convertors
        ]
        for place, found in (("query", about.query), ("header", about.headers)):
            for name, schema in found.items():
                given = dict(schema)
                needed = {"required": True} if given.pop("required", False) is True else {}
                text = {"description": given.pop("description")} if "description" in given else {}
                entry = {"name": name, "in": place, **needed, **text, "schema": given}
                parameters.append(entry)
        has_key = 422 in about.errors and not route.path.startswith("/ag-ui")  # `runId` is its key
        about_key = ABOUT if has_key else ""
        rest = " ".join(filter(None, (*rest.split(), about_key)))
        made: Json = {
            "operationId": f"{handler.__name__}_{method.lower()}_{len(self.paths)}",
            "summary": " ".join(summary.split()),
            **({"description": rest} if rest else {}),
            **({"tags": [type(named).__name__.removesuffix("Api")]} if named is not None else {}),
            **({"parameters": parameters} if parameters else {}),
        }
        if about.body is not None:
            content = {"application/json": {"schema": self._schema(about.body)}}
            made["requestBody"] = {"required": True, "content": content}
        made["responses"] = self._responses(route.path, method, about, keys=keys)
        if keys:
            made["security"] = _security(route.path)
        self.paths.setdefault(route.path, {})[method.lower()] = made

    def _responses(self, path: str, method: str, about: RouteInfo, *, keys: bool) -> Json:
        found: Json = {}
        for status, answer in about.answers.items():
            found[str(status)] = {"description": _MEANINGS.get(status, "The answer.")}
            if answer is not None:
                found[str(status)]["content"] = self._content(answer)
        statuses = {*_ALWAYS, *about.errors, *(_WITH_BODY if method == "POST" else ())}
        if not keys or path in PUBLIC:
            statuses -= {401, 429}
        for status in sorted(statuses):
            content = {"application/json": {"schema": self._schema(Error)}}
            if path.startswith("/api/chat"):
                content = {"text/plain": {"schema": {"type": "string"}}}
            elif path.startswith("/v1/messages"):
                content = {"application/json": {"schema": _ANTHROPIC_ERROR}}
            found.setdefault(str(status), {"description": ERRORS[status], "content": content})
        return found

    def _content(self, answer: Any) -> Json:
        if not isinstance(answer, dict) or not all("/" in name for name in answer):
            answer = {"application/json": answer}
        return {media: {"schema": self._schema(given)} for media, given in answer.items()}

    def _schema(self, given: Any) -> Json:
        if isinstance(given, dict):
            if "anyOf" not in given:
                return given
            return {**given, "anyOf": [self._schema(choice) for choice in given["anyOf"]]}
        (schema,), parts = msgspec.json.schema_components(
            [given], ref_template="#/components/schemas/{name}"
        )
        self.schemas |= parts
        return schema


_MEANINGS = {
    200: "The answer.",
    201: "It was created.",
    202: "It is stored.",
    204: "There is nothing to send.",
    304: "The client has it.",
}


def _security(path: str) -> list[dict[str, list[str]]]:
    if path in PUBLIC:
        return []
    names = ("bearer", "key", "ticket") if path in TICKETED else ("bearer", "key")
    return [{name: []} for name in names]
