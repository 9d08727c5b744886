"""Limits of connections and channels: per node, per vhost and per user.

This module counts open connections and channels. The limits of vhosts and users are entries of the
register (`vhost_limit`, `user_limit`), read at each opening: a new limit applies to the next
opening and closes nothing. A missing or negative limit means no limit, as in RabbitMQ.
"""

import json
from typing import Final

from leveret.engine.vhosts.register import Register
from leveret.errors import NotAllowedError

VHOST_LIMIT: Final = "vhost_limit"
USER_LIMIT: Final = "user_limit"
MAX_CONNECTIONS: Final = "max-connections"
MAX_CHANNELS: Final = "max-channels"

LOCAL_RESERVE: Final = 8  # connections above the limit of the node, for local administrators
_NONE: Final = -1


class Quotas:
    """Counts open connections and channels, and enforces their limits."""

    def __init__(self, register: Register | None) -> None:
        self._register = register  # None: users and vhosts have no limits
        self.connections_max = 0  # of the node; 0: no limit
        self._connections = 0
        self._by_vhost: dict[str, int] = {}
        self._by_user: dict[str, int] = {}
        self._channels: dict[str, int] = {}  # by user

    def open_connection(self, user: str, vhost: str, is_local_administrator: bool = False) -> None:
        """Count a connection. Raises NotAllowedError if a limit is reached.

        An administrator on this machine may exceed the limit of the node by `LOCAL_RESERVE`.
        """
        reserve = LOCAL_RESERVE if is_local_administrator else 0
        if 0 < self.connections_max <= self._connections - reserve:
            raise NotAllowedError(
                f"connection refused: node connection limit ({self.connections_max}) is reached"
            )
        limit = self._limit(VHOST_LIMIT, vhost, MAX_CONNECTIONS)
        if _is_reached(self._by_vhost, vhost, limit):
            raise NotAllowedError(
                f"access to vhost '{vhost}' refused for user '{user}': "
                f"connection limit ({limit}) is reached"
            )
        limit = self._limit(USER_LIMIT, user, MAX_CONNECTIONS)
        if _is_reached(self._by_user, user, limit):
            raise NotAllowedError(
                f"connection refused for user '{user}': user connection limit ({limit}) is reached"
            )
        self._connections += 1
        _count(self._by_vhost, vhost, 1)
        _count(self._by_user, user, 1)

    def close_connection(self, user: str, vhost: str) -> None:
        self._connections -= 1
        _count(self._by_vhost, vhost, -1)
        _count(self._by_user, user, -1)

    def open_channel(self, user: str) -> None:
        """Count a channel. Raises NotAllowedError if the limit is reached."""
        limit = self._limit(USER_LIMIT, user, MAX_CHANNELS)
        if _is_reached(self._channels, user, limit):
            raise NotAllowedError(
                f"number of channels opened for user '{user}' has reached "
                f"the maximum allowed user limit of ({limit})"
            )
        _count(self._channels, user, 1)

    def close_channel(self, user: str) -> None:
        _count(self._channels, user, -1)

    def _limit(self, kind: str, key: str, name: str) -> int:
        text = self._register.get(kind, key) if self._register is not None else None
        if text is None:
            return _NONE
        limit = json.loads(text).get(name, _NONE)
        return limit if isinstance(limit, int) else _NONE


def _is_reached(counts: dict[str, int], key: str, limit: int) -> bool:
    return 0 <= limit <= counts.get(key, 0)


def _count(counts: dict[str, int], key: str, step: int) -> None:
    count = counts.get(key, 0) + step
    if count:
        counts[key] = count
    else:
        del counts[key]
