"""Streams: queues whose messages stay.

Nouns:

- `Chunk`     messages that were taken in together; the unit of reading and writing
- `Segment`   a stretch of chunks that is forgotten as a whole
- `Segments`  where the chunks of one stream are kept: on disk, or in memory
- `Reader`    a consumer of a stream, and where it is
- cursor      a position that the broker keeps under a name

Consumers see a message when it is on disk: an offset, once seen, always means the same message.
"""
