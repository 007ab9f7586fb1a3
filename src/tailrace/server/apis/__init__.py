"""One file per HTTP API: its routes and handlers."""
