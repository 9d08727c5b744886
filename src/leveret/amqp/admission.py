"""Limit the AMQP connections that have not been opened yet, and keep places for local clients.

A connection counts here from `accept` until it is opened or lost. Opened connections are limited by
user, vhost and node (`leveret.auth.limits`). One address has a limited number of connections that
are not open, so that it cannot take the descriptors of all others with sockets that never log in.

The last `LOCAL_DESCRIPTORS` descriptors for AMQP are for clients of this machine: an administrator
on the machine gets in when other clients have used all theirs.
"""

from collections.abc import Callable
from typing import Final

from mypy_extensions import i64

from leveret.addresses import is_loopback, network_of
from leveret.amqp.connection_base import (
    GONE_EARLY,
    OPENED,
    ConnectionBase,
    ConnectionLimits,
)
from leveret.listening.refusals import NO_DESCRIPTORS

LOCAL_DESCRIPTORS: Final = 8

TOO_MANY_UNOPENED: Final = "its address has too many connections that are not open yet"


class Admission:
    """The connections of a node that are not open yet, by the network of their client."""

    def __init__(self, limits: ConnectionLimits, note_refusal: Callable[[str, str], None]) -> None:
        self._limits = limits
        self._note_refusal = note_refusal  # called with the reason and the host
        self._unopened: dict[str, int] = {}

    def enter(self, host: str, descriptor: int) -> bool:
        """Count a new connection. Return False, and count nothing, to refuse it."""
        end: i64 = self._limits.sockets_end
        if end > LOCAL_DESCRIPTORS and not is_loopback(host):
            end -= LOCAL_DESCRIPTORS
        if end != 0 and descriptor >= end:
            self._note_refusal(NO_DESCRIPTORS, host)
            return False
        network = network_of(host)
        count = self._unopened.get(network, 0)
        most: i64 = self._limits.unopened_max
        if most != 0 and count >= most:
            self._note_refusal(TOO_MANY_UNOPENED, host)
            return False
        self._unopened[network] = count + 1
        return True

    def leave(self, host: str) -> None:
        """Uncount a connection, because it was opened or has ended."""
        network = network_of(host)
        count = self._unopened.get(network, 0)
        if count > 1:
            self._unopened[network] = count - 1
        else:
            self._unopened.pop(network, None)

    def on_event(self, event: str, connection: ConnectionBase) -> None:
        """Uncount a connection that was opened, or that ended before."""
        if event == OPENED or event == GONE_EARLY:
            self.leave(connection.host)
            if connection.is_foreign:
                self._note_refusal(connection.end_reason, connection.host)
