"""Streams: queues whose messages stay.

Nouns:

- `Chunk`     messages that were written together; the unit of reading and writing
- `Segment`   a range of chunks that is deleted as a whole
- `Segments`  the chunks of one stream, on disk or in memory
- `Reader`    a consumer of a stream, and its position
- cursor      a position that the broker keeps under a name

Consumers see a message when it is on disk: an offset that was seen always means the same message.
"""
