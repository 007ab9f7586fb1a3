"""HTTP: routes, checks before any route, streams. Mounts into any ASGI application.

routes      server, router, apis, threads, inspector, mount
requests    access, request_body, request_fields, idempotency
answers     streams, openapi
below ASGI  transport, signals
operation   metrics, access_log
the proxy   proxy, repair_middleware
"""
