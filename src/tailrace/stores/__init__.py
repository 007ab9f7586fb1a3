"""Where runs are kept: one file, one store."""
