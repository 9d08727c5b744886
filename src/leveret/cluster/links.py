"""The connections of one node to the others: two for each pair of nodes, kept open.

The node with the higher number dials. `TALK` carries short messages, `BULK` carries chunks of
snapshots. A lost or refused connection is dialed again, after a growing, randomised delay. An idle
link sends an empty frame every second. A link that received nothing for `silent_s` is closed, so
that a peer that was cut off is noticed, and its return, too.

Sending never blocks. Data that cannot be sent now is dropped and counted: Raft sends it again.
"""

import asyncio
import logging
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from os import urandom
from random import Random
from typing import Final

from leveret.cluster.handshake import (
    BULK,
    NONCE_BYTES,
    PURPOSES,
    TALK,
    TWICE,
    UNKNOWN_NODE,
    WELCOME,
    Dialing,
    Identity,
    Listening,
)
from leveret.cluster.link import HANDSHAKE_S, Link
from leveret.cluster.raft.messages import Message

log = logging.getLogger(__name__)

CONNECT_S: Final = 3.0
RETRY_S_MIN: Final = 0.05
RETRY_S_MAX: Final = 1.0
REFUSED_RETRY_S: Final = 5.0  # somebody has to change something first
STOP_S: Final = 5.0
BACKLOG: Final = 128
STRANGERS_MAX: Final = 64  # connections whose handshake is not done
COMPLAINTS_MAX: Final = 64  # that are remembered so as not to be repeated


@dataclass(frozen=True)
class Pace:
    """How often a link says that it is there, and how long one that says nothing is believed."""

    watch_s: float = 1.0
    silent_s: float = 4.0


PACE: Final = Pace()

OnMessages = Callable[[list[Message], int], None]


