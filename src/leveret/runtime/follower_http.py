"""HTTP on a node that follows: it answers some requests itself and relays the others to the leader.

This node answers health, metrics and the state of the cluster, because they concern this node and
must work without a leader. The leader checks logins. It also answers health checks that are not
about one node. This node answers bulk reads of streams from its own segments (`follower_reads`). It
relays every other request to the leader as it came, also if it is not HTTP. A relayed connection
carries one request (`Connection: close`), so that this node sees the next one. Connections of the
jobs API stay open: these clients send many small requests, all of them for the leader.

`leader_questions` asks the leader, with the headers that say who asks (`request_senders`).
`follower_checks` has the health checks of this node. A local request whose `Host` is a foreign name
goes to the leader, which refuses it (`http.framework.sites`).
"""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine
from email.utils import formatdate
from typing import Any, Final, Protocol, cast

import msgspec

from leveret.arrow.bulk_reads import BulkReads, Read, ReadError
from leveret.arrow.worker_protocol import FAILED
from leveret.cluster.errors import ClusterError
from leveret.cluster.relay import HTTP, RelayHead
from leveret.config.settings import Settings
from leveret.decode_errors import DECODE_ERRORS
from leveret.http.framework.names import printable
from leveret.http.framework.sites import OwnNames
from leveret.http.management.health import CHECKS, CheckResult, slow_disk_text, status_of
from leveret.http.management.metrics import MEDIA_TYPE as METRICS_MEDIA
from leveret.http.streams.arrow import MEDIA_TYPE as ARROW_MEDIA
from leveret.http.transport.open_connections import TOO_MANY, OpenConnections, Place
from leveret.listening import Client
from leveret.runtime.follower_checks import CheckedNode, own_check
from leveret.runtime.follower_reads import StreamRange, WantedRange, parse_wanted, plan_read
from leveret.runtime.leader_questions import LeaderAnswer, ask_leader
from leveret.runtime.public_listeners import LEADER_WAIT_S
from leveret.runtime.relays import Relayed, Relays
from leveret.runtime.request_senders import hosts, is_forwarded, senders

log = logging.getLogger(__name__)

HEAD_S: Final = 20.0  # deadline for a request head
HEAD_BYTES_MAX: Final = 65_536
NO_DESCRIPTOR: Final = -1  # the listener has checked it
UNAUTHORIZED: Final = 401
CLOSE_S: Final = 10.0  # for a client to read its answer
HEALTH: Final = "/api/health"
CLUSTER: Final = "/api/cluster"
METRICS: Final = "/metrics"
JOB_PATHS: Final = ("/enqueue", "/dequeue", "/ack", "/nack", "/extend")

_PHRASES: Final = {
    200: "OK",
    503: "Service Unavailable",
}
_HEAD_END: Final = b"\r\n\r\n"
# Bytes that no request head has: the leader refuses them at once.
_CONTROLS: Final = bytes(each for each in range(0x20) if each not in b"\t\r\n")


class Follower(CheckedNode, Protocol):
    """The node that follows."""

    def state(self) -> str:
        """Return the state of the cluster: ok, degraded or stopped."""

    @property
    def settings(self) -> Settings:
        """Return the settings of the node."""

    def metrics(self) -> str:
        """Return the metrics of this node, in Prometheus's text format."""

    @property
    def reads(self) -> BulkReads:
        """Return the bulk reads of this node."""

    def slow_sync_s(self) -> float:
        """Return the time of a sync of this node while its disk is slow; 0 if it is not."""

    def stream_end(self, number: int) -> int:
        """Return the end of a stream in the segments of this node."""

    def why_unwell(self) -> str:
        """Return why clients of this node are not served; empty if they are."""

    @property
    def relays(self) -> Relays:
        """Return the clients of this node that the leader serves."""

    @property
    def http_connections(self) -> OpenConnections:
        """Return the HTTP connections that this node has not given to the leader."""

    async def open_relay(self, head: RelayHead) -> Relayed:
        """Open a connection to the leader for a client; wait for a leader. Raises ClusterError."""


