"""What clients are sent: one file, one format. Pure functions of the folded state."""
