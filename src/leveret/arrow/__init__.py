"""Streams as Apache Arrow: ranges of offsets, encoded by a process of their own.

Nouns:

- read       one range of one stream, asked for by one client
- worker     the process that encodes; it reads segment files, or is sent chunks by the broker
- batch      a record batch: the rows of several chunks, or a part of one

The broker's side is `requests.py`, `reads.py` and `frames.py`; they never import pyarrow, which
takes 170 MB and half a second. The worker's side is everything else.
"""
