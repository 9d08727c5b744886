"""The connection and channel machines without sockets: bytes in, bytes out, time by hand.

`stage` plays the part of the event loop, `outcomes` is the table of what every method does in every
state. Bytes are written and read by the codec of the compatibility tests, which shares no code with
Leveret.
"""
