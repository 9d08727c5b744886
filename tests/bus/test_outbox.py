"""An outbox: what a transaction wrote is published after its commit, in order for each key."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager, closing
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from random import Random
from typing import Any, Final

import asyncpg
import pytest

from leveret.bus import (
    Bus,
    DecodeError,
    EncodeError,
    NackedError,
    Outbox,
    PostgresOutbox,
    PublishOptions,
    PublishTimeoutError,
    SqliteOutbox,
    SyncBus,
    fanout,
    topic,
)
from leveret.bus.outbox_relay import BATCH, OutboxRelay
from leveret.bus.outgoing_message import OutgoingMessage
from leveret.bus.testing import FakeBus
from tests.bus.nodes import Node
from tests.bus.stage import FAST, Placed, Seen, pytestmark_bus
from tools.services import shared_postgres

pytestmark = pytestmark_bus
WAIT_S: Final = 60.0
QUICK: Final = replace(FAST, outbox_poll_s=0.005, backoff_s_min=0.005, backoff_s_max=0.01)

# Opens a transaction of the service, which a failure rolls back.
Transaction = Callable[[], AbstractAsyncContextManager[Any]]


@pytest.fixture(params=["sqlite", "postgres"])
def dsn(request: pytest.FixtureRequest) -> Iterator[str | None]:
    """A database of PostgreSQL; None for SQLite."""
    if request.param == "sqlite":
        yield None
        return
    with shared_postgres().databases(1) as [found]:
        yield found


@pytest.fixture
async def kept(dsn: str | None, tmp_path: Path) -> AsyncIterator[tuple[Outbox, Transaction]]:
    """An outbox, and the service's own way to its database."""
    if dsn is None:
        path = tmp_path / "service.db"
        with closing(SqliteOutbox(path)) as outbox, closing(sqlite3.connect(path)) as connection:

            @asynccontextmanager
            async def transaction() -> AsyncIterator[Any]:
                with connection:
                    yield connection

            yield outbox, transaction
        return
    async with asyncpg.create_pool(dsn, min_size=2, max_size=4) as pool:
        made = PostgresOutbox(pool)
        await made.create_table()
        await made.create_table()  # a second process does it too

        @asynccontextmanager
        async def pg_transaction() -> AsyncIterator[Any]:
            async with pool.acquire() as connection, connection.transaction():
                yield connection

        yield made, pg_transaction


def writer(outbox: Outbox) -> Bus:
    """A bus that is not started: it only writes to the outbox."""
    return Bus("amqp://nowhere/", fanout.layout("shop-orders"), outbox=outbox)


class Broker:
    """Stands for the broker: notes messages, and fails as it is told to."""

    def __init__(self) -> None:
        self.seen: Seen[str] = Seen()
        self.messages: list[OutgoingMessage] = []
        self.faults: dict[str, list[Exception]] = {}  # by message id

    async def publish(self, message: OutgoingMessage, timeout_s: float) -> None:
        await asyncio.sleep(0)
        if waiting := self.faults.get(message.message_id):
            raise waiting.pop(0)
        self.messages.append(message)
        await self.seen.add(message.message_id)


@asynccontextmanager
async def relaying(outbox: Outbox, broker: Broker) -> AsyncIterator[OutboxRelay]:
    relay = OutboxRelay(outbox, broker.publish, QUICK)
    relay.start()
    try:
        yield relay
    finally:
        await relay.stop(WAIT_S)


async def test_committed_messages_are_published_and_others_are_not(
    kept: tuple[Outbox, Transaction],
) -> None:
    outbox, transaction = kept
    bus, broker = writer(outbox), Broker()
    async with relaying(outbox, broker):
        with pytest.raises(ZeroDivisionError):
            async with transaction() as connection:
                await bus.publish_within(connection, Placed(1))
                _ = 1 / 0
        async with transaction() as connection:
            known = await bus.publish_within(connection, Placed(2))
        assert await broker.seen.wait(1, WAIT_S) == [known]
    assert await outbox.read(0, 10) == []
    [message] = broker.messages
    assert message.body == b'{"number":2}'
    assert message.address.exchange == "shop.main-exchange"


async def test_message_is_published_as_it_was_made(kept: tuple[Outbox, Transaction]) -> None:
    outbox, transaction = kept
    headers = {"f": 0.1, "b": b"\xff", "at": datetime(2026, 1, 2, tzinfo=UTC), "n": {"l": [1, "x"]}}
    options = PublishOptions(headers=headers, correlation_id="c", mandatory=True, delay_s=60.0)
    broker = Broker()
    async with transaction() as connection:
        await writer(outbox).publish_within(connection, Placed(1), options)
    async with relaying(outbox, broker):
        await broker.seen.wait(1, WAIT_S)
    [message] = broker.messages
    found = message.properties
    assert found.headers is not None and headers.items() <= found.headers.items()
    assert found.headers["processAfterDelayMs"] == 60_000
    assert (found.correlation_id, found.message_type) == ("c", "Placed")
    assert (found.delivery_mode, message.mandatory) == (2, True)