@dataclass(frozen=True)
class Address:
    """Where a node listens for others."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True)
class Tls:
    """Contexts of both sides, which ask each other for certificates."""

    listening: ssl.SSLContext
    dialing: Callable[[], ssl.SSLContext]  # asked at each dial: certificates are renewed


@dataclass(frozen=True)
class Facts:
    """One connection, for those who look."""

    peer: int
    purpose: int
    incarnation: int  # of the peer
    sent_bytes: int
    received_bytes: int
    dropped: int  # frames


class Links:
    """All connections of one node to others."""

    def __init__(
        self,
        me: Identity,
        on_messages: OnMessages,
        *,
        chance: Random,
        tls: Tls | None = None,
        pace: Pace = PACE,
    ) -> None:
        self.me = me
        self._deliver = on_messages
        self._chance = chance
        self._tls = tls
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._peers: dict[int, Address] = {}
        self._open: dict[tuple[int, int], Link] = {}  # by peer and purpose
        self._others: dict[Link, None] = {}  # every other link that is not gone, the oldest first
        self._dialing: dict[int, list[asyncio.Task[None]]] = {}
        self._server: asyncio.Server | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._watched_s = self._loop.time()
        self._complaints: dict[str, float] = {}
        self.is_paused = False
        self._has_stopped = False
        self.dials = 0
        self._dropped = 0  # frames for which there was no link, or that gone links dropped

    # Life

    async def start(self, host: str, port: int) -> None:
        context = self._tls.listening if self._tls is not None else None
        self._server = await self._loop.create_server(
            self._accept,
            host,
            port,
            ssl=context,
            ssl_handshake_timeout=HANDSHAKE_S if context else None,
            backlog=BACKLOG,
        )
        self._watch = self._loop.call_later(self._pace.watch_s, self._on_watch)

    @property
    def port(self) -> int:
        assert self._server is not None
        found: int = self._server.sockets[0].getsockname()[1]
        return found

    async def stop(self) -> None:
        tasks = self._end()
        links = [*self._open.values(), *self._others]
        for link in links:
            link.close("")
        waiting = [*tasks, *(link.closed for link in links if link.is_made)]
        if waiting:
            await asyncio.wait(waiting, timeout=STOP_S)
        for link in links:
            link.abort("")

    def abort(self) -> None:
        """Nothing more comes or goes, from now on."""
        self._end()
        for link in [*self._open.values(), *self._others]:
            link.abort("")

    def _end(self) -> list[asyncio.Task[None]]:
        """Begin nothing more; the tasks that end by that."""
        self._has_stopped = True
        if self._watch is not None:
            self._watch.cancel()
        if self._server is not None:
            self._server.close()
        tasks = [task for tasks in self._dialing.values() for task in tasks]
        self._dialing.clear()
        for task in tasks:
            task.cancel()
        return tasks

    # Peers

    def add_peer(self, node: int, address: Address) -> None:
        """Know a node, and keep connected with it."""
        if self._peers.get(node) == address or node == self.me.node or self._has_stopped:
            return
        self.remove_peer(node)
        self._peers[node] = address
        if node < self.me.node:
            self._dialing[node] = [
                self._loop.create_task(self._keep(node, purpose), name=f"dial {node} {purpose}")
                for purpose in PURPOSES
            ]

    def remove_peer(self, node: int) -> None:
        self._peers.pop(node, None)
        for task in self._dialing.pop(node, []):
            task.cancel()
        for purpose in PURPOSES:
            link = self._open.get((node, purpose))
            if link is not None:
                link.close("")

    def peers(self) -> dict[int, Address]:
        return dict(self._peers)

    def is_connected(self, node: int) -> bool:
        return all((node, purpose) in self._open for purpose in PURPOSES)

    @property
    def dropped(self) -> int:
        """Frames that were not sent, for want of a link or of room."""
        return self._dropped + sum(link.dropped for link in self._open.values())

    def facts(self) -> list[Facts]:
        """What is connected now."""
        return [
            Facts(
                peer=link.peer,
                purpose=link.purpose,
                incarnation=link.incarnation,
                sent_bytes=link.sent_bytes,
                received_bytes=link.received_bytes,
                dropped=link.dropped,
            )
            for link in self._open.values()
        ]

    # Messages

    def send(self, target: int, messages: list[Message], purpose: int = TALK) -> None:
        link = self._open.get((target, purpose))
        if link is None or not link.is_open:
            self._dropped += 1
        else:
            link.send(messages)

    def send_bulk(self, target: int, messages: list[Message]) -> None:
        self.send(target, messages, BULK)

    def pause(self) -> None:
        """Read nothing more for now: there is enough to do."""
        self.is_paused = True
        for link in self._open.values():
            link.pause()

    def resume(self) -> None:
        self.is_paused = False
        self._excuse()
        for link in self._open.values():
            link.resume()

    # What links tell

    def judge(self, link: Link) -> int:
        if link.peer not in self._peers or link.peer < self.me.node:
            return UNKNOWN_NODE
        there = self._open.get((link.peer, link.purpose))
        if there is not None and there.incarnation != link.incarnation:
            # It may be the old process of a node that lost its power: then it falls silent.
            return TWICE
        return WELCOME

    def on_open(self, link: Link) -> None:
        before = self._open.get((link.peer, link.purpose))
        if before is not None:
            before.abort("")
        self._others.pop(link, None)
        self._open[link.peer, link.purpose] = link
        if self.is_paused:
            link.pause()
        log.info("connected with %s", link)

    def on_messages(self, link: Link, messages: list[Message], size_bytes: int) -> None:
        if not self._has_stopped:
            self._deliver(messages, size_bytes)

    def on_closed(self, link: Link, reason: str) -> None:
        self._dropped += link.dropped
        self._others.pop(link, None)
        if self._open.get((link.peer, link.purpose)) is link:
            del self._open[link.peer, link.purpose]
        if not self._has_stopped:
            self._complain(link, reason)

    def _complain(self, link: Link, reason: str) -> None:
        """One line in the log, and not again at every attempt."""
        now_s = self._loop.time()
        key = f"{link.peer} {link.purpose} {reason}"
        level = logging.WARNING
        if now_s - self._complaints.get(key, -60.0) < 60.0:
            level = logging.DEBUG
        else:
            if len(self._complaints) >= COMPLAINTS_MAX:
                self._complaints.clear()
            self._complaints[key] = now_s
        log.log(level, "no connection with %s%s", link, f": {reason}" if reason else "")

    # Listening

    def _accept(self) -> asyncio.Protocol:
        link = Link(self, Listening(self.me, urandom(NONCE_BYTES)))
        if self._has_stopped:
            link.abort("")  # accepted just before the end
            return link
        strangers = [other for other in self._others if not other.is_dialed]
        if len(strangers) >= STRANGERS_MAX:
            # The oldest has had its time: nobody can keep members out by holding connections.
            del self._others[strangers[0]]  # one that fails in TLS is never told to be closed
            strangers[0].abort("too many strangers")
        self._others[link] = None
        return link

    # Dialing

    async def _keep(self, node: int, purpose: int) -> None:
        """Stay connected, as long as the node is a peer."""
        wait_s = RETRY_S_MIN
        while True:
            link = Link(self, Dialing(self.me, urandom(NONCE_BYTES), node, purpose))
            try:
                if await self._dial(link, self._peers[node]):
                    # The watch ends a link that is silent, a deadline a handshake.
                    await asyncio.shield(link.closed)
            finally:
                self._others.pop(link, None)
                link.abort("")
            if link.has_opened:
                wait_s = RETRY_S_MIN
            # TWICE: the peer still has a link to an earlier process of this node. It ends soon.
            is_hopeless = link.refusal not in (WELCOME, TWICE)
            await asyncio.sleep(self._drawn(REFUSED_RETRY_S if is_hopeless else wait_s))
            wait_s = min(wait_s * 2, RETRY_S_MAX)

    def _drawn(self, wait_s: float) -> float:
        """By chance, so that nodes that lost each other together do not return together."""
        return wait_s * (0.5 + self._chance.random() / 2)

    async def _dial(self, link: Link, address: Address) -> bool:
        self.dials += 1
        self._others[link] = None
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._connect(link, address)
        except TimeoutError:
            self._complain(link, f"{address} cannot be reached: no answer")
        except Exception as fault:
            # Any error, such as an unknown host name or an unreadable certificate, may be repaired
            # later. This task must go on, because no other one dials this node.
            self._complain(
                link, f"{address} cannot be reached: {str(fault) or type(fault).__name__}"
            )
        else:
            return True
        return False

    async def _connect(self, link: Link, address: Address) -> None:
        context = self._tls.dialing() if self._tls is not None else None
        await self._loop.create_connection(
            lambda: link,
            address.host,
            address.port,
            ssl=context,
            server_hostname=address.host if context else None,
        )

    # Time

    def _on_watch(self) -> None:
        """Keep links alive, and give up those that are not."""
        pace = self._pace
        self._watch = self._loop.call_later(pace.watch_s, self._on_watch)
        now_s = self._loop.time()
        if now_s - self._watched_s > pace.silent_s:
            self._excuse()  # this process was held up, and what came meanwhile is not read yet
        self._watched_s = now_s
        for link in list(self._open.values()):
            if not self.is_paused and now_s - link.received_s > pace.silent_s:
                link.abort(f"nothing came for {pace.silent_s:g} s")
            elif now_s - link.sent_s >= pace.watch_s / 2:
                link.ping()

    def _excuse(self) -> None:
        """It was not the peers who were silent."""
        now_s = self._loop.time()
        for link in self._open.values():
            link.received_s = now_s
