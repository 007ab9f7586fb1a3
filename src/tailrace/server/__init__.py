"""HTTP: routes, checks before any route, streams. Mounts into any ASGI application."""
