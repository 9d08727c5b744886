"""Definitions: a command checks first and changes afterwards. A refused one changes nothing."""

import itertools
from collections.abc import Callable

import pytest

from leveret.engine.broker import Broker
from leveret.engine.streams.stream import Stream
from leveret.engine.target import Target
from leveret.engine.turns.session import Outlet
from leveret.engine.vhosts.queue_creation import PARKED, ensure_parked_queue
from leveret.engine.vhosts.vhost import Vhost
from leveret.errors import (
    AccessRefusedError,
    EngineError,
    NotFoundError,
    PreconditionFailedError,
    ResourceLockedError,
)
from leveret.wire.tables import Table, table_of


@pytest.fixture
def vhost() -> Vhost:
    return Broker(1).vhost("/")


def state(vhost: Vhost) -> object:
    """Return everything that a definition could change."""
    exchanges = {
        name: (found.kind, sorted(map(str, found.bindings)))
        for name, found in vhost.exchanges.items()
    }
    return (vhost.version, exchanges, sorted(vhost.queues), len(vhost.slots.queues))


def declare(vhost: Vhost, name: str, arguments: Table | None = None, **flags: object) -> None:
    owner = flags.get("owner")
    user = flags.get("user", owner)
    assert owner is None or isinstance(owner, Outlet)
    assert user is None or isinstance(user, Outlet)
    vhost.declare_queue(
        name, durable=bool(flags.get("durable")), owner=owner, user=user, arguments=arguments or {}
    )


def exchange(vhost: Vhost, name: str, kind: str) -> None:
    vhost.declare_exchange(name, kind, durable=False, arguments={})


def test_the_exchanges_of_every_vhost_are_there(vhost: Vhost) -> None:
    assert vhost.exchanges.pop("amq.rabbitmq.event").internal  # of the first vhost alone
    assert sorted(vhost.exchanges) == [
        "",
        "amq.direct",
        "amq.fanout",
        "amq.headers",
        "amq.match",
        "amq.rabbitmq.trace",
        "amq.topic",
    ]


def test_declaring_again_gives_the_same_queue(vhost: Vhost) -> None:
    arguments = table_of({"x-max-length": 5})
    first = vhost.declare_queue("q", durable=True, arguments=arguments)
    before = state(vhost)
    assert vhost.declare_queue("q", durable=True, arguments=arguments) is first
    assert state(vhost) == before


def test_refused_definitions_change_nothing(vhost: Vhost) -> None:
    mine, others = Outlet(), Outlet()
    declare(vhost, "q")
    declare(vhost, "mine", owner=mine)
    vhost.declare_exchange("e", "direct", durable=False, arguments={})
    vhost.bind("e", vhost.queues["q"], "k", {})
    queue = vhost.queues["q"]
    bad, odd = table_of({"x-max-length": -1}), table_of({"x-match": "odd"})
    before = state(vhost)
    refused: list[tuple[Callable[[], object], type[EngineError]]] = [
        (lambda: declare(vhost, "q", durable=True), PreconditionFailedError),
        (lambda: declare(vhost, "new", bad), PreconditionFailedError),
        (lambda: declare(vhost, "mine", owner=others), ResourceLockedError),
        (lambda: declare(vhost, "q", owner=mine), ResourceLockedError),
        (lambda: vhost.queue("mine", others), ResourceLockedError),
        (lambda: vhost.queue("none", mine), NotFoundError),
        (lambda: exchange(vhost, "e", "fanout"), PreconditionFailedError),
        (lambda: exchange(vhost, "f", "odd"), PreconditionFailedError),
        (lambda: exchange(vhost, "amq.x", "topic"), AccessRefusedError),
        (lambda: exchange(vhost, "", "direct"), AccessRefusedError),
        (lambda: vhost.delete_exchange("amq.topic"), AccessRefusedError),
        (lambda: vhost.delete_exchange("e", if_unused=True), PreconditionFailedError),
        (lambda: vhost.bind("none", queue, "", {}), NotFoundError),
        (lambda: vhost.bind("amq.headers", queue, "", odd), PreconditionFailedError),
        (lambda: vhost.delete_queue("mine", user=others), ResourceLockedError),
    ]
    for command, kind in refused:
        with pytest.raises(EngineError) as failure:
            command()
        assert type(failure.value) is kind
        assert state(vhost) == before


def test_deleting_what_does_not_exist_is_no_error(vhost: Vhost) -> None:
    before = state(vhost)
    assert vhost.delete_queue("none", if_unused=True, if_empty=True) == 0
    vhost.delete_exchange("none", if_unused=True)
    declare(vhost, "q")
    vhost.unbind("amq.direct", vhost.queues["q"], "never", {})
    vhost.delete_queue("q")
    assert state(vhost) != before  # the version has moved on
    assert sorted(vhost.queues) == []


