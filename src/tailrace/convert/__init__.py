"""Convert a stream of a provider, or of ours, to any wire format.

    async for frames in transcode(response.aiter_bytes(), "openai-chat", "vercel-ui"):
        await send(frames)

It joins `ingest` and `wire` without a log between them, so it cannot be resumed. The target always
gets a proper end, whatever happens to the source. `tailrace convert` does the same on the command
line.
"""

from tailrace.convert.transcoder import Transcoder, source_names, target_names, transcode

__all__ = ["Transcoder", "source_names", "target_names", "transcode"]