async def test_order_is_kept_for_each_key(kept: tuple[Outbox, Transaction]) -> None:
    outbox, transaction = kept
    bus, broker, rng = writer(outbox), Broker(), Random(7)
    wanted: dict[str, list[str]] = {"a": [], "b": [], "": []}
    async with transaction() as connection:
        for number in range(BATCH + 50):
            key = rng.choice(list(wanted))
            given = PublishOptions(message_id=f"{key}-{number}")
            wanted[key].append(await bus.publish_within(connection, Placed(number), given, key=key))
    # The first message of a key fails twice, so all others of this key wait for it.
    broker.faults[wanted["a"][0]] = [NackedError("m", "full"), PublishTimeoutError("m", "late")]
    async with relaying(outbox, broker):
        seen = await broker.seen.wait(BATCH + 50, WAIT_S)
    for key in ("a", "b"):
        assert [each for each in seen if each.startswith(f"{key}-")] == wanted[key]
    assert Counter(seen) == Counter(wanted["a"] + wanted["b"] + wanted[""])


async def test_a_message_that_is_refused_holds_up_only_its_key(
    kept: tuple[Outbox, Transaction],
) -> None:
    outbox, transaction = kept
    bus, broker = writer(outbox), Broker()
    async with transaction() as connection:
        bad = await bus.publish_within(connection, Placed(0), key="a")
        await bus.publish_within(connection, Placed(1), key="a")
        good = await bus.publish_within(connection, Placed(2), key="b")
    broker.faults[bad] = [NackedError(bad, "full")] * 1_000_000
    async with relaying(outbox, broker):
        assert await broker.seen.wait(1, WAIT_S) == [good]
    left = await outbox.read(0, 10)
    assert isinstance(left[0].message, OutgoingMessage)
    assert left[0].message.message_id == bad and len(left) == 2
    assert broker.seen.all == [good]


async def test_rows_that_cannot_be_read_stay_and_hold_up_only_their_keys(
    kept: tuple[Outbox, Transaction], dsn: str | None, caplog: pytest.LogCaptureFixture
) -> None:
    outbox, transaction = kept
    bus, broker = writer(outbox), Broker()
    bad_properties = [b"", b"\xff\xff", b"\x20\x00\xff\xff\xff\xff", b"\x80\x00\xff"]
    marks = "?, ?, ?, ?, ?, ?" if dsn is None else "$1, $2, $3, $4, $5, $6"
    columns = "key, exchange, routing_key, mandatory, properties, body"
    statement = f"INSERT INTO leveret_bus_outbox ({columns}) VALUES ({marks})"
    async with transaction() as connection:
        for properties in bad_properties:
            done = connection.execute(statement, *_values(dsn, "a", properties, b""))
            if dsn is not None:
                await done
        await bus.publish_within(connection, Placed(1), key="a")
        good = await bus.publish_within(connection, Placed(2), key="b")
    async with relaying(outbox, broker):
        assert await broker.seen.wait(1, WAIT_S) == [good]
    assert len(await outbox.read(0, 10)) == len(bad_properties) + 1
    assert "row 1 of the outbox cannot be read" in caplog.text


def _values(dsn: str | None, key: str, properties: bytes, body: bytes) -> tuple[Any, ...]:
    """Return the arguments of a statement, as the driver of the database takes them."""
    row = (key, "shop.main-exchange", "", True, properties, body)
    return (row,) if dsn is None else row


async def test_columns_of_other_types_cannot_be_read(tmp_path: Path) -> None:
    path = tmp_path / "service.db"
    with closing(SqliteOutbox(path)) as outbox, closing(sqlite3.connect(path)) as connection:
        columns = "key, exchange, routing_key, mandatory, properties, body"
        statement = f"INSERT INTO leveret_bus_outbox ({columns}) VALUES (?, ?, ?, ?, ?, ?)"
        none = b"\0\0"
        rows = [(7, b"x", "", 1, none, b""), ("", "", "", 1, none, 5), ("", "", "", 1, 9, b"")]
        with connection:
            connection.executemany(statement, rows)
        found = await outbox.read(0, 10)
        assert [each.key for each in found] == ["7", "", ""]
        assert all(isinstance(each.message, DecodeError) for each in found)


