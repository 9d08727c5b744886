"""Tests of connections and channels without sockets: bytes in, bytes out, a manual clock.

`stage` replaces the event loop. `outcomes` is the table of the result of every method in every
state. Bytes are written and read by the codec of the compatibility tests, which shares no code with
Leveret.
"""
