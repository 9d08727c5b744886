"""Wrong use of the API raises at once and names the mistake, if possible without a broker."""

from __future__ import annotations

import asyncio
import math
import subprocess
import sys
from dataclasses import dataclass
from typing import Any

import msgspec
import pydantic
import pytest

from leveret.bus import (
    Bus,
    BusSettings,
    Delivery,
    EncodeError,
    HandlerResult,
    Next,
    NotConnectedError,
    PublishClosedError,
    RetryPolicy,
    codec,
    fanout,
    topic,
)
from leveret.bus.testing.fake_bus import FakeBus
from leveret.errors import ConfigError
from tests.bus.stage import Placed

pytestmark = [
    pytest.mark.anyio,
    pytest.mark.compiled_only("the library is the same in both forms"),
]
LAYOUT = fanout.layout("wrong-use")


class Aliased(pydantic.BaseModel):
    """An event whose field has another name on the wire."""

    number: int = pydantic.Field(alias="orderNumber")


class Renamed(msgspec.Struct, rename="camel"):
    """The same with msgspec."""

    order_number: int


def untyped(bus: Bus) -> Any:
    """Hide the types, like a program without a type checker."""
    return bus


def test_a_decorator_without_its_class_is_refused() -> None:
    def handler(event: Placed) -> None: ...

    with pytest.raises(TypeError, match="not an event class"):
        untyped(FakeBus(LAYOUT)).on(handler)


@pytest.mark.parametrize("kind", [dict, str, object, tuple, Bus])
def test_class_that_cannot_be_decoded_is_refused(kind: type) -> None:
    with pytest.raises(TypeError, match="not an event class: use a dataclass"):
        FakeBus(LAYOUT).on(kind)


def test_a_handler_that_cannot_be_called_is_refused() -> None:
    bus = untyped(FakeBus(LAYOUT))
    for handler in (lambda: None, lambda one, two, three: None, lambda one, *, more: None):
        with pytest.raises(TypeError, match="cannot be called with the event"):
            bus.on(Placed)(handler)
    with pytest.raises(TypeError, match="cannot be called"):
        bus.on_message()(lambda: None)


async def test_decorator_returns_the_handler_unchanged() -> None:
    """A test can call the handlers, and a type checker knows their arguments."""
    bus = FakeBus(LAYOUT)

    @bus.on(Placed)
    async def double(event: Placed) -> int:
        return 200 + event.number

    @bus.on_message()
    def other(delivery: Delivery) -> int:
        return len(delivery.body)

    assert await double(Placed(2)) == 202
    assert other(Delivery("queue", b"12", "id")) == 2


def test_settings_say_what_is_wrong() -> None:
    with pytest.raises(ValueError, match="concurrency must be 1 or more, not 0"):
        BusSettings(concurrency=0)
    with pytest.raises(ValueError, match="probe_interval_s"):
        BusSettings(probe_interval_s=0.0)
    with pytest.raises(ValueError, match="concurrency must be at most 32767"):
        BusSettings(concurrency=70_000)
    with pytest.raises(ValueError, match=r"not 0\.0"):
        RetryPolicy.exponential(3, first_s=0.0, last_s=1.0)  # would double for ever
    BusSettings(heartbeat_s=0, stop_deadline_s=0.0)


@pytest.mark.parametrize(
    "url", ["", "localhost:5672", "http://localhost/", "amqp://", "amqp://me:secret/x@host/"]
)
def test_wrong_address_is_refused_without_its_password(url: str) -> None:
    with pytest.raises(ConfigError, match=r"amqp://user:password@host") as refused:
        Bus(url, LAYOUT)
    assert "secret" not in str(refused.value)


def test_routing_keys_as_a_str_are_refused() -> None:
    keys: Any = "order.*"
    with pytest.raises(TypeError, match=r"\('order\.\*',\)"):
        topic.layout("billing", exchange="events", routing_keys=keys)


def test_import_without_aio_pika_says_what_to_install() -> None:
    program = "import sys; sys.modules['aio_pika'] = None; import leveret.bus"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, timeout=60
    )
    assert done.returncode == 1
    assert done.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: the event bus needs aio-pika: pip install leveret-bus, "
        'or "leveret[bus]"'
    )


@pytest.mark.parametrize("value", [None, True, 5, "text", b"bytes"])
async def test_a_bare_value_is_no_event(value: object) -> None:
    async with FakeBus(LAYOUT) as bus:
        with pytest.raises(EncodeError, match="is not an event class"):
            await bus.publish(value)
        assert bus.published == []


