"""Repairs the Responses stream of another server. Pure: the proxy and the middleware do the I/O."""