async def test_a_message_without_an_exchange_holds_up_only_its_key(
    node: Node, prefix: str, tmp_path: Path
) -> None:
    """The broker closes the channel for it, and with it the messages beside it fail."""
    path = tmp_path / "service.db"
    gone = fanout.layout(f"{prefix}-gone")
    with closing(SqliteOutbox(path)) as outbox, closing(sqlite3.connect(path)) as connection:
        bus = Bus(node.url, topic.layout(f"{prefix}.events"), settings=QUICK, outbox=outbox)
        seen: Seen[int] = Seen()

        @bus.on(Placed)
        async def note(event: Placed) -> None:
            await seen.add(event.number)

        with connection:
            stray = Bus(node.url, gone, outbox=outbox)
            lost = await stray.publish_within(connection, Placed(-1), key="gone")
            for number in range(20):
                await bus.publish_within(connection, Placed(number))
        async with bus:
            await seen.wait(20, WAIT_S)
        [left] = await outbox.read(0, 10)
        assert isinstance(left.message, OutgoingMessage) and left.message.message_id == lost
    assert set(seen.all) == set(range(20))


async def test_relays_side_by_side_publish_each_message_once(
    kept: tuple[Outbox, Transaction],
) -> None:
    outbox, transaction = kept
    bus, broker = writer(outbox), Broker()
    async with relaying(outbox, broker), relaying(outbox, broker), relaying(outbox, broker):
        for number in range(60):
            async with transaction() as connection:
                await bus.publish_within(connection, Placed(number), key=str(number % 3))
        await broker.seen.wait(60, WAIT_S)
    assert await outbox.read(0, 10) == []
    assert max(Counter(broker.seen.all).values()) == 1


async def test_another_relay_takes_over(kept: tuple[Outbox, Transaction]) -> None:
    outbox, transaction = kept
    broker = Broker()
    async with transaction() as connection:
        await writer(outbox).publish_within(connection, Placed(1))
    assert await outbox.claim("first", 600.0)
    assert not await outbox.claim("second", 600.0)
    await outbox.release("second")
    assert not await outbox.claim("second", 600.0), "not its lease"
    await outbox.release("first")
    assert await outbox.claim("dead", 0.05)
    async with relaying(outbox, broker):
        await broker.seen.wait(1, WAIT_S)
    assert await outbox.claim("next", 1.0), "a relay that stops gives its lease up"


class LeaselessOutbox(SqliteOutbox):
    """An outbox whose lease cannot be claimed."""

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.claims: Seen[str] = Seen()

    async def claim(self, owner: str, lease_s: float) -> bool:
        await self.claims.add(owner)
        raise sqlite3.OperationalError("no such table: lease")


async def test_a_relay_logs_its_error_and_tries_again(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(LeaselessOutbox(tmp_path / "service.db")) as outbox:
        async with relaying(outbox, Broker()):
            await outbox.claims.wait(2, WAIT_S)
    assert [text for text in caplog.messages if "no such table: lease" in text]


async def test_what_amqp_cannot_carry_is_refused_in_the_transaction(
    kept: tuple[Outbox, Transaction],
) -> None:
    outbox, transaction = kept
    with pytest.raises(EncodeError):
        async with transaction() as connection:
            given = PublishOptions(headers={"k": object()})
            await writer(outbox).publish_within(connection, Placed(1), given)


async def test_a_bus_publishes_its_outbox(node: Node, prefix: str, tmp_path: Path) -> None:
    path = tmp_path / "service.db"
    with closing(SqliteOutbox(path, table="shop_outbox")) as outbox:
        bus = Bus(node.url, topic.layout(f"{prefix}.events"), settings=QUICK, outbox=outbox)
        seen: Seen[int] = Seen()

        @bus.on(Placed)
        async def note(event: Placed) -> None:
            await seen.add(event.number)

        with closing(sqlite3.connect(path)) as connection, connection:
            for number in range(20):
                await bus.publish_within(connection, Placed(number), key="k")
        async with bus:
            await seen.wait(20, WAIT_S)
            with closing(sqlite3.connect(path)) as connection, connection:
                SyncBus(bus).publish_within(connection, Placed(20), key="k")
            await seen.wait(21, WAIT_S)
        assert await outbox.read(0, 10) == []
    assert sorted(seen.all) == list(range(21))


@pytest.mark.filterwarnings("error")
async def test_a_sync_bus_says_which_outbox_it_needs() -> None:
    bus = SyncBus(writer(PostgresOutbox(None)))  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="use a SqliteOutbox with a SyncBus"):
        bus.publish_within(None, Placed(1))  # type: ignore[arg-type]


async def test_a_bus_without_an_outbox_says_so() -> None:
    with pytest.raises(RuntimeError, match="outbox="):
        await Bus("amqp://nowhere/", fanout.layout("a-b")).publish_within(None, Placed(1))
    with pytest.raises(ValueError, match="not the name of a table"):
        SqliteOutbox(Path(":memory:"), table="a; DROP TABLE b")


async def test_the_fake_bus_publishes_at_once() -> None:
    bus = FakeBus(fanout.layout("shop-orders"))
    async with bus:
        await bus.publish_within(None, Placed(1), key="k")
        assert bus.published == [Placed(1)]
