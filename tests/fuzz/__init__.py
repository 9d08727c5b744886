"""Hostile bytes: what is not AMQP must end in a protocol error, and trouble nobody else.

`mutations` spoils the frames of valid conversations, `driver` feeds them to connections of one
broker beside a well-behaved one and checks what is left. LEVERET_FUZZ_SEED repeats a run,
LEVERET_FUZZ_FRAMES makes it longer.
"""
