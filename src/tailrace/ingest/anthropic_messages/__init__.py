"""Reads Anthropic's Messages API: a stream or a whole message."""
