"""The connections of one node to the others: two for each pair of nodes, kept open, and relays.

Nodes are known by name. The node whose name sorts later dials; the other one dials, too, if that
does not happen, because only one of them may know the other's address. `TALK` carries messages that
must not wait, `BULK` carries copies of directories. A lost or refused connection is dialed again,
after a growing, randomised delay. The owner is told when a connection is lost or replaced, so that
it need not wait for a timeout: what was under way on it may be lost. An idle link sends a ping
every second. A link that received nothing for `silent_s` is closed, so that this node notices when
a peer is cut off, and when it is back.

Sending never blocks. Data that cannot be sent now is dropped and counted: Raft sends it again.
"""

import asyncio
import logging
from collections import Counter
from os import urandom
from random import Random
from typing import Final

from leveret.buffered_protocol import adapted
from leveret.cluster.admission import name_twice, other_node
from leveret.cluster.dial_faults import why_not_open, why_not_trusted, why_unreached
from leveret.cluster.errors import ClusterError, LinkRefusedError
from leveret.cluster.handshake import (
    BULK,
    KEPT,
    NONCE_BYTES,
    RELAY,
    REMOVED,
    TALK,
    TWICE,
    WELCOME,
    Card,
    Dialing,
    Listening,
)
from leveret.cluster.link import HANDSHAKE_S, REFUSED, REFUSED_BY_PEER, Link
from leveret.cluster.peers import PACE, Address, LinkFacts, LinksOwner, Pace, Tls
from leveret.cluster.raft.messages import Message
from leveret.cluster.relay import RelayHead
from leveret.cluster.relay_slots import RelaySlots
from leveret.cluster.requests import Requests
from leveret.cluster.warning_limiter import WarningLimiter

log = logging.getLogger(__name__)

CONNECT_S: Final = 3.0
RETRY_S_MIN: Final = 0.05
RETRY_S_MAX: Final = 1.0
REFUSED_RETRY_S: Final = 5.0  # an operator has to change something first
SECOND_DIAL_S: Final = 2.0  # the node whose name sorts first leaves this time to the other
STOP_S: Final = 5.0
BACKLOG: Final = 1024  # clients that a whole node relays connect again together
STRANGERS_MAX: Final = 256  # connections whose handshake is not done


