"""Below ASGI: the connections of clients, and the HTTP that they send."""
