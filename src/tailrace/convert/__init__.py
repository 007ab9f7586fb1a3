"""One stream read as another: any provider's, or ours, into any wire format.

    async for frames in transcode(response.aiter_bytes(), "openai-chat", "vercel-ui"):
        await send(frames)

It is `ingest` and `wire` put end to end, without a log between them: what cannot be kept cannot be
resumed, so whatever happens to the source, the target is brought to an end that its readers take
for one. `tailrace convert` is the same on the command line.
"""

from tailrace.convert.transcoder import Transcoder, source_names, target_names, transcode

__all__ = ["Transcoder", "source_names", "target_names", "transcode"]