def test_a_queue_takes_its_bindings_with_it_and_they_their_auto_delete_exchanges(
    vhost: Vhost,
) -> None:
    vhost.declare_exchange("first", "fanout", durable=False, auto_delete=True, arguments={})
    vhost.declare_exchange("second", "fanout", durable=False, auto_delete=True, arguments={})
    declare(vhost, "q")
    vhost.bind("first", vhost.exchanges["second"], "", {})
    vhost.bind("second", vhost.queues["q"], "", {})
    vhost.delete_queue("q")
    assert "second" not in vhost.exchanges
    assert "first" not in vhost.exchanges
    assert vhost.sources == {}


def test_a_long_chain_of_auto_delete_exchanges_is_deleted_with_its_queue(vhost: Vhost) -> None:
    """A recursion would end the process: any user who may declare exchanges could do that."""
    count = 20_000
    declare(vhost, "q")
    target: Target = vhost.queues["q"]
    for number in range(count):
        name = f"x{number}"
        vhost.declare_exchange(name, "fanout", durable=False, auto_delete=True, arguments={})
        vhost.bind(name, target, "", {})
        target = vhost.exchanges[name]
    vhost.delete_queue("q")
    assert not [name for name in vhost.exchanges if name.startswith("x")]
    assert vhost.sources == {}
    assert vhost.binding_count == 0


def test_a_ring_of_auto_delete_exchanges_is_deleted_whole(vhost: Vhost) -> None:
    for name in ("first", "second"):
        vhost.declare_exchange(name, "fanout", durable=False, auto_delete=True, arguments={})
    vhost.bind("first", vhost.exchanges["second"], "", {})
    vhost.bind("second", vhost.exchanges["first"], "", {})
    vhost.bind("first", vhost.exchanges["first"], "", {})
    vhost.delete_exchange("first")
    assert "second" not in vhost.exchanges
    assert vhost.sources == {}
    assert vhost.binding_count == 0


def test_binding_twice_is_one_binding(vhost: Vhost) -> None:
    declare(vhost, "q")
    vhost.bind("amq.direct", vhost.queues["q"], "k", {})
    before = state(vhost)
    vhost.bind("amq.direct", vhost.queues["q"], "k", {})
    assert state(vhost) == before
    vhost.unbind("amq.direct", vhost.queues["q"], "k", {})
    assert not vhost.exchanges["amq.direct"].bindings


def test_an_exclusive_queue_belongs_to_its_connection_and_is_never_durable(vhost: Vhost) -> None:
    owner = Outlet()
    declare(vhost, "q", owner=owner, durable=True)
    assert not vhost.queues["q"].durable
    assert list(owner.exclusive_queues) == ["q"]
    vhost.delete_queue("q", user=owner)
    assert not owner.exclusive_queues


def test_the_queue_for_parked_messages_is_made_when_first_needed(vhost: Vhost) -> None:
    assert PARKED not in vhost.queues
    parked = ensure_parked_queue(vhost)
    assert ensure_parked_queue(vhost) is parked
    assert vhost.queues[PARKED].durable


def test_line_breaks_in_names_are_left_out(vhost: Vhost) -> None:
    declare(vhost, "a\r\nb")
    assert list(vhost.queues) == ["ab"]


def test_a_stream_is_no_ordinary_queue(vhost: Vhost) -> None:
    declare(vhost, "s", table_of({"x-queue-type": "stream"}), durable=True)
    assert isinstance(vhost.queues["s"], Stream)


def test_exchanges_and_bindings_of_a_vhost_are_limited(vhost: Vhost) -> None:
    declare(vhost, "q")
    queue = vhost.queues["q"]
    for name in ("a", "b"):
        vhost.declare_exchange(name, "direct", durable=False, arguments={})
    vhost.exchanges_max = len(vhost.exchanges)
    with pytest.raises(PreconditionFailedError, match="exchange limit in vhost '/'"):
        vhost.declare_exchange("c", "direct", durable=False, arguments={})
    vhost.declare_exchange("a", "direct", durable=False, arguments={})
    vhost.bindings_max = 2
    vhost.bind("a", queue, "1", {})
    vhost.bind("b", vhost.exchanges["a"], "2", {})
    before = state(vhost)
    with pytest.raises(PreconditionFailedError, match="binding limit in vhost '/'"):
        vhost.bind("a", queue, "3", {})
    vhost.bind("a", queue, "1", {})
    assert state(vhost) == before


def test_bytes_of_all_definitions_of_a_vhost_are_limited(vhost: Vhost) -> None:
    """Objects with large arguments must not fill the memory, or each log file of a cluster."""
    declare(vhost, "q")
    vhost.declare_exchange("x", "direct", durable=False, arguments={})
    queue = vhost.queues["q"]
    vhost.bind("x", queue, "key", {})
    vhost.definition_bytes_max = vhost.definition_bytes + 1
    vhost.bind("x", queue, "", table_of({"large": "a" * 10_000}))
    before = state(vhost)
    with pytest.raises(PreconditionFailedError, match=r"cannot bind 'q' .* vhost '/' have"):
        vhost.bind("x", queue, "other", {})
    with pytest.raises(PreconditionFailedError, match="cannot declare queue 'new': the def"):
        declare(vhost, "new")
    with pytest.raises(PreconditionFailedError, match=r"exchange 'new': .*`definitions_bytes_max`"):
        vhost.declare_exchange("new", "direct", durable=False, arguments={})
    vhost.bind("x", queue, "key", {})
    declare(vhost, "q")
    assert state(vhost) == before
    vhost.unbind("x", queue, "", table_of({"large": "a" * 10_000}))
    declare(vhost, "new")