@pytest.mark.parametrize("delay_s", [-0.001, 1_000_001.0, math.inf, math.nan])
async def test_delay_that_the_header_cannot_carry_is_refused(delay_s: float) -> None:
    async with FakeBus(LAYOUT) as bus:
        with pytest.raises(ValueError, match="delay_s must be from 0 to 1000000 seconds"):
            await bus.publish(Placed(1), delay_s=delay_s)


async def test_delay_is_whole_milliseconds_in_the_header() -> None:
    seen: list[object] = []
    bus = FakeBus(LAYOUT)

    @bus.on(Placed)
    async def note(event: Placed, delivery: Delivery) -> None:
        seen.append(delivery.headers["processAfterDelayMs"])

    async with bus:
        await bus.publish(Placed(1), delay_s=1.5)
        await bus.hub.advance(1.5)
    assert seen == [1_500]


@pytest.mark.parametrize("event", [Aliased(orderNumber=7), Renamed(7)])
def test_other_names_on_the_wire_go_both_ways(event: object) -> None:
    assert codec.encode(event) == b'{"orderNumber":7}'
    assert codec.decode(codec.encode(event), type(event)) == event


async def test_the_double_is_as_strict_as_the_bus() -> None:
    bus = FakeBus(LAYOUT)
    with pytest.raises(NotConnectedError, match="not started"):
        await bus.publish(Placed(1))
    seen: list[str] = []

    @bus.on(Placed)
    async def note(event: Placed, delivery: Delivery) -> None:
        seen.append(delivery.correlation_id)

    async with bus:
        with pytest.raises(RuntimeError, match="already started"):
            await bus.start()
        with pytest.raises(RuntimeError, match="already started"):
            bus.on_message()(lambda delivery: None)
        await bus.publish(Placed(1), correlation_id="seven")
    with pytest.raises(PublishClosedError):
        await bus.publish(Placed(2))
    with pytest.raises(PublishClosedError):
        await bus.send(Placed(2))
    async with bus:
        await bus.publish(Placed(3))
    assert seen == ["seven", ""]


@dataclass
class Fault:
    """A handler that misbehaves."""

    kind: str


def _misbehave(event: Fault) -> Any:
    if event.kind == "exit":
        sys.exit(3)
    if event.kind == "exhausted":
        return next(iter(()))
    if event.kind == "cancelled":
        raise asyncio.CancelledError
    return {"true": True, "text": "ok", "count": 3}[event.kind]


@pytest.mark.parametrize("kind", ["exit", "exhausted", "cancelled", "true", "text", "count"])
@pytest.mark.parametrize("is_plain", [True, False])
async def test_whatever_a_handler_does_is_its_failure(kind: str, is_plain: bool) -> None:
    """The message is retried and becomes a dead letter; the bus goes on."""
    bus = FakeBus(topic.layout("wrong", retries_max=1, retry_delay_s=0.01))

    async def awaited(event: Fault) -> Any:
        return _misbehave(event)

    bus.on(Fault)(_misbehave if is_plain else awaited)

    async with bus:
        async with asyncio.timeout(60):
            await bus.publish(Fault(kind))
            await bus.hub.advance(0.01)
        (dead,) = bus.dead_letters
        assert dead.headers["x-final-retry-count"] == 1
        error = dead.headers["x-final-error"]
        if kind in ("true", "text", "count"):
            assert error.startswith("TypeError: a handler returns None, an HTTP status")
        await bus.publish(Fault("exit"))
        assert len(bus.handled) == 3


async def test_a_middleware_that_forgets_its_outcome_is_a_failure() -> None:
    async def forgetful(delivery: Delivery, call: Next) -> HandlerResult:
        await call(delivery)
        nothing: Any = None
        return nothing  # type: ignore[no-any-return]

    bus = FakeBus(topic.layout("wrong", retries_max=0), middleware=[forgetful])

    @bus.on(Placed)
    async def succeed(event: Placed) -> None: ...

    async with bus:
        await bus.publish(Placed(1))
    assert (
        "returned None instead of a HandlerResult" in bus.dead_letters[0].headers["x-final-error"]
    )


@pytest.mark.parametrize("event", [{"number": 1}, [1], (1,), {1}])
async def test_container_is_no_event(event: object) -> None:
    """Its type would be `dict` or `list`, which every service of a fanout would ack as unknown."""
    async with FakeBus(LAYOUT) as bus:
        with pytest.raises(EncodeError, match="is not an event class"):
            await bus.publish(event)
