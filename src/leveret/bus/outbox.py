"""Messages that wait in the service's own database until they are published.

A service writes a message in the transaction of its own work, so that both are committed or
neither. `outbox_relay` publishes the committed messages and then removes them.

    the service's transaction ── add ──► row ── published and confirmed ──► removed

A row is the whole message: its address, its properties as AMQP encodes them, and its body. Several
processes may have the same outbox. One of them publishes at a time: the one that holds the lease.
"""

import asyncio
import re
import sqlite3
import struct
import threading
from collections.abc import Awaitable, Sequence
from contextlib import AbstractAsyncContextManager, closing
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import Any, Final, Protocol

from leveret.bus.errors import DecodeError, EncodeError
from leveret.bus.lossless_properties import LosslessProperties
from leveret.bus.outgoing_message import OutgoingMessage
from leveret.bus.topology import PublishAddress
from leveret.clock import Clock

TABLE: Final = "leveret_bus_outbox"
ANSWER_S: Final = 10.0  # for one statement
_BUSY_S: Final = 30.0  # for another process that writes to the same file
_NAME: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.]{0,100}")
_COLUMNS: Final = "key, exchange, routing_key, mandatory, properties, body"
_FLAGS: Final = struct.Struct(">H")


@dataclass(frozen=True)
class OutboxMessage:
    """A message in an outbox. Messages with the same key are published in their order."""

    position: int
    key: str
    message: OutgoingMessage | DecodeError  # the error if the row cannot be read


class Outbox(Protocol):
    """Keeps messages. `add` is called within the service's transaction, the rest by the relay."""

    def add(self, connection: Any, message: OutgoingMessage, key: str) -> Awaitable[None] | None:
        """Write a message by the service's own connection."""
        ...

    async def claim(self, owner: str, lease_s: float) -> bool:
        """Take or renew the lease. Return False if another owner holds it."""
        ...

    async def release(self, owner: str) -> None:
        """Give the lease up, if this owner holds it."""
        ...

    async def read(self, after: int, limit: int) -> list[OutboxMessage]:
        """Return the next messages behind a position, in their order.

        A row that cannot be read is returned with its error, so that others are published.
        """
        ...

    async def remove(self, positions: Sequence[int]) -> None:
        """Remove messages that are published."""
        ...


class SqliteOutbox:
    """Keeps messages in a table of the service's SQLite file."""

    def __init__(self, path: Path, *, table: str = TABLE, clock: Clock | None = None) -> None:
        self._table = _require_name(table)
        self._clock = clock or Clock()
        self._lock = threading.Lock()
        self._database = sqlite3.connect(
            path, timeout=_BUSY_S, check_same_thread=False, isolation_level=None
        )
        self._database.executescript(
            f"CREATE TABLE IF NOT EXISTS {table} (position INTEGER PRIMARY KEY AUTOINCREMENT,"
            " key TEXT NOT NULL, exchange TEXT NOT NULL, routing_key TEXT NOT NULL,"
            " mandatory INTEGER NOT NULL, properties BLOB NOT NULL, body BLOB NOT NULL);"
            f"CREATE TABLE IF NOT EXISTS {table}_lease (id INTEGER PRIMARY KEY,"
            " owner TEXT NOT NULL, until_ms INTEGER NOT NULL);"
        )

    def add(self, connection: sqlite3.Connection, message: OutgoingMessage, key: str) -> None:
        """Write a message by the service's own connection, within its transaction."""
        row = f"INSERT INTO {self._table} ({_COLUMNS}) VALUES (?, ?, ?, ?, ?, ?)"
        connection.execute(row, _row(message, key))

    async def claim(self, owner: str, lease_s: float) -> bool:
        now_ms = self._clock.now_ms()
        statement = (
            f"INSERT INTO {self._table}_lease AS found VALUES (1, ?, ?) ON CONFLICT (id) DO UPDATE"
            " SET owner = excluded.owner, until_ms = excluded.until_ms"
            " WHERE found.owner = excluded.owner OR found.until_ms <= ?"
        )
        values = (owner, now_ms + round(lease_s * 1000), now_ms)
        return bool((await self._execute(statement, values))[0])

    async def release(self, owner: str) -> None:
        await self._execute(f"DELETE FROM {self._table}_lease WHERE owner = ?", (owner,))

    async def read(self, after: int, limit: int) -> list[OutboxMessage]:
        statement = (
            f"SELECT position, {_COLUMNS} FROM {self._table}"
            " WHERE position > ? ORDER BY position LIMIT ?"
        )
        return [_message(row) for row in (await self._execute(statement, (after, limit)))[1]]

    async def remove(self, positions: Sequence[int]) -> None:
        marks = ", ".join("?" * len(positions))
        await self._execute(f"DELETE FROM {self._table} WHERE position IN ({marks})", positions)

    def close(self) -> None:
        with self._lock, closing(self._database):
            pass

    async def _execute(self, statement: str, values: Sequence[Any]) -> tuple[int, list[Any]]:
        return await asyncio.to_thread(self._run, statement, values)

    def _run(self, statement: str, values: Sequence[Any]) -> tuple[int, list[Any]]:
        """Return how many rows the statement changed, and the rows that it found."""
        with self._lock:
            found = self._database.execute(statement, values)
            return found.rowcount, found.fetchall()


