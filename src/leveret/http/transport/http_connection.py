"""One HTTP connection: uvicorn's protocol, with limits on heads and on silence, and the fast path.

uvicorn parses with httptools, which does not limit the length of a request head. Small, frequent
calls are taken before uvicorn sees them (`fast_path.py`). The two are never in the middle of a
request at the same time.

A client has `HEAD_S` for the head of a request, counted from its first byte; a new client has as
long for its first request. Between two requests it may be silent for the keep-alive time. A client
that reads nothing of its answer is disconnected after `UNREAD_S`.

A client that ends its side counts as gone: its waiting login is forgotten, and it gets no job.
"""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from leveret.http.framework.body_budget import NO_HOLDER
from leveret.http.framework.operations import body_time_s
from leveret.http.framework.responses import ErrorBody, json_response
from leveret.http.transport.fast_path import FastPath, Head, maybe_head
from leveret.http.transport.open_connections import OpenConnections
from leveret.listening import HTTP, HTTPS, PortHints, Relayed
from leveret.listening.port_hints import FIRST_BYTES

HEAD_S: Final = 20.0  # for a request head; seconds
UNREAD_S: Final = 600.0  # a reader of a stream may compute for minutes between two reads
CLOSE_S: Final = 10.0  # for a client to read the rest of its answer before it is disconnected
HEAD_BYTES_MAX: Final = 65_536  # of the request line and the headers
DRAIN_BYTES_MAX: Final = 1024 * 1024  # bytes of a body that a refused client may still send
HEADERS_MAX: Final = 256  # of one request
PIPELINED_MAX: Final = 128  # requests of a client that wait while another one is answered
# Bytes that are neither head nor body: sizes and extensions of chunks, and trailers. httptools has
# no limit for them, and keeps an unfinished trailer in memory.
FRAMING_BYTES_MAX: Final = 65_536
FRAMING_RATIO: Final = 16  # and this many bytes for each byte of the body, for tiny chunks
_WAITING_BYTES_MAX: Final = 64 * 1024  # bytes that a client may send before it gets an answer


_REFUSED: Final = json_response(
    ErrorBody("Service Unavailable", "there are too many HTTP connections: try again"),
    status=503,
    headers={"Connection": "close", "Retry-After": "1"},
)


_TOO_MANY_HEADERS: Final = json_response(
    ErrorBody(
        "Request Header Fields Too Large", f"the request has more than {HEADERS_MAX} headers"
    ),
    status=431,
    headers={"Connection": "close"},
)


