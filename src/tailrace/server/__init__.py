"""HTTP: routes, checks before any route, streams. Mounts into any ASGI application.

routes        apis, server, router, threads, inspector, responses_socket, mount
checks        guard, origins, access, auth, tickets, limits, http_protocol
bodies        request_body, request_fields, idempotency
streams       run_stream, thread_stream, resume_point, sse_response, large_json, abandoned
connections   connections, asgi_transport
descriptions  openapi, schemas, client_schemas
operation     metrics, access_log, signals
the proxy     proxy, repair_middleware
"""
