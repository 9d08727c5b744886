"""Hostile bytes: invalid AMQP must end in a protocol error and must not disturb other connections.

`mutations` corrupts the frames of valid conversations. `driver` feeds them to connections of one
broker, beside a well-behaved connection, and checks the state afterwards. LEVERET_FUZZ_SEED repeats
a run, LEVERET_FUZZ_FRAMES makes it longer.
"""
