"""The answer to a bulk read: an Arrow IPC stream, relayed from the worker with back-pressure.

The first rows of the worker decide the status. A later failure breaks the connection off, so that
the client sees an incomplete answer and never a short one that looks complete. A client that reads
nothing for a while is disconnected too.
"""

import asyncio
import logging
from abc import ABC, abstractmethod
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager
from typing import Final

import msgspec
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

from leveret.arrow import worker_protocol
from leveret.arrow.bulk_reads import BUSY, BulkReads, Read, ReadError
from leveret.arrow.queue_chunks import QueueChunk
from leveret.arrow.requests import Request
from leveret.engine.streams.stream import Stream
from leveret.http.framework.names import printable
from leveret.http.framework.responses import ErrorBody, json_response

log = logging.getLogger(__name__)

MEDIA_TYPE: Final = "application/vnd.apache.arrow.stream"
_STATUSES: Final = {
    worker_protocol.GONE: 410,
    worker_protocol.DAMAGED: 500,
    worker_protocol.FAILED: 500,
    worker_protocol.MISSING: 501,
    BUSY: 503,
}
_WORDS: Final = {
    410: "gone",
    500: "Internal Server Error",
    501: "not_implemented",
    503: "service_unavailable",
}


class RangeGone(msgspec.Struct):
    """Body of 410, with the first offset that the stream still has."""

    error: str
    reason: str
    first_offset: int


class ArrowResponse(ABC):
    """Relay one read."""

    def __init__(self, reads: BulkReads, shown: str, user: str) -> None:
        self._reads = reads
        self._user = user  # whose share of the reads it takes
        self._shown = shown  # name of the source in the log file

    @abstractmethod
    def open(self) -> AbstractAsyncContextManager[Read]:
        """Begin the read in the worker."""

    def failure(self, fault: ReadError) -> Response:
        """Return the response if nothing could be read."""
        status = _STATUSES[fault.why]
        return json_response(ErrorBody(_WORDS[status], str(fault)), status=status)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False
        try:
            async with self.open() as read:
                await read.begin()
                has_begun = True
                await send(_start())
                if scope["method"] != "HEAD":
                    await self._relay(read, scope.get("state", {}).get("lost"), send)
            await send({"type": "http.response.body", "body": b"", "more_body": False})
        except ReadError as fault:
            if has_begun:
                log.warning("a read of %s broke off: %s", self._shown, fault)
                await _break_off(scope, receive)
            else:
                await self.failure(fault)(scope, receive, send)

    async def _relay(self, read: Read, lost: asyncio.Future[None] | None, send: Send) -> None:
        """Send the pieces of a read. `lost` is done when the client's connection has ended.

        Starlette's `is_disconnected` would cost as much as all the rest of a piece.
        """
        while piece := await read.piece():
            try:
                async with asyncio.timeout(self._reads.stall_s):
                    await send({"type": "http.response.body", "body": piece, "more_body": True})
            except TimeoutError:
                raise ReadError(worker_protocol.FAILED, "the client does not read") from None
            if lost is not None and lost.done():
                raise ReadError(worker_protocol.FAILED, "the client has gone")
            await asyncio.sleep(0)  # a fast worker and a fast client must not block the loop


class StreamArrowResponse(ArrowResponse):
    """Relay a range of a stream."""

    def __init__(self, reads: BulkReads, stream: Stream, request: Request, user: str) -> None:
        super().__init__(reads, shown_stream(stream), user)
        self._stream = stream
        self._request = request

    def open(self) -> AbstractAsyncContextManager[Read]:
        return self._reads.read(self._stream, self._request, self._user)

    def failure(self, fault: ReadError) -> Response:
        if self._stream.deleted:
            return json_response(
                ErrorBody("Object Not Found", "the stream has been deleted"), status=404
            )
        if _STATUSES[fault.why] == 410:
            return json_response(range_gone(self._stream, self._request.first), status=410)
        if fault.why == worker_protocol.DAMAGED:
            reason = f"{shown_stream(self._stream)}: {fault}"
            return json_response(ErrorBody(_WORDS[500], reason), status=500)
        return super().failure(fault)


class QueueArrowResponse(ArrowResponse):
    """Relay messages of a queue."""

    def __init__(
        self, reads: BulkReads, request: Request, packs: AsyncIterator[QueueChunk], user: str
    ) -> None:
        super().__init__(reads, f"queue '{request.stream}'", user)
        self._request = request
        self._packs = packs

    def open(self) -> AbstractAsyncContextManager[Read]:
        return self._reads.read_queue(self._request, self._packs, self._user)


def shown_stream(stream: Stream) -> str:
    """Return the name of a stream for an error."""
    return f"stream '{printable(stream.name)}' in vhost '{printable(stream.vhost)}'"


def _start() -> Message:
    headers = [(b"content-type", MEDIA_TYPE.encode())]
    return {"type": "http.response.start", "status": 200, "headers": headers}


def range_gone(stream: Stream, offset: int) -> RangeGone:
    """Return the body of 410: retention has removed the beginning of the range."""
    first = int(stream.first_offset)
    reason = f"retention has passed offset {offset}: the stream begins with {first}"
    return RangeGone(_WORDS[410], reason, first)


async def _break_off(scope: Scope, receive: Receive) -> None:
    """Close the connection at once, without sending the buffered bytes."""
    abort = scope.get("state", {}).get("abort")
    if abort is None:
        return  # the server sees an answer without an end, and closes
    abort()
    while (await receive())["type"] != "http.disconnect":
        pass
