"""How readers learn of new events: one file, one bus."""
