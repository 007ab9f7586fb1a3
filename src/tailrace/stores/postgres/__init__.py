"""The store for several machines: PostgreSQL."""
