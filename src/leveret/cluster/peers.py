"""Types that links share: addresses, TLS contexts, keep-alive times, and the owner of links."""

import asyncio
import ssl
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, Protocol

from leveret.cluster.handshake import Card
from leveret.cluster.raft.messages import Message
from leveret.cluster.relay import RelayHead


@dataclass(frozen=True)
class Pace:
    """Interval of keep-alive frames, and the silence after which a link is closed."""

    watch_s: float = 1.0
    silent_s: float = 4.0


PACE: Final = Pace()


@dataclass(frozen=True)
class Address:
    """Host and port at which a node listens for other nodes."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def parse_address(text: str) -> Address:
    """Return the address of `host:port` or `[host]:port`; raise ValueError for another text."""
    host, _, port = text.rpartition(":")
    if not host or not port.isdecimal() or not 0 < int(port) < 65_536:
        raise ValueError(f"{text!r} is not an address of the form host:port")
    return Address(host.removeprefix("[").removesuffix("]"), int(port))


@dataclass(frozen=True)
class Tls:
    """TLS contexts for listening and for dialing. Both sides ask for a certificate."""

    listening: ssl.SSLContext
    dialing: Callable[[], ssl.SSLContext]  # asked at each dial: certificates are renewed


@dataclass(frozen=True)
class LinkFacts:
    """State and counters of one connection, for status pages and tests."""

    peer: str
    purpose: int
    incarnation: int  # of the peer
    address: str
    sent_bytes: int
    received_bytes: int
    dropped: int  # frames


Answer = Callable[[bool, str], None]  # True if the request is done; a sentence for the operator


class LinksOwner(Protocol):
    """The node behind the links: decides who may connect, and handles what arrives."""

    def card(self) -> Card:
        """Return the card of this node, as of now."""

    def require_welcome(self, card: Card, *, is_relay: bool) -> None:
        """Raise `LinkRefusedError` if a node must not be connected with, or must not relay."""

    def on_connected(self, peer: str, card: Card) -> None:
        """Handle a new `TALK` connection."""

    def on_lost(self, peer: str) -> None:
        """Handle the end of a `TALK` connection."""

    def on_messages_lost(self, peer: str) -> None:
        """Handle that messages of Raft under way may be lost: the connection was replaced."""

    def on_data_lost(self, peer: str) -> None:
        """Handle that data under way is lost: the `BULK` connection has ended or was replaced."""

    def on_refused(self, peer: str, code: int, sentence: str) -> None:
        """Handle a refusal by another node, or of a node that knows the secret.

        `REMOVED` is told only if another node says so of this one.
        """

    def on_messages(self, peer: str, messages: list[Message], size_bytes: int) -> None:
        """Handle messages of Raft."""

    def on_request(self, peer: str, kind: int, payload: bytes, answer: Answer) -> None:
        """Handle a request; call `answer` once, now or later."""

    def on_data(self, peer: str, data: bytes) -> None:
        """Handle bytes that `send_data` of another node has sent."""

    def on_writable(self, peer: str) -> None:
        """Handle that `send_data` may go on."""

    def on_relay(self, transport: asyncio.Transport, head: RelayHead, rest: bytes) -> None:
        """Take over the connection of a relayed client; see `leveret.cluster.relay.attach`."""
