"""Reads the Vercel AI SDK's UI message stream."""