class OutboxConnection(Protocol):
    """The method of asyncpg's connection that an outbox needs."""

    def execute(self, query: str, *args: Any) -> Awaitable[Any]: ...


class OutboxPool(Protocol):
    """The methods of asyncpg's pool that an outbox needs."""

    def fetch(self, query: str, *args: Any) -> Awaitable[list[Any]]: ...
    def execute(self, query: str, *args: Any) -> Awaitable[Any]: ...
    def acquire(self) -> AbstractAsyncContextManager[Any]: ...


class PostgresOutbox:
    """Keeps messages in a table of the service's PostgreSQL. The lease has the database's time."""

    def __init__(self, pool: OutboxPool, *, table: str = TABLE) -> None:
        self._pool = pool
        self._table = _require_name(table)

    async def create_table(self) -> None:
        """Create the tables, if they are missing."""
        async with asyncio.timeout(ANSWER_S):
            await self._pool.execute(
                f"CREATE TABLE IF NOT EXISTS {self._table} (position bigserial PRIMARY KEY,"
                " key text NOT NULL, exchange text NOT NULL, routing_key text NOT NULL,"
                " mandatory boolean NOT NULL, properties bytea NOT NULL, body bytea NOT NULL);"
                f"CREATE TABLE IF NOT EXISTS {self._table}_lease (id integer PRIMARY KEY,"
                " owner text NOT NULL, ends timestamptz NOT NULL);"
            )

    async def add(self, connection: OutboxConnection, message: OutgoingMessage, key: str) -> None:
        """Write a message by the service's own connection, within its transaction."""
        row = f"INSERT INTO {self._table} ({_COLUMNS}) VALUES ($1, $2, $3, $4, $5, $6)"
        async with asyncio.timeout(ANSWER_S):
            await connection.execute(row, *_row(message, key))

    async def claim(self, owner: str, lease_s: float) -> bool:
        statement = (
            f"INSERT INTO {self._table}_lease AS found VALUES (1, $1, clock_timestamp() + $2)"
            " ON CONFLICT (id) DO UPDATE SET owner = excluded.owner, ends = excluded.ends"
            " WHERE found.owner = excluded.owner OR found.ends <= clock_timestamp()"
            " RETURNING true"
        )
        return bool(await self._fetch(statement, owner, timedelta(seconds=lease_s)))

    async def release(self, owner: str) -> None:
        await self._fetch(f"DELETE FROM {self._table}_lease WHERE owner = $1", owner)

    async def read(self, after: int, limit: int) -> list[OutboxMessage]:
        statement = (
            f"SELECT position, {_COLUMNS} FROM {self._table}"
            " WHERE position > $1 ORDER BY position LIMIT $2"
        )
        return [_message(row) for row in await self._fetch(statement, after, limit)]

    async def remove(self, positions: Sequence[int]) -> None:
        statement = f"DELETE FROM {self._table} WHERE position = ANY($1::bigint[])"
        await self._fetch(statement, list(positions))

    async def _fetch(self, statement: str, *values: Any) -> list[Any]:
        async with asyncio.timeout(ANSWER_S):
            return await self._pool.fetch(statement, *values)


def _require_name(table: str) -> str:
    if not _NAME.fullmatch(table):
        raise ValueError(f"{table!r} is not the name of a table")
    return table


def _row(message: OutgoingMessage, key: str) -> tuple[str, str, str, bool, bytes, bytes]:
    """Return the columns of a message. Raise EncodeError."""
    try:
        properties = message.properties.marshal()
    except (TypeError, ValueError, OverflowError, struct.error) as fault:
        text = f"AMQP cannot carry message {message.message_id}: {fault}"
        raise EncodeError(text) from fault
    address = message.address
    return key, address.exchange, address.routing_key, message.mandatory, properties, message.body


def _message(row: Sequence[Any]) -> OutboxMessage:
    position, key, *rest = row
    try:
        return OutboxMessage(position, str(key), _outgoing(*rest))
    except Exception as fault:  # pamqp raises many kinds for bytes that it did not write
        text = f"row {position} of the outbox cannot be read: {fault!r}"
        return OutboxMessage(position, str(key), DecodeError(text))


def _outgoing(
    exchange: Any, routing_key: Any, mandatory: Any, encoded: Any, body: Any
) -> OutgoingMessage:
    """Return the message of a row. SQLite keeps any type in any column."""
    if not (isinstance(exchange, str) and isinstance(routing_key, str)):
        raise TypeError("its exchange or routing key is not a text")
    if not (isinstance(encoded, bytes) and isinstance(body, bytes)):
        raise TypeError("its properties or its body are not bytes")
    properties = LosslessProperties()
    properties.unmarshal(_FLAGS.unpack_from(encoded)[0], encoded[_FLAGS.size :])
    address = PublishAddress(exchange, routing_key)
    return OutgoingMessage(address, body, properties, bool(mandatory))