class FollowerHttp(asyncio.Protocol):
    """The connection of one HTTP client."""

    def __init__(self, node: Follower, client: Client, relay_head: RelayHead) -> None:
        self._node = node
        self._client = client
        self._relay_head = relay_head
        self._data = bytearray()
        self._is_head_only = False  # the method is HEAD: the answer has no body
        self._has_ended = False  # the client has ended its side, and may wait for the answer
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self._place: Place | None = None  # among the HTTP connections of this node
        self._writable = asyncio.Event()
        self._writable.set()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)
        self._loop = asyncio.get_running_loop()
        places = self._node.http_connections
        if not places.enter(self._client.host, NO_DESCRIPTOR):
            self._transport.abort()
            return
        self._place = places.place(self._client.host, self._transport.abort)
        self._timer = self._loop.call_later(HEAD_S, self._transport.abort)

    def data_received(self, data: bytes) -> None:
        # Only new bytes are searched, and the last ones before them: they may begin a head's end.
        new = max(0, len(self._data) - len(_HEAD_END))
        self._data += data
        if self._task is not None:  # more of the body, or another request: the leader gets it
            self._transport.pause_reading()
            return
        end = self._data.find(_HEAD_END, new)
        size = end if end >= 0 else len(self._data)
        if size > HEAD_BYTES_MAX or not _may_be_head(self._data, new, size):
            self._begin(self._relay())
        elif end >= 0:
            self._begin(self._serve_request(bytes(self._data[:size])))

    def eof_received(self) -> bool:
        self._has_ended = True
        return self._task is not None and self._transport.can_write_eof()

    def pause_writing(self) -> None:
        self._writable.clear()

    def resume_writing(self) -> None:
        self._writable.set()

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        self._stop_timer()
        if self._place is not None:
            self._node.http_connections.note_busy(self._place)
        self._task = self._loop.create_task(self._finish(work))

    async def _finish(self, work: Coroutine[Any, Any, None]) -> None:
        """Disconnect the client after a bug: it must not wait for an answer that never comes."""
        try:
            await work
        except Exception:
            log.exception("a request of %s failed: its connection is closed", self._client.host)
            self._transport.abort()

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _leave(self) -> None:
        """Give up the place: the client has gone, or the leader counts it."""
        place, self._place = self._place, None
        if place is not None:
            self._node.http_connections.end(place)

    def connection_lost(self, exc: Exception | None) -> None:
        self._leave()
        self._stop_timer()
        if self._task is not None:
            self._task.cancel()

    async def _serve_request(self, head: bytes) -> None:
        lines = head.split(b"\r\n")
        parts = lines[0].decode("latin-1").split(" ")
        if len(parts) != 3:
            await self._relay()
            return
        (method, target, _), headers = parts, lines[1:]
        path = target.partition("?")[0]
        self._is_head_only = method == "HEAD"
        place = self._place
        if place is None or not self._node.http_connections.serves(place, path.encode()):
            self._refuse(TOO_MANY)
            return
        if method in ("GET", "HEAD") and not self._is_foreign(headers):
            if path.rstrip("/") == HEALTH:
                self._answer_health()
                return
            if path.startswith(f"{CHECKS}/"):
                await self._answer_check(target, senders(headers))
                return
            if path == CLUSTER:
                await self._answer_user(headers, self._send_facts)
                return
            if path == METRICS or path.startswith(f"{METRICS}/"):
                await self._answer_metrics(headers)
                return
        wanted = parse_wanted(target) if method == "GET" else None
        if wanted is not None and await self._answer_rows(wanted, senders(headers)):
            return
        if path in JOB_PATHS:
            await self._relay()
        else:
            kept = [line for line in lines if not line.lower().startswith(b"connection:")]
            await self._relay(b"\r\n".join([*kept, b"Connection: close"]), instead_of=len(head))

    def _is_foreign(self, headers: list[bytes]) -> bool:
        """Return True for a local request under a name that other people could own."""
        if not self._client.is_local or self._relay_head.service != HTTP:
            return False
        names = OwnNames(self._node.settings)
        return not all(names.is_own(host) for host in hosts(headers))

    def _is_trusted(self, headers: list[bytes]) -> bool:
        """Return True if the client is on this machine, and no proxy has passed the request on."""
        return self._client.is_local and not is_forwarded(headers)

    def _answer_health(self) -> None:
        """Answer without a login, for load balancers."""
        facts, reason = self._node.facts(), self._node.why_unwell()
        body = {"status": "failed" if reason else "ok", "node": facts["name"]}
        body |= {"durability": self._node.settings.durability, "cluster": self._node.state()}
        if reason:
            body["reason"] = reason
        if slow := slow_disk_text(self._node.slow_sync_s()):
            body["disk"] = slow
        self._send(503 if reason else 200, msgspec.json.encode(body))

    async def _answer_check(self, target: str, asking: list[bytes]) -> None:
        """Answer a health check of a user whom the leader knows.

        The leader's answer also says whether there is this check, with these arguments.
        """
        if reason := self._node.why_unwell():
            self._send_check(CheckResult(status="failed", reason=reason))
            return
        answer = await self._ask_leader(target, asking)
        try:
            msgspec.json.decode(answer.body, type=CheckResult)
            check = target.partition("?")[0].removeprefix(f"{CHECKS}/")
            own = own_check(self._node, check)
        except DECODE_ERRORS:
            own = None
        if own is not None:
            self._send_check(own)
        else:
            self._pass_on(answer)

    def _send_check(self, check: CheckResult) -> None:
        self._send(status_of(check), msgspec.json.encode(check))

    async def _answer_metrics(self, headers: list[bytes]) -> None:
        wanted = self._node.settings.metrics_login
        if wanted == "never" or (wanted == "remote" and self._is_trusted(headers)):
            self._send_metrics()
        else:
            await self._answer_user(headers, self._send_metrics)

    async def _answer_user(self, headers: list[bytes], send: Callable[[], None]) -> None:
        """Answer users that the leader accepts; without a leader, only clients of this machine."""
        if self._node.why_unwell():
            if self._is_trusted(headers):
                send()
            else:
                self._refuse(self._node.why_unwell())
            return
        # The leader shows its nodes to users who may see the cluster.
        answer = await self._ask_leader("/api/nodes", senders(headers), wants_body=False)
        if answer.status == 200:
            send()
        else:
            self._pass_on(answer)

    def _send_facts(self) -> None:
        self._send(200, msgspec.json.encode(self._node.facts()))

    def _send_metrics(self) -> None:
        self._send(200, self._node.metrics().encode(), METRICS_MEDIA)

    async def _ask_leader(
        self, target: str, asking: list[bytes], *, wants_body: bool = True
    ) -> LeaderAnswer:
        """Ask the leader as the client would."""
        opening = self._node.open_relay(self._relay_head)
        return await ask_leader(opening, target, asking, wants_body=wants_body)

    async def _answer_rows(self, wanted: WantedRange, asking: list[bytes]) -> bool:
        """Answer a bulk read. False: nothing was sent, and the leader has to answer."""
        answer = await self._ask_leader(wanted.question, asking)
        if answer.status == UNAUTHORIZED:  # asking again would count as another wrong password
            self._pass_on(answer)
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
        head = _answer_head(200, ARROW_MEDIA, "transfer-encoding: chunked")
        self._transport.write(head)
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

    async def _relay(self, head: bytes = b"", instead_of: int = 0) -> None:
        """Give the connection to the leader, with `head` instead of the first received bytes."""
        try:
            async with asyncio.timeout(LEADER_WAIT_S):
                relayed = await self._node.open_relay(self._relay_head)
        except (ClusterError, TimeoutError, OSError):
            self._refuse(self._node.why_unwell())
            return
        self._task = None
        self._leave()
        early = head + bytes(self._data[instead_of:])
        self._node.relays.take(self._transport, relayed, early, has_ended=self._has_ended)

    def _pass_on(self, answer: LeaderAnswer) -> None:
        """Send the leader's answer as it is, and close the connection."""
        if not answer.head:
            self._refuse(self._node.why_unwell())
            return
        self._transport.write(answer.head + (b"" if self._is_head_only else answer.body))
        self._close()

    def _refuse(self, why_unwell: str) -> None:
        reason = why_unwell or "the leader does not answer"
        body = {"error": _PHRASES[503], "reason": reason}
        self._send(503, msgspec.json.encode(body))

    def _send(self, status: int, data: bytes, media: str = "application/json") -> None:
        """Send an answer, and close the connection."""
        head = _answer_head(status, media, f"content-length: {len(data)}")
        self._transport.write(head + (b"" if self._is_head_only else data))
        self._close()

    def _close(self) -> None:
        """Close the connection when the client has read its answer."""
        self._task = None
        with contextlib.suppress(OSError, RuntimeError):
            self._transport.close()
        self._timer = self._loop.call_later(CLOSE_S, self._transport.abort)


def _may_be_head(data: bytearray, start: int, end: int) -> bool:
    """Return False if a part of a request has bytes that no head has.

    A regular expression would take 40 times as long, before anybody has logged in.
    """
    part = data[start:end]
    if len(part.translate(None, _CONTROLS)) < len(part):
        return False
    return part.count(b"\n") == data.count(b"\r\n", max(0, start - 1), end)


def _answer_head(status: int, media: str, length: str) -> bytes:
    """Return the head of an answer, with the headers that answers of the leader have."""
    head = (
        f"HTTP/1.1 {status} {_PHRASES[status]}\r\ndate: {formatdate(usegmt=True)}\r\n"
        f"server: Leveret\r\nx-content-type-options: nosniff\r\n{length}\r\n"
        f"content-type: {media}\r\nconnection: close\r\n\r\n"
    )
    return head.encode()


def _stream_range(answer: LeaderAnswer) -> StreamRange | None:
    """Return the leader's facts about a stream; None if it refuses, or has another version."""
    if answer.status != 200:
        return None
    try:
        return msgspec.json.decode(answer.body, type=StreamRange)
    except DECODE_ERRORS:
        return None
