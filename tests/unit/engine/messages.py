"""Messages for tests of the structures that hold them."""

from leveret.engine.message import Address, Message

_ADDRESS = Address("", "q")


def message(seq: int, *, priority: int = 0, expires_ms: int = 0, body: bytes = b"") -> Message:
    """Return a message as a queue makes it, identified by `seq`."""
    return Message(_ADDRESS, b"", body, seq, expires_ms, priority, 0, 0)


def tagged(tag: int) -> Message:
    """Return a message that is in flight under a tag."""
    made = message(tag)
    made.tag = tag
    return made
