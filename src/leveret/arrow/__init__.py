"""Streams and queues as Apache Arrow, encoded by a separate process.

Nouns:

- read       one range of one stream, or messages of one queue, requested by one client
- worker     the process that encodes; it reads segment files, or receives chunks from the broker
- batch      a record batch: the rows of several chunks, or a part of one

The broker uses `requests.py`, `bulk_reads.py`, `queue_chunks.py` and `worker_protocol.py`. They
never import pyarrow, which takes about 50 MB and a fifth of a second of CPU. All other modules run
in the worker.
"""
