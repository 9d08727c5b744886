"""Questions of a node that follows to its leader, in the name of a client.

The node opens a connection to the leader as it does for a client, sends one GET request, and reads
the answer whole. It never waits longer than `ASK_S`, and never keeps more than `ANSWER_BYTES_MAX`.
"""

import asyncio
from collections.abc import Awaitable
from typing import Final, NamedTuple

from leveret.cluster.errors import ClusterError
from leveret.cluster.relay import attach
from leveret.runtime.relays import Relayed

ASK_S: Final = 5.0
ANSWER_BYTES_MAX: Final = 65_536
_HEAD_END: Final = b"\r\n\r\n"
# The leader's answer is cut short, too long, or not HTTP.
_BAD_ANSWER: Final = (EOFError, asyncio.LimitOverrunError, ValueError, IndexError)


class LeaderAnswer(NamedTuple):
    """The leader's answer to a question of this node."""

    status: int
    head: bytes
    body: bytes


NO_ANSWER: Final = LeaderAnswer(503, b"", b"")


async def ask_leader(
    opening: Awaitable[Relayed], target: str, asking: list[bytes], *, wants_body: bool
) -> LeaderAnswer:
    """Ask by a connection that is being opened; return `NO_ANSWER` if the leader gives none.

    `asking` are the headers that say who asks. The body is read if it is wanted, or if it says why
    the leader refuses.
    """
    head = [f"GET {target} HTTP/1.1".encode(), b"Connection: close", *asking]
    try:
        async with asyncio.timeout(ASK_S):
            transport, rest = await opening
            reader = asyncio.StreamReader(ANSWER_BYTES_MAX)
            attach(transport, asyncio.StreamReaderProtocol(reader), rest)
            transport.write(b"\r\n".join(head) + _HEAD_END)
            try:
                return await _read_answer(reader, wants_body=wants_body)
            finally:
                transport.abort()
    except (ClusterError, TimeoutError, OSError, *_BAD_ANSWER):
        return NO_ANSWER


async def _read_answer(reader: asyncio.StreamReader, *, wants_body: bool) -> LeaderAnswer:
    head = await reader.readuntil(_HEAD_END)
    status = int(head.split(b" ", 2)[1])
    wants_body = wants_body or status != 200
    body = b""
    while wants_body and (more := await reader.read(ANSWER_BYTES_MAX)):
        body += more
        if len(body) > ANSWER_BYTES_MAX:
            return NO_ANSWER
    return LeaderAnswer(status, head, body)