def test_whole_records_of_definitions_are_counted(vhost: Vhost) -> None:
    """Hundreds of thousands of objects with short names must not count next to nothing."""
    sizes = [vhost.definition_bytes]
    declare(vhost, "q")
    sizes.append(vhost.definition_bytes)
    vhost.declare_exchange("x", "direct", durable=False, arguments={})
    sizes.append(vhost.definition_bytes)
    vhost.bind("x", vhost.queues["q"], "k", {})
    sizes.append(vhost.definition_bytes)
    later = table_of({"x-delayed-type": "direct"})
    vhost.declare_exchange("later", "x-delayed-message", durable=False, arguments=later)
    sizes.append(vhost.definition_bytes)
    queue, exchange, binding, delayed = (b - a for a, b in itertools.pairwise(sizes))
    assert (queue, exchange, binding) == (256 + 1, 100 + 1, 100 + 3)
    assert delayed > 256 + 100, "a delayed exchange has a queue of its own"


@pytest.mark.parametrize("kind", ["topic", "x-delayed-message"])
def test_words_of_patterns_count_as_definitions(vhost: Vhost, kind: str) -> None:
    """A short pattern of many words takes much memory."""
    arguments = table_of({"x-delayed-type": "topic"} if kind != "topic" else {})
    vhost.declare_exchange("x", kind, durable=False, arguments=arguments)
    declare(vhost, "q")
    before = vhost.definition_bytes
    vhost.bind("x", vhost.queues["q"], "a." * 100, {})
    assert vhost.definition_bytes - before > 100 * 64
    shared = vhost.definition_bytes
    vhost.bind("x", vhost.queues["q"], "a." * 100 + "b", {})
    assert vhost.definition_bytes - shared < 1_000, "it has its nodes from the first pattern"
    vhost.unbind("x", vhost.queues["q"], "a." * 100, {})
    vhost.unbind("x", vhost.queues["q"], "a." * 100 + "b", {})
    assert vhost.definition_bytes == before


@pytest.mark.parametrize(("match", "least"), [("any", 50 * 192), ("all", 50 * 64)])
def test_headers_of_patterns_count_as_definitions(vhost: Vhost, match: str, least: int) -> None:
    vhost.declare_exchange("x", "headers", durable=False, arguments={})
    declare(vhost, "q")
    before = vhost.definition_bytes
    arguments = table_of({"x-match": match} | {f"h{number}": True for number in range(50)})
    vhost.bind("x", vhost.queues["q"], "", arguments)
    assert vhost.definition_bytes - before > least
    vhost.delete_queue("q")
    vhost.delete_exchange("x")
    assert vhost.definition_bytes == 0


def test_bytes_of_definitions_are_given_back_with_the_objects(vhost: Vhost) -> None:
    empty = vhost.definition_bytes
    for name in ("a", "b"):
        vhost.declare_exchange(name, "topic", durable=False, arguments=table_of({"x": "y"}))
        declare(vhost, f"q{name}", table_of({"z": "y"}))
    for source in ("a", "b"):
        for queue in list(vhost.queues.values()):
            vhost.bind(source, queue, "ü.#", table_of({"n": 1}))
            vhost.bind(source, queue, "k", {})
    vhost.bind("a", vhost.exchanges["b"], "", {})
    vhost.unbind("a", vhost.queues["qa"], "k", {})
    vhost.unbind("a", vhost.queues["qa"], "k", {})
    vhost.delete_queue("qa")
    vhost.delete_exchange("b")
    vhost.delete_queue("qb")
    assert vhost.definition_bytes > empty
    vhost.delete_exchange("a")
    assert vhost.definition_bytes == empty


def test_bindings_are_counted_while_they_exist(vhost: Vhost) -> None:
    declare(vhost, "q")
    queue = vhost.queues["q"]
    for name in ("a", "b", "c"):
        vhost.declare_exchange(name, "direct", durable=False, arguments={})
        for key in ("1", "2", "2"):
            vhost.bind(name, queue, key, {})
    vhost.bind("a", vhost.exchanges["c"], "", {})
    assert vhost.binding_count == 7
    vhost.unbind("a", queue, "1", {})
    vhost.unbind("a", queue, "1", {})
    assert vhost.binding_count == 6
    vhost.delete_exchange("c")
    assert vhost.binding_count == 3
    vhost.delete_queue("q")
    assert vhost.binding_count == 0
