"""Reads OpenAI's Responses API: a stream or a whole response."""
