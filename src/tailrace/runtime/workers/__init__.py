"""Workers: each claims runs, calls their agents, and keeps the leases."""
