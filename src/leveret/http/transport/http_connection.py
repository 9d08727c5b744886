"""One HTTP connection: uvicorn's protocol, with a limit on heads and the fast path.

uvicorn parses with httptools, which does not limit the length of a request head. Small, frequent
calls are taken before uvicorn sees them (`fast_path.py`). The two are never in the middle of a
request at the same time.
"""

import asyncio
import logging
from typing import Any, Final

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from leveret.http.transport.fast_path import FastPath, Head, maybe_head

log = logging.getLogger(__name__)

CONNECTIONS_MAX: Final = 4096
HEAD_BYTES_MAX: Final = 65_536  # of the request line and the headers
_WAITING_BYTES_MAX: Final = 64 * 1024  # bytes that a client may send before it gets an answer


class HttpConnection(HttpToolsProtocol):
    """Limit the head of a request, and allow a handler to abort an unfinished answer.

    A handler aborts with `abort` in the state of the scope.
    """

    fast_path: FastPath  # set by the server
    sockets_end = 0  # set by the server: first file descriptor that is refused; 0: no limit
    _head_bytes = 0  # received since the last complete request
    _has_head = False
    _head_by_s = 0.0  # loop time by which the head must be complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self.app_state = {**self.app_state, "abort": transport.abort}
        self._cycles: list[RequestResponseCycle] = []  # requests without a complete answer
        self._head: Head | None = None  # head of the request on the fast path
        self._body = bytearray()  # its body so far; during the call, the bytes after it
        self._gone: asyncio.Event | None = None  # set while a request of the fast path is answered
        self._is_ending = False
        self._wait_s(self.timeout_keep_alive)  # wait for the first request
        sock = transport.get_extra_info("socket")
        if 0 < self.sockets_end <= sock.fileno():
            log.warning("a connection was refused: the node has too many open files")
            transport.abort()

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._take_body(data)
            return
        head = maybe_head(data, self.fast_path.endpoints) if self._is_between() else None
        if head is None or len(self.tasks) >= CONNECTIONS_MAX:
            self._parse(data)
            return
        self._head = head
        self._take_body(data[head.body_start :])

    def _is_between(self) -> bool:
        """Return True if uvicorn's parser is between two requests."""
        cycle: RequestResponseCycle | None = self.cycle
        is_answered = cycle is None or cycle.response_complete
        return is_answered and not self._has_head and self._head_bytes == 0

    def _parse(self, data: bytes) -> None:
        now_s = self.loop.time()
        if self._head_bytes == 0:
            self._head_by_s = now_s + self.timeout_keep_alive
        self._head_bytes += len(data)
        super().data_received(data)
        if self._head_bytes != 0 and not self.transport.is_closing():
            self._wait_s(self.timeout_keep_alive if self._has_head else self._head_by_s - now_s)
        if not self._has_head and self._head_bytes > HEAD_BYTES_MAX:
            self.send_400_response("The head of the request is too long.")

    def _wait_s(self, wait_s: float) -> None:
        """Close the connection unless the client sends something within this time."""
        self._unset_keepalive_if_required()
        self.timeout_keep_alive_task = self.loop.call_later(wait_s, self.timeout_keep_alive_handler)

    def timeout_keep_alive_handler(self) -> None:
        if self.flow.read_paused:  # the client cannot send: we do not read
            self._wait_s(self.timeout_keep_alive)
        else:
            super().timeout_keep_alive_handler()

    def on_headers_complete(self) -> None:
        self._has_head = True
        super().on_headers_complete()
        self._cycles = [each for each in self._cycles if not each.response_complete]
        self._cycles.append(self.cycle)

    def on_message_complete(self) -> None:
        self._has_head = False
        self._head_bytes = 0
        super().on_message_complete()

    def _take_body(self, data: bytes) -> None:
        assert self._head is not None
        self._unset_keepalive_if_required()
        self._body += data
        if self._gone is not None:
            # The next request waits. Reading goes on up to a limit, to notice a disconnect.
            if len(self._body) > _WAITING_BYTES_MAX:
                self.flow.pause_reading()
        elif len(self._body) >= self._head.body_length:
            self._gone = asyncio.Event()
            task = self.loop.create_task(self._answer(self._head, self._gone))
            self.tasks.add(task)
            task.add_done_callback(self.tasks.discard)
        else:
            self._wait_s(self.timeout_keep_alive)

    async def _answer(self, head: Head, gone: asyncio.Event) -> None:
        body = bytes(self._body[: head.body_length])
        del self._body[: head.body_length]
        try:
            answer = await self.fast_path.answer(self._scope_of(head), body, gone)
            if not gone.is_set() and not self.transport.is_closing():
                self.transport.write(answer)
            if self.flow.write_paused:
                await self.flow.drain()
        except BaseException:
            self.transport.abort()
            raise
        self._next()

    def _scope_of(self, head: Head) -> dict[str, Any]:
        return {
            "type": "http",
            "http_version": "1.1",
            "server": self.server,
            "client": self.client,
            "scheme": self.scheme,
            "method": head.method,
            "root_path": "",
            "path": head.path,
            "raw_path": head.path.encode(),
            "query_string": head.query,
            "headers": head.headers,
            "state": self.app_state.copy(),
        }

    def _next(self) -> None:
        """Continue with the bytes that arrived during the call."""
        self._head = self._gone = None
        waiting, self._body = bytes(self._body), bytearray()
        if self.transport.is_closing():
            return
        if self._is_ending:
            self.transport.close()
            return
        self._wait_s(self.timeout_keep_alive)
        self.flow.resume_reading()
        if waiting:
            self.data_received(waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        if self._gone is not None:
            self._gone.set()
        for cycle in self._cycles:  # uvicorn informs only the last one
            cycle.disconnected = cycle.disconnected or not cycle.response_complete
            cycle.message_event.set()
        self._unset_keepalive_if_required()
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self._gone is not None:
            self._is_ending = True
        else:
            super().shutdown()