class Links:
    """All connections of one node to others."""

    def __init__(
        self,
        owner: LinksOwner,
        secret: bytes,
        *,
        chance: Random,
        tls: Tls | None = None,
        pace: Pace = PACE,
    ) -> None:
        self._owner = owner
        self._secret = secret
        self._chance = chance
        self._tls = tls
        self._pace = pace
        self._loop = asyncio.get_running_loop()
        self._peers: dict[str, Address] = {}
        self._open: dict[tuple[str, int], Link] = {}  # by peer and purpose
        self._others: dict[Link, None] = {}  # every other link that is not gone, the oldest first
        self._dialing: dict[str, list[asyncio.Task[None]]] = {}
        self._requests = Requests()
        self._relay_slots = RelaySlots()
        self._server: asyncio.Server | None = None
        self._watch: asyncio.TimerHandle | None = None
        self._watched_s = self._loop.time()
        self._warnings = WarningLimiter(self._loop.time)
        self._has_stopped = False
        self.dials = 0
        self._dropped = 0  # frames for which there was no link, or that gone links dropped

    # Life

    async def start(self, host: str, port: int) -> None:
        context = self._tls.listening if self._tls is not None else None
        self._server = await self._loop.create_server(
            lambda: adapted(self._accept(), self._loop),
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
        """Close all connections at once, and begin no more."""
        self._end()
        for link in [*self._open.values(), *self._others]:
            link.abort("")

    def _end(self) -> list[asyncio.Task[None]]:
        """Begin no more connections; return the tasks that now end."""
        self._has_stopped = True
        if self._watch is not None:
            self._watch.cancel()
        if self._server is not None:
            self._server.close()
        self._requests.end()
        tasks = [task for tasks in self._dialing.values() for task in tasks]
        self._dialing.clear()
        for task in tasks:
            task.cancel()
        return tasks

    # Peers

    def set_peers(self, peers: dict[str, Address]) -> None:
        """Keep connected with these nodes. Links to other nodes stay until they are closed."""
        if self._has_stopped:
            return
        mine = self._owner.card().name
        for name in [*self._peers]:
            if name not in peers:
                self._forget(name)
        for name, address in peers.items():
            if name == mine or self._peers.get(name) == address:
                continue
            self._forget(name)
            self._peers[name] = address
            self._dialing[name] = [
                self._loop.create_task(
                    self._keep(name, purpose, mine < name), name=f"dial {name} {purpose}"
                )
                for purpose in KEPT
            ]

    def _forget(self, name: str) -> None:
        self._peers.pop(name, None)
        for task in self._dialing.pop(name, []):
            task.cancel()

    def reconnect(self, name: str) -> None:
        """End the connections with a node, so that both sides show their cards again."""
        for purpose in KEPT:
            link = self._open.get((name, purpose))
            if link is not None:
                link.close("")

    def disconnect(self, name: str, refusal: LinkRefusedError) -> None:
        """End the connections with a node, and tell it why."""
        for purpose in KEPT:
            link = self._open.get((name, purpose))
            if link is not None:
                link.close_with_reason(refusal)

    def peers(self) -> dict[str, Address]:
        return dict(self._peers)

    def cards(self) -> dict[str, Card]:
        """Return the cards of all nodes with a `TALK` connection, as of their handshakes."""
        return {
            name: link.card
            for (name, purpose), link in self._open.items()
            if purpose == TALK and link.card is not None and link.is_open
        }

    def is_connected(self, name: str) -> bool:
        return all((name, purpose) in self._open for purpose in KEPT)

    def can_talk(self, name: str) -> bool:
        link = self._open.get((name, TALK))
        return link is not None and link.is_open

    def is_receiving(self, name: str) -> bool:
        """Return True if a node sends a large frame, of which more has come since the last look."""
        return (name, TALK) in self._open and self._open[name, TALK].is_receiving()

    @property
    def dropped(self) -> int:
        """Frames that were dropped, because there was no link or no room in its buffer."""
        return self._dropped + sum(link.dropped for link in self._open.values())

    def facts(self) -> list[LinkFacts]:
        """Return the connections that are open now."""
        return [
            LinkFacts(
                peer=link.peer,
                purpose=link.purpose,
                incarnation=link.incarnation,
                address=link.address,
                sent_bytes=link.sent_bytes,
                received_bytes=link.received_bytes,
                dropped=link.dropped,
            )
            for link in self._open.values()
        ]

    # Sending

    def send(self, peer: str, source: int, target: int, messages: list[Message]) -> None:
        """Send messages of Raft, from one number to another."""
        link = self._open.get((peer, TALK))
        if link is None or not link.is_open:
            self._dropped += 1
        else:
            link.send(source, target, messages)

    def send_data(self, peer: str, *pieces: bytes) -> bool:
        """Send bytes to the owner of another node; return False if they cannot be sent now."""
        link = self._open.get((peer, BULK))
        return link is not None and link.is_open and link.send_data(*pieces)

    def may_send_data(self, peer: str) -> bool:
        """Return False if a sender of data has to wait for `on_writable`, or for a connection."""
        link = self._open.get((peer, BULK))
        return link is not None and link.may_send_data()

    async def request(self, peer: str, kind: int, payload: bytes, within_s: float) -> str:
        """Ask another node to do something; return its answer, or raise `ClusterError`."""
        link = self._open.get((peer, TALK))
        if link is None or not link.is_open:
            raise ClusterError(f"node {peer} is not connected")
        return await self._requests.ask(link, kind, payload, within_s)

    async def open_relay(
        self, peer: str, head: RelayHead, first: bytes = b""
    ) -> tuple[asyncio.Transport, bytes]:
        """Open a connection for one client at another node, and send its head and first bytes.

        Return the transport, which is paused, and the bytes that came already; give both to
        `leveret.cluster.relay.attach` without an await between. Raise `ClusterError` otherwise.
        """
        address = self._peers.get(peer)
        if address is None or self._has_stopped:
            raise ClusterError(f"node {peer} is not known")
        link = self._new_dial(peer, RELAY)
        try:
            await self._connect_relay(link, address, head.client_host)
            if not link.is_open:
                raise why_not_open(link, address)
        except BaseException:
            link.abort("")
            raise
        finally:
            self._others.pop(link, None)
        transport, rest = link.take_relay()
        transport.writelines([head.encode(), first])
        return transport, rest

    async def _connect_relay(self, link: Link, address: Address, client_host: str) -> None:
        self._others[link] = None
        try:
            async with self._relay_slots.held(client_host):
                async with asyncio.timeout(CONNECT_S + HANDSHAKE_S):
                    await self._connect(link, address)
                    await asyncio.shield(link.opened)
        except (OSError, TimeoutError, ValueError) as fault:
            who = f"node {link.peer} at {address}"
            raise ClusterError(why_unreached(who, fault, uses_tls=self._tls is not None)) from None

    # Events of links

    def check_peer(self, link: Link) -> None:
        card = link.card
        assert card is not None
        mine = self._owner.card()
        if link.is_dialed and card.name != link.target:
            raise other_node(link.target, card.name, link.address)
        if not link.is_dialed and link.target != mine.name:
            raise other_node(link.target, mine.name, mine.address)
        self._owner.require_welcome(card, is_relay=link.purpose == RELAY and not link.is_dialed)
        there = self._open.get((card.name, link.purpose))
        if there is not None and there.incarnation != card.incarnation:
            # It may be the old process of a node that lost its power: then it falls silent.
            raise name_twice(card.name, _host(there.address), _host(link.address))

    def on_open(self, link: Link) -> None:
        self._others.pop(link, None)
        if link.purpose == RELAY:
            return
        before = self._open.get((link.peer, link.purpose))
        if before is not None:
            # Both sides may have dialed at the same time: then both keep the same connection.
            is_both = before.is_dialed != link.is_dialed
            is_other = before.incarnation != link.incarnation
            if is_other or (is_both and before.is_dialed == self._dials(link.peer)):
                link.is_surplus = True
                link.close("")
                return
            before.is_surplus = True
            before.close("")
        self._open[link.peer, link.purpose] = link
        if before is not None:
            self._tell_replaced(link)
        log.info("connected with %s", link)
        self._warnings.forget(link.peer)
        if link.purpose == TALK and before is None:
            assert link.card is not None
            self._owner.on_connected(link.peer, link.card)

    def _tell_replaced(self, link: Link) -> None:
        """Tell the owner what may be lost because another connection has taken the place of one."""
        if link.purpose == TALK:
            self._owner.on_messages_lost(link.peer)
        else:
            self._owner.on_data_lost(link.peer)

    def _dials(self, peer: str) -> bool:
        """Return True if it is this node whose connections are kept."""
        return self._owner.card().name > peer

    def on_messages(self, link: Link, messages: list[Message], size_bytes: int) -> None:
        if not self._has_stopped:
            self._owner.on_messages(link.peer, messages, size_bytes)

    def on_request(self, link: Link, number: int, kind: int, payload: bytes) -> None:
        def answer(is_done: bool, text: str) -> None:
            if link.is_open:
                link.send_answer(number, is_done, text)

        if not self._has_stopped:
            self._owner.on_request(link.peer, kind, payload, answer)

    def on_answer(self, link: Link, number: int, is_done: bool, text: str) -> None:
        self._requests.on_answer(link, number, is_done, text)

    def on_data(self, link: Link, data: bytes) -> None:
        if not self._has_stopped:
            self._owner.on_data(link.peer, data)

    def on_writable(self, link: Link) -> None:
        if link.purpose == BULK and not self._has_stopped:
            self._owner.on_writable(link.peer)

    def on_relay(self, link: Link, head: RelayHead, rest: bytes) -> None:
        self._others.pop(link, None)
        if self._has_stopped:
            link.abort("")
        else:
            self._owner.on_relay(link.transport, head, rest)

    def on_closed(self, link: Link, reason: str) -> None:
        self._dropped += link.dropped
        self._others.pop(link, None)
        self._requests.on_closed(link)
        if self._has_stopped or link.is_surplus:
            return
        self._warn(link, reason)
        if self._open.get((link.peer, link.purpose)) is link:
            del self._open[link.peer, link.purpose]
            if link.purpose == TALK:
                self._owner.on_lost(link.peer)
            else:
                self._owner.on_data_lost(link.peer)
        name = link.target if link.is_dialed else link.peer
        if link.purpose == RELAY:
            return  # the caller of `open_relay` is told; the next relay may be taken
        if link.is_refused_by_peer:
            sentence = reason.removeprefix(REFUSED_BY_PEER)
            self._owner.on_refused(name, link.refusal, f"node {name} refuses this node: {sentence}")
        elif link.is_proven and link.refusal not in (WELCOME, REMOVED):
            self._owner.on_refused(name, link.refusal, reason.removeprefix(REFUSED))

    def _warn(self, link: Link, reason: str) -> None:
        """Write one line to the log. Repeated attempts do not repeat it."""
        # A stranger chooses its name, so the lines about strangers are counted by their host.
        key = link.peer if link.is_dialed or link.is_proven else _host(link.address)
        level = self._warnings.level(key, reason)
        log.log(level, "no connection with %s: %s", link, reason or "it was closed")

    # Listening

    def _accept(self) -> Link:
        link = Link(self, Listening(self._owner.card(), self._secret, urandom(NONCE_BYTES)))
        if self._has_stopped:
            link.abort("")  # accepted just before the end
            return link
        strangers = [other for other in self._others if not other.is_dialed]
        if len(strangers) >= STRANGERS_MAX:
            # Nobody can keep members out: the oldest of the host with the most has had its time.
            crowded = Counter(_host(other.address) for other in strangers).most_common(1)[0][0]
            oldest = next(other for other in strangers if _host(other.address) == crowded)
            del self._others[oldest]  # one that fails in TLS is never told to be closed
            oldest.abort("too many strangers")
        self._others[link] = None
        return link

    # Dialing

    def _new_dial(self, peer: str, purpose: int) -> Link:
        card = self._owner.card()
        nonce = urandom(NONCE_BYTES)
        return Link(self, Dialing(card, self._secret, nonce, peer, purpose), peer)

    async def _keep(self, peer: str, purpose: int, is_second: bool) -> None:
        """Stay connected while the node is a peer. `is_second`: the other node dials first."""
        wait_s = RETRY_S_MIN
        while True:
            there = self._open.get((peer, purpose))
            if there is not None:
                await asyncio.shield(there.closed)
                wait_s = RETRY_S_MIN
            if is_second:
                await asyncio.sleep(self._drawn(SECOND_DIAL_S))
            refusal = await self._dial_once(peer, purpose)
            if (peer, purpose) in self._open:
                continue
            # TWICE: the peer still has a link to an earlier process of this node. It ends soon.
            is_refused = refusal not in (WELCOME, TWICE)
            await asyncio.sleep(self._drawn(REFUSED_RETRY_S if is_refused else wait_s))
            wait_s = min(wait_s * 2, RETRY_S_MAX)

    async def _dial_once(self, peer: str, purpose: int) -> int:
        """Dial, and wait for the end of the handshake; return the code of a refusal."""
        if (peer, purpose) in self._open:
            return WELCOME
        link = self._new_dial(peer, purpose)
        try:
            if await self._dial(link, self._peers[peer]):
                await asyncio.shield(link.opened)  # a deadline ends the handshake
        finally:
            self._others.pop(link, None)
            if not link.has_opened:
                link.abort("")
        return link.refusal

    def _drawn(self, wait_s: float) -> float:
        """Draw a random time, so that not all nodes dial again at the same moment."""
        return wait_s * (0.5 + self._chance.random() / 2)

    async def _dial(self, link: Link, address: Address) -> bool:
        self.dials += 1
        self._others[link] = None
        try:
            async with asyncio.timeout(CONNECT_S):
                await self._connect(link, address)
        except Exception as fault:
            # Any error, such as an unknown host name or an unreadable certificate, may be repaired
            # later. This task must go on, because no other one dials this node.
            self._warn(link, why_unreached(str(address), fault, uses_tls=self._tls is not None))
            if sentence := why_not_trusted(self._owner.card().name, link.target, fault):
                self._owner.on_refused(link.target, WELCOME, sentence)
        else:
            return True
        return False

    async def _connect(self, link: Link, address: Address) -> None:
        context = self._tls.dialing() if self._tls is not None else None
        name = address.host if context else None
        protocol = adapted(link, self._loop)
        await self._loop.create_connection(
            lambda: protocol, address.host, address.port, ssl=context, server_hostname=name
        )

    # Time

    def _on_watch(self) -> None:
        """Send keep-alives, and close the links whose peers are silent."""
        pace = self._pace
        self._watch = self._loop.call_later(pace.watch_s, self._on_watch)
        now_s = self._loop.time()
        if now_s - self._watched_s > pace.silent_s:  # this process was held up itself
            for link in self._open.values():
                link.received_s = now_s
        self._watched_s = now_s
        for link in list(self._open.values()):
            if now_s - link.received_s > pace.silent_s:
                link.abort(f"nothing came for {pace.silent_s:g} s")
            elif now_s - link.sent_s >= pace.watch_s / 2:
                link.ping()


def _host(address: str) -> str:
    return address.rpartition(":")[0]
