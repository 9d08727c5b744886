"""Calls that a `Link` makes to its owner."""

from typing import Protocol, TypeVar

from leveret.cluster.raft.messages import Message
from leveret.cluster.relay import RelayHead

TakenLink = TypeVar("TakenLink", contravariant=True)


class LinkOwner(Protocol[TakenLink]):
    """Accepts or refuses links, and handles what they receive."""

    def check_peer(self, link: TakenLink) -> None:
        """Raise `LinkRefusedError` if the node that has shown its card may not connect."""

    def on_open(self, link: TakenLink) -> None:
        """Handle the end of the handshake."""

    def on_messages(self, link: TakenLink, messages: list[Message], size_bytes: int) -> None:
        """Handle a frame of Raft messages."""

    def on_request(self, link: TakenLink, number: int, kind: int, payload: bytes) -> None:
        """Handle a request of the peer."""

    def on_answer(self, link: TakenLink, number: int, is_done: bool, text: str) -> None:
        """Handle the answer to a request of this node."""

    def on_data(self, link: TakenLink, data: bytes) -> None:
        """Handle bytes of the owner of the other node."""

    def on_writable(self, link: TakenLink) -> None:
        """Handle that DATA can be sent again."""

    def on_relay(self, link: TakenLink, head: RelayHead, rest: bytes) -> None:
        """Take over a connection that another node relays. It is paused."""

    def on_closed(self, link: TakenLink, reason: str) -> None:
        """Handle the end of a connection; the reason is empty if it needs no log line."""
