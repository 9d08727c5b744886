"""HTTP on a node that follows: it answers some requests itself and relays the others to the leader.

This node answers health checks, metrics and the state of the cluster, because they concern this
node and must work without a leader. It answers bulk reads of streams from its own segments
(`follower_reads`). It relays every other request to the leader. A relayed connection carries one
request (`Connection: close`), so that this node sees the next one. Connections of the jobs API stay
open: these clients send many small requests, all of them for the leader.
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, Final, NamedTuple, Protocol, cast
from urllib.parse import unquote

import msgspec

from leveret.arrow.bulk_reads import BulkReads, Read, ReadError
from leveret.arrow.worker_protocol import FAILED
from leveret.cluster.errors import ClusterError
from leveret.cluster.relay import RelayHead
from leveret.config.settings import Settings
from leveret.http.framework.cluster_nodes import is_critical
from leveret.http.framework.names import printable
from leveret.http.framework.node import ClusterNodeFacts, Listener
from leveret.http.management.health import PROTOCOLS, QUORUM_CRITICAL
from leveret.http.management.metrics import MEDIA_TYPE as METRICS_MEDIA
from leveret.http.streams.arrow import MEDIA_TYPE as ARROW_MEDIA
from leveret.listening import Client
from leveret.runtime.follower_reads import StreamRange, WantedRange, parse_wanted, plan_read
from leveret.runtime.public_listeners import LEADER_WAIT_S, Relayed, join_ends

log = logging.getLogger(__name__)

HEAD_S: Final = 20.0  # deadline for a request head
HEAD_BYTES_MAX: Final = 65_536
ANSWER_BYTES_MAX: Final = 65_536  # size of the leader's answer to a question of this node
ASK_S: Final = 5.0
UNAUTHORIZED: Final = 401
CLOSE_S: Final = 10.0  # for a client to read its answer
HEALTH: Final = "/api/health"
CLUSTER: Final = "/api/cluster"
METRICS: Final = "/metrics"
JOB_PATHS: Final = ("/enqueue", "/dequeue", "/ack", "/nack", "/extend")

# The leader's answer is cut short, too long, or not HTTP.
_BAD_ANSWER: Final = (EOFError, asyncio.LimitOverrunError, ValueError, IndexError)
_PHRASES: Final = {
    200: "OK",
    400: "Bad Request",
    401: "Unauthorized",
    403: "Forbidden",
    431: "Request Header Fields Too Large",
    503: "Service Unavailable",
}


class Follower(Protocol):
    """The node that follows."""

    def facts(self) -> dict[str, Any]:
        """Return the cluster as this node sees it, as JSON."""

    @property
    def settings(self) -> Settings:
        """Return the settings of the node."""

    def metrics(self) -> str:
        """Return the metrics of this node, in Prometheus's text format."""

    @property
    def bound(self) -> Sequence[Listener]:
        """Return the addresses that the node listens on for clients."""

    def nodes(self) -> list[ClusterNodeFacts]:
        """Return all nodes of the cluster, by name."""

    @property
    def reads(self) -> BulkReads:
        """Return the bulk reads of this node."""

    def stream_end(self, number: int) -> int:
        """Return the end of a stream in the segments of this node."""

    def why_unwell(self) -> str:
        """Return why clients of this node are not served; empty if they are."""

    async def open_relay(self, head: RelayHead) -> Relayed:
        """Open a connection to the leader for a client; wait for a leader. Raises ClusterError."""


class _LeaderAnswer(NamedTuple):
    """The leader's answer to a question of this node."""

    status: int
    head: bytes
    body: bytes


_NO_ANSWER: Final = _LeaderAnswer(503, b"", b"")


