"""The bus between processes: Redis Streams."""
