"""Messages between members as whole frames, with the size in front."""

from leveret.cluster.raft.codec import (
    FRAME_BYTES_MAX,
    SIZE_BYTES,
    decode_messages,
    encode_frames,
)
from leveret.cluster.raft.messages import Message
from leveret.errors import FrameError


def encode_frame(source: int, target: int, messages: list[Message]) -> bytes:
    """Encode messages from one node to another as one frame."""
    (pieces,) = encode_frames(source, target, messages, FRAME_BYTES_MAX)
    return b"".join(pieces)


def decode_frame(data: bytes) -> list[Message]:
    """Decode the messages of one whole frame."""
    if int.from_bytes(data[:SIZE_BYTES], "big") != len(data) - SIZE_BYTES:
        raise FrameError(f"a frame of another size than {len(data)} bytes")
    return decode_messages(memoryview(data)[SIZE_BYTES:])
