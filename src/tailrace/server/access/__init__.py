"""Who may call: the checks before any route, then the principal and its limits."""
