"""HTTP: routes, checks at the door, streaming answers. Mounts into any ASGI application."""