class FollowerHttp(asyncio.Protocol):
    """The connection of one HTTP client."""

    def __init__(self, node: Follower, client: Client, relay_head: RelayHead) -> None:
        self._node = node
        self._client = client
        self._relay_head = relay_head
        self._data = b""
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(HEAD_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        self._data += data
        if self._task is not None:  # more of the body, or another request: the leader gets it
            self._transport.pause_reading()
            return
        if b"\r\n\r\n" in self._data:
            self._begin(self._work())
        elif len(self._data) > HEAD_BYTES_MAX:
            self._begin(self._refuse(431, "the head of the request is too long"))

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._stop_timer()
        self._task = self._loop.create_task(work)

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        if self._task is not None:
            self._task.cancel()

    async def _work(self) -> None:
        end = self._data.index(b"\r\n\r\n")
        lines = self._data[:end].split(b"\r\n")
        parts = lines[0].decode("latin-1").split(" ")
        if len(parts) != 3 or end > HEAD_BYTES_MAX:
            await self._refuse(400, "the request is malformed")
            return
        method, path = parts[0], parts[1].partition("?")[0]
        if method in ("GET", "HEAD"):
            if path == HEALTH or path.startswith(f"{HEALTH}/"):
                await self._answer_health(unquote(path.removeprefix(HEALTH)))
                return
            if path == CLUSTER:
                await self._answer_user(lines[1:], self._send_facts)
                return
            if path == METRICS or path.startswith(f"{METRICS}/"):
                await self._answer_metrics(lines[1:])
                return
        wanted = parse_wanted(parts[1]) if method == "GET" else None
        if wanted is not None and await self._answer_rows(wanted, _logins(lines[1:])):
            return
        await self._relay(path, lines)

    async def _answer_health(self, check: str) -> None:
        reason = self._node.why_unwell() or self._why_failed(check)
        name = self._node.facts()["name"]
        body: dict[str, Any] = {"status": "failed" if reason else "ok", "node": name}
        if reason:
            body["reason"] = reason
        await self._answer(503 if reason else 200, body)

    def _why_failed(self, check: str) -> str:
        """Return why a check of this node fails, in RabbitMQ's words; empty if it succeeds.

        Checks that are not named here succeed if clients of this node are served.
        """
        *_, name, asked = ["", *check.split("/")]
        listening = self._node.bound
        if asked == "node-is-quorum-critical":
            is_failed = is_critical(self._node.nodes(), self._node.facts()["name"])
            return QUORUM_CRITICAL if is_failed else ""
        if name == "port-listener":
            is_there = any(str(one.port) == asked for one in listening)
        elif name == "protocol-listener":
            wanted = {found for one in asked.split(",") for found in PROTOCOLS.get(one.lower(), ())}
            is_there = any(one.protocol in wanted for one in listening)
        else:
            return ""
        return "" if is_there else "No active listener"

    async def _answer_metrics(self, headers: list[bytes]) -> None:
        wanted = self._node.settings.metrics_login
        if wanted == "never" or (wanted == "remote" and self._client.is_local):
            self._send_metrics()
        else:
            await self._answer_user(headers, self._send_metrics)

    async def _answer_user(self, headers: list[bytes], send: Callable[[], None]) -> None:
        """Answer users that the leader accepts; without a leader, only clients of this machine."""
        if self._node.why_unwell():
            if self._client.is_local:
                send()
            else:
                await self._refuse(503, self._node.why_unwell())
            return
        status = await self._ask_login(headers)
        if status == 200:
            send()
        else:
            await self._refuse(status, "the leader refuses the login")

    def _send_facts(self) -> None:
        self._send(200, msgspec.json.encode(self._node.facts()))

    def _send_metrics(self) -> None:
        self._send(200, self._node.metrics().encode(), METRICS_MEDIA)

    async def _ask_login(self, headers: list[bytes]) -> int:
        """Return the leader's status for this user: 200 if the user may see the cluster."""
        return (await self._ask_leader("/api/nodes", _logins(headers), wants_body=False)).status

    async def _ask_leader(
        self, target: str, logins: list[bytes], *, wants_body: bool
    ) -> _LeaderAnswer:
        """Ask the leader as the client would. The status is 503 if it does not answer."""
        head = [f"GET {target} HTTP/1.1".encode(), b"Host: leader", b"Connection: close", *logins]
        try:
            async with asyncio.timeout(ASK_S):
                transport, rest = await self._node.open_relay(self._relay_head)
                reader = asyncio.StreamReader(ANSWER_BYTES_MAX)
                transport.set_protocol(asyncio.StreamReaderProtocol(reader))
                reader.set_transport(transport)
                reader.feed_data(rest)
                transport.resume_reading()
                transport.write(b"\r\n".join(head) + b"\r\n\r\n")
                try:
                    answer = await reader.readuntil(b"\r\n\r\n")
                    body = b""
                    while wants_body and (more := await reader.read(ANSWER_BYTES_MAX)):
                        body += more
                        if len(body) > ANSWER_BYTES_MAX:
                            return _NO_ANSWER
                finally:
                    transport.abort()
            return _LeaderAnswer(int(answer.split(b" ", 2)[1]), answer, body)
        except (ClusterError, TimeoutError, OSError, *_BAD_ANSWER):
            return _NO_ANSWER

    async def _answer_rows(self, wanted: WantedRange, logins: list[bytes]) -> bool:
        """Answer a bulk read. False: nothing was sent, and the leader has to answer."""
        answer = await self._ask_leader(wanted.question, logins, wants_body=True)
        if answer.status == UNAUTHORIZED:  # asking again would count as another wrong password
            self._transport.write(answer.head + answer.body)
            self._close()
            return True
        found = _stream_range(answer)
        if found is None:
            return False
        end = self._node.stream_end(found.number)
        request = plan_read(wanted, found, self._node.settings.data, end)
        if request is None:
            return False
        has_begun = False
        try:
            async with self._node.reads.read_files(request, found.user) as read:
                await read.begin()
                has_begun = True
                await self._send_rows(read)
        except ReadError as fault:
            log.warning("a read of stream '%s' broke off: %s", printable(wanted.stream), fault)
            if has_begun:
                self._transport.abort()
        return has_begun

    async def _send_rows(self, read: Read) -> None:
        """Send the answer of a read, and close the connection."""
        head = f"HTTP/1.1 200 OK\r\nContent-Type: {ARROW_MEDIA}\r\nServer: Leveret\r\n"
        head += "Transfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
        self._transport.write(head.encode())
        while piece := await read.piece():
            self._transport.write(b"%x\r\n%b\r\n" % (len(piece), piece))
            try:
                async with asyncio.timeout(self._node.reads.stall_s):
                    await self._writable.wait()
            except TimeoutError:
                raise ReadError(FAILED, "the client does not read") from None
            await asyncio.sleep(0)  # a fast worker and a fast client must not block the loop
        self._transport.write(b"0\r\n\r\n")
        self._close()

    async def _relay(self, path: str, lines: list[bytes]) -> None:
        try:
            async with asyncio.timeout(LEADER_WAIT_S):
                transport, rest = await self._node.open_relay(self._relay_head)
        except (ClusterError, TimeoutError, OSError):
            await self._refuse(503, self._node.why_unwell() or "the leader does not answer")
            return
        data = self._data
        if path not in JOB_PATHS:
            end = data.index(b"\r\n\r\n")
            kept = [line for line in lines if not line.lower().startswith(b"connection:")]
            data = b"\r\n".join([*kept, b"Connection: close"]) + data[end:]
        self._task = None
        join_ends(self._transport, transport, rest, data)

    async def _refuse(self, status: int, reason: str) -> None:
        await self._answer(status, {"error": _PHRASES.get(status, "Error"), "reason": reason})

    async def _answer(self, status: int, body: dict[str, Any]) -> None:
        self._send(status, msgspec.json.encode(body))

    def _send(self, status: int, data: bytes, media: str = "application/json") -> None:
        """Send an answer, and close the connection."""
        head = (
            f"HTTP/1.1 {status} {_PHRASES.get(status, '')}\r\nContent-Type: {media}\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\nServer: Leveret\r\n\r\n"
        )
        self._transport.write(head.encode() + data)
        self._close()

    def _close(self) -> None:
        """Close the connection when the client has read its answer."""
        self._task = None
        with contextlib.suppress(OSError, RuntimeError):
            self._transport.close()
        self._timer = self._loop.call_later(CLOSE_S, self._transport.abort)


def _stream_range(answer: _LeaderAnswer) -> StreamRange | None:
    """Return the leader's facts about a stream; None if it refuses, or has another version."""
    if answer.status != 200:
        return None
    try:
        return msgspec.json.decode(answer.body, type=StreamRange)
    except msgspec.MsgspecError:
        return None


def _logins(headers: list[bytes]) -> list[bytes]:
    return [line for line in headers if line.lower().startswith(b"authorization:")]