async def _refuse(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request that came in a reserved place."""
    await _REFUSED(scope, receive, send)


async def _refuse_headers(scope: Scope, receive: Receive, send: Send) -> None:
    """Answer a request with too many headers."""
    await _TOO_MANY_HEADERS(scope, receive, send)


class HttpConnection(HttpToolsProtocol):
    """Limit the head of a request, and allow a handler to abort an unfinished answer.

    A handler aborts with `abort` in the state of the scope. It waits for the end of the connection
    with the future `lost`.
    """

    fast_path: FastPath  # set by the server
    open_connections: OpenConnections  # set by the server
    port_hints: PortHints  # set by the server
    note_refusal: Callable[[str, str], None]  # set by the server; called with reason and host
    relayed: Relayed | None = None  # set by the server if another node relays the connection
    _head_bytes = 0  # received since the last complete request
    _body_bytes = 0  # bytes of the body among the received bytes
    _has_too_many_headers = False
    _has_head = False
    _first = b""  # bytes of the request that is being read
    _drained = 0  # bytes of a body that were dropped
    _reserved = 0  # bytes of the body budget that the fast path holds
    _holder = NO_HOLDER  # for whom it holds them
    _body_by_s = 0.0  # loop time by which the body on the fast path must be complete
    _head_by_s = 0.0  # loop time by which the head must be complete
    _silent_by_s = 0.0  # loop time until which the client may be silent, although the timer fires

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self.relayed is not None:
            client = self.relayed.client
            self.client, self.server = (client.host, client.port), self.relayed.server
            self.scheme = "https" if self.relayed.is_secured else "http"
        self._lost: asyncio.Future[None] = self.loop.create_future()
        self.app_state = {**self.app_state, "abort": transport.abort, "lost": self._lost}
        self._cycles: list[RequestResponseCycle] = []  # requests without a complete answer
        self._head: Head | None = None  # head of the request on the fast path
        self._body = bytearray()  # its body so far; during the call, the bytes after it
        self._is_answering = False  # a request of the fast path is being answered
        self._gone = asyncio.Event()  # set when the client has gone
        self._is_ending = False
        self._unread: asyncio.TimerHandle | None = None  # set while the client does not read
        host = self.client[0] if self.client is not None else ""
        self._place = self.open_connections.place(host, transport.abort)
        self._wait_s(HEAD_S)  # wait for the first request

    def data_received(self, data: bytes) -> None:
        if self._head is not None:
            self._take_body(data)
            return
        head = maybe_head(data, self.fast_path.endpoints) if self._is_between() else None
        if (
            head is None
            or not self.open_connections.serves(self._place, head.path.encode())
            or not self._has_room(head, len(data))
        ):
            self._parse(data)
            return
        self._head = head
        body = data[head.body_start :]
        if not (len(body) == head.body_length and self._is_quick(head, body)):
            self._take_body(body)

    def _is_quick(self, head: Head, body: bytes) -> bool:
        """Begin a quick call. Return False if a task must answer the request."""
        self._is_answering = True

        def answer_by_task() -> None:
            self._body[:0] = body  # before what has come meanwhile
            self._run(self._answer(head))

        if not self.fast_path.begin(head, body, self._send, answer_by_task):
            self._is_answering = False
            return False
        if self._is_answering:  # it has no answer yet
            self.open_connections.note_busy(self._place)
        return True

    def _send(self, answer: bytes) -> None:
        """Send the answer of a quick call."""
        if not self.transport.is_closing():
            self.transport.write(answer)
        self._release_body()
        if self.flow.write_paused:
            self._run(self._next_when_drained())
        else:
            self._next()

    async def _next_when_drained(self) -> None:
        await self.flow.drain()
        self._next()

    def _has_room(self, head: Head, size: int) -> bool:
        """Reserve memory for the body. Return False if uvicorn shall read it, after the login."""
        is_whole = size >= head.body_start + head.body_length
        holder = NO_HOLDER if is_whole else self.fast_path.maybe_holder(head)
        if holder is None or not self.fast_path.bodies.take(head.body_length, holder):
            return False
        self._reserved, self._holder = head.body_length, holder
        if not is_whole:
            self._body_by_s = self.loop.time() + body_time_s(head.body_length)
        return True

    def _release_body(self) -> None:
        self.fast_path.bodies.give_back(self._reserved, self._holder)
        self._reserved = 0

    def _is_between(self) -> bool:
        """Return True if uvicorn's parser is between two requests."""
        cycle: RequestResponseCycle | None = self.cycle
        is_answered = cycle is None or cycle.response_complete
        return is_answered and not self._has_head and self._head_bytes == 0

    def _parse(self, data: bytes) -> None:
        now_s = self.loop.time()
        if self._head_bytes == 0:
            self._head_by_s = now_s + HEAD_S
            self._first = data[:FIRST_BYTES]
        self._head_bytes += len(data)
        super().data_received(data)
        if self.transport.is_closing():  # the request was refused: it may have no cycle
            return
        self._limit_body(len(data))
        if self._head_bytes != 0:
            if self._has_head:
                self.open_connections.note_sending(self._place)
            self._wait_s(self.timeout_keep_alive if self._has_head else self._head_by_s - now_s)
        if not self._has_head and self._head_bytes > HEAD_BYTES_MAX:
            self.send_400_response("The head of the request is too long.")
        elif self._head_bytes - self._body_bytes > self._framing_max():
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request. Tell a client of another protocol which port it should use."""
        service = HTTPS if self.scheme == "https" else HTTP
        found = self.port_hints.maybe_refusal(service, self._first)
        if found is None:
            super().send_400_response(msg)
            return
        self.note_refusal(found.reason, self.client[0] if self.client is not None else "")
        if found.answer:
            self.transport.write(found.answer)
            self.transport.close()
        else:
            super().send_400_response(found.reason)

    def _framing_max(self) -> int:
        return HEAD_BYTES_MAX + FRAMING_BYTES_MAX + FRAMING_RATIO * self._body_bytes

    def _limit_body(self, size: int) -> None:
        """Read no more of a body than its handler wants, and drop the body of a refused request.

        Disconnect a refused client that sends more than `DRAIN_BYTES_MAX`.
        """
        if not self._has_head or not self.cycle.response_complete:
            self._drained = 0
            if self._has_head and self.cycle.body:
                self.flow.pause_reading()  # the handler resumes it, after the login
            return
        self._drained += size
        if self._drained > DRAIN_BYTES_MAX:
            self.transport.abort()

    def _wait_s(self, wait_s: float) -> None:
        """Close the connection unless the client sends something within this time."""
        self._unset_keepalive_if_required()
        self._silent_by_s = 0.0
        self.timeout_keep_alive_task = self.loop.call_later(wait_s, self.timeout_keep_alive_handler)

    def _wait_for_next(self) -> None:
        """Wait for the next request. The timer stays set: for small calls, a new one is dear."""
        if self.timeout_keep_alive_task is None:
            self._wait_s(self.timeout_keep_alive)
        else:
            self._silent_by_s = self.loop.time() + self.timeout_keep_alive

    def timeout_keep_alive_handler(self) -> None:
        left_s = self._silent_by_s - self.loop.time()
        if self.flow.read_paused or self._is_answering:  # the client cannot send, or waits
            self._wait_s(self.timeout_keep_alive)
        elif left_s > 0:
            self._wait_s(left_s)
        else:
            self._close()

    def _close(self) -> None:
        """Close the connection. A client that does not read its last answer is not waited for."""
        if not self.transport.is_closing():
            self.transport.close()
            self._unset_unread()
            self._unread = self.loop.call_later(CLOSE_S, self.transport.abort)

    def pause_writing(self) -> None:
        super().pause_writing()
        self._unset_unread()
        self._unread = self.loop.call_later(UNREAD_S, self.transport.abort)

    def resume_writing(self) -> None:
        super().resume_writing()
        if not self.transport.is_closing():
            self._unset_unread()

    def unread_bytes(self) -> int:
        """Return the bytes of answers that the client has not read."""
        return int(self.transport.get_write_buffer_size())

    def _unset_unread(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None

    def on_message_begin(self) -> None:
        self._has_too_many_headers = False
        super().on_message_begin()

    def on_header(self, name: bytes, value: bytes) -> None:
        if self._has_head:  # a trailer: nothing reads it
            return
        if len(self.headers) >= HEADERS_MAX:
            self._has_too_many_headers = True
        else:
            super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._has_head = True
        if len(self.pipeline) >= PIPELINED_MAX:
            self.transport.abort()
            return
        app = self.app
        if self._has_too_many_headers:
            self.app = _refuse_headers
        elif not self.open_connections.serves(self._place, self.url.partition(b"?")[0]):
            self.app = _refuse
        super().on_headers_complete()
        self.app = app
        if self.parser.should_upgrade():  # httptools stops there: no further request can come
            self.cycle.keep_alive = False
        self._cycles = [each for each in self._cycles if not each.response_complete]
        self._cycles.append(self.cycle)

    def _unsupported_upgrade_warning(self) -> None:
        """Log nothing: the request is answered as if it had not asked for another protocol."""

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._has_head = False
        self._head_bytes = self._body_bytes = 0
        if not self.cycle.response_complete:
            self.open_connections.note_busy(self._place)
        super().on_message_complete()

    def on_response_complete(self) -> None:
        for each in self._cycles:
            if each.response_complete:
                each.body = bytearray()  # a refused request leaves it unread
        super().on_response_complete()
        if not self._waits_for_answer() and not self.transport.is_closing():
            self.open_connections.note_idle(self._place)

    def _waits_for_answer(self) -> bool:
        """Return True if a complete request has no complete answer."""
        return any(not (each.response_complete or each.more_body) for each in self._cycles)

    def _take_body(self, data: bytes) -> None:
        assert self._head is not None
        self._body += data
        if self._is_answering:
            # The next request waits. Reading goes on up to a limit, to notice a disconnect.
            if len(self._body) > _WAITING_BYTES_MAX:
                self.flow.pause_reading()
        elif len(self._body) >= self._head.body_length:
            self._is_answering = True
            self.open_connections.note_busy(self._place)
            self._run(self._answer(self._head))
        else:
            self._wait_s(min(self.timeout_keep_alive, self._body_by_s - self.loop.time()))

    def _run(self, work: Coroutine[Any, Any, None]) -> None:
        """Run a task that a stop of the server waits for."""
        task = self.loop.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    async def _answer(self, head: Head) -> None:
        body = bytes(self._body[: head.body_length])
        del self._body[: head.body_length]
        try:
            answer = await self.fast_path.answer(head, self._scope_of(head), body, self._gone)
            if answer is None:
                self.transport.abort()
                return
            if not self._gone.is_set() and not self.transport.is_closing():
                self.transport.write(answer)
            if self.flow.write_paused:
                await self.flow.drain()
        except BaseException:
            self.transport.abort()
            raise
        finally:
            self._release_body()
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
        self._head, self._is_answering = None, False
        waiting, self._body = bytes(self._body), bytearray()
        if self.transport.is_closing():
            return
        if self._is_ending:
            self.transport.close()
            return
        self._wait_for_next()
        self.open_connections.note_idle(self._place)
        self.flow.resume_reading()
        if waiting:
            self.data_received(waiting)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self._lost.done():
            self._lost.set_result(None)
        self._gone.set()
        if not self._is_answering:
            self._release_body()
        for cycle in self._cycles:  # uvicorn informs only the last one
            cycle.disconnected = cycle.disconnected or not cycle.response_complete
            cycle.message_event.set()
        self._unset_keepalive_if_required()
        self._unset_unread()
        self.open_connections.end(self._place)
        super().connection_lost(exc)

    def shutdown(self) -> None:
        if self._is_answering:
            self._is_ending = True
        else:
            super().shutdown()
