"""Routing: from exchange to exchange, alternates, one copy for each queue."""

import random

import pytest

from leveret.engine.exchanges.exchange import Exchange, Headers
from leveret.engine.exchanges.random_choice import RandomExchange
from leveret.engine.exchanges.registry import make_exchange, predeclared
from leveret.engine.exchanges.router import Router
from leveret.engine.target import Target
from leveret.errors import FieldSyntaxError
from leveret.wire.tables import table_of
from tests.unit.engine.exchanges.stage import Arguments, bind, message

PLAIN = Headers(b"", 0, 0)


class Scene:
    """The exchanges and queues of a vhost, for routing."""

    def __init__(self) -> None:
        self.queues: dict[str, Target] = {}
        self.exchanges: dict[str, Exchange] = {x.name: x for x in predeclared(self.queues)}
        self.router = Router(self.exchanges)

    def exchange(
        self,
        name: str,
        kind: str = "direct",
        alternate: str | None = None,
        arguments: Arguments | None = None,
    ) -> Exchange:
        table = table_of(arguments or {})
        made = make_exchange(kind, name, False, False, False, table, alternate)
        self.exchanges[name] = made
        return made

    def queue(self, name: str) -> Target:
        return self.queues.setdefault(name, Target(name))

    def route(self, exchange: Exchange, *keys: str, headers: Headers = PLAIN) -> list[str]:
        found: list[Target] = []
        routed = self.router.route(exchange, list(keys), headers, found)
        assert routed == (len(found) > 0 or len(self.router.held) > 0)
        names = [target.name for target in found]
        assert len(set(names)) == len(names), "a queue got two copies"
        return sorted(names)


def test_message_goes_to_the_queues_of_matching_bindings() -> None:
    scene = Scene()
    exchange = scene.exchange("x")
    bind(exchange, scene.queue("a"), "k")
    bind(exchange, scene.queue("b"), "other")
    assert scene.route(exchange, "k") == ["a"]
    assert scene.route(exchange, "nowhere") == []


def test_queues_are_appended_to_earlier_results() -> None:
    scene = Scene()
    found = [Target("before")]
    assert not scene.router.route(scene.exchange("x"), ["k"], PLAIN, found)
    assert [target.name for target in found] == ["before"]


def test_queue_gets_one_copy_however_many_bindings_match() -> None:
    scene = Scene()
    exchange = scene.exchange("x", "topic")
    for pattern in ("#", "a.*", "a.b", "*.b"):
        bind(exchange, scene.queue("q"), pattern)
    assert scene.route(exchange, "a.b") == ["q"]
    assert scene.route(exchange, "a.b") == ["q"]


def test_queue_gets_one_copy_however_many_ways_lead_to_it() -> None:
    scene = Scene()
    first = scene.exchange("first", "fanout")
    for name in ("left", "right"):
        between = scene.exchange(name, "fanout")
        bind(first, between)
        bind(between, scene.queue("q"))
        bind(between, scene.queue(name))
    assert scene.route(first, "k") == ["left", "q", "right"]


def test_each_key_of_cc_and_bcc_is_routed() -> None:
    scene = Scene()
    for name in ("a", "b", "c"):
        scene.queue(name)
    assert scene.route(scene.exchanges[""], "a", "b", "nowhere", "a") == ["a", "b"]
    topic = scene.exchange("t", "topic")
    bind(topic, scene.queue("c"), "*.c")
    bind(topic, scene.queue("a"), "#")
    assert scene.route(topic, "x", "y.c") == ["a", "c"]


@pytest.mark.parametrize("kind", ["x-consistent-hash", "x-modulus-hash", "x-random"])
def test_exchange_that_picks_one_queue_picks_one_for_all_keys(kind: str) -> None:
    scene = Scene()
    exchange = scene.exchange("x", kind)
    for number in range(10):
        bind(exchange, scene.queue(f"q{number}"), "1")
    keys = [f"k{number}" for number in range(20)]
    assert len(scene.route(exchange, *keys)) == 1


def test_exchanges_that_lead_in_a_circle_end() -> None:
    scene = Scene()
    ring = [scene.exchange(f"x{number}", "fanout") for number in range(5)]
    for number, exchange in enumerate(ring):
        bind(exchange, ring[(number + 1) % 5])
        bind(exchange, exchange)
        bind(exchange, scene.queue(f"q{number}"))
    for exchange in ring:
        assert scene.route(exchange, "k") == ["q0", "q1", "q2", "q3", "q4"]


def test_no_exchange_is_visited_twice_not_even_the_first() -> None:
    scene = Scene()
    first = RandomExchange("first", "x-random", 1)
    second = scene.exchange("second", "fanout")
    bind(first, second)
    bind(second, first)
    scene.route(first, "k")
    assert first.drawn == 1


def test_key_is_matched_by_every_exchange_on_the_way() -> None:
    scene = Scene()
    first = scene.exchange("first", "topic")
    second = scene.exchange("second", "direct")
    bind(first, second, "a.#")
    bind(second, scene.queue("q"), "a.b")
    assert scene.route(first, "a.b") == ["q"]
    assert scene.route(first, "a.c") == []


def test_alternate_takes_unmatched_messages_and_counts_as_routed() -> None:
    scene = Scene()
    primary = scene.exchange("primary", alternate="spare")
    spare = scene.exchange("spare", "fanout")
    bind(primary, scene.queue("a"), "k")
    bind(spare, scene.queue("b"))
    assert scene.route(primary, "k") == ["a"]
    assert scene.route(primary, "nowhere") == ["b"]
    assert scene.router.route(primary, ["nowhere"], PLAIN, [])


def test_alternate_is_not_visited_if_one_of_the_keys_matches() -> None:
    scene = Scene()
    primary = scene.exchange("primary", alternate="spare")
    bind(scene.exchange("spare", "fanout"), scene.queue("spare"))
    bind(primary, scene.queue("a"), "k")
    assert scene.route(primary, "nowhere", "k") == ["a"]


def test_alternates_are_chained() -> None:
    scene = Scene()
    first = scene.exchange("first", alternate="second")
    scene.exchange("second", alternate="third")
    bind(scene.exchange("third", "fanout"), scene.queue("q"))
    assert scene.route(first, "k") == ["q"]


def test_alternates_in_a_circle_end() -> None:
    scene = Scene()
    first = scene.exchange("first", alternate="second")
    second = scene.exchange("second", alternate="first")
    itself = scene.exchange("itself", alternate="itself")
    assert scene.route(first, "k") == []
    assert scene.route(second, "k") == []
    assert scene.route(itself, "k") == []
    bind(second, scene.queue("q"), "k")
    assert scene.route(first, "k") == ["q"]


def test_missing_alternate_leads_nowhere() -> None:
    scene = Scene()
    assert scene.route(scene.exchange("x", alternate="missing"), "k") == []


def test_default_exchange_as_alternate_leads_nowhere() -> None:
    """RabbitMQ 3.10.8 answers the same."""
    scene = Scene()
    scene.queue("k")
    assert scene.route(scene.exchange("x", alternate=""), "k") == []


def test_binding_to_an_exchange_that_leads_nowhere_is_a_match() -> None:
    """RabbitMQ 3.10.8: the alternate is not visited, and the message is unroutable."""
    scene = Scene()
    primary = scene.exchange("primary", alternate="spare")
    bind(scene.exchange("spare", "fanout"), scene.queue("spare"))
    bind(primary, scene.exchange("empty"), "k")
    assert scene.route(primary, "k") == []


def test_exchange_on_the_way_has_its_own_alternate() -> None:
    scene = Scene()
    primary = scene.exchange("primary")
    bind(scene.exchange("spare", "fanout"), scene.queue("spare"))
    bind(primary, scene.exchange("empty", alternate="spare"), "k")
    assert scene.route(primary, "k") == ["spare"]


def test_route_can_be_cached_only_if_the_key_decides_at_every_exchange() -> None:
    scene = Scene()
    first = scene.exchange("first", "topic")
    bind(first, scene.queue("q"), "#")
    bind(first, scene.exchange("by headers", "headers"), "h.#")
    kept = []
    for key in ("k", "h", "k"):
        scene.route(first, key)
        kept.append(scene.router.key_only)
    assert kept == [True, False, True]


def test_route_through_a_random_alternate_cannot_be_cached() -> None:
    scene = Scene()
    first = scene.exchange("first", alternate="random")
    bind(scene.exchange("random", "x-random"), scene.queue("q"))
    scene.route(first, "k")
    assert not scene.router.key_only


def test_delayed_exchange_on_the_way_holds_the_message() -> None:
    scene = Scene()
    first = scene.exchange("first", "fanout")
    delayed = scene.exchange("delayed", "x-delayed-message", arguments={"x-delayed-type": "fanout"})
    bind(first, delayed)
    bind(first, scene.queue("now"))
    bind(delayed, scene.queue("later"))
    waiting = message({"x-delay": 1000})
    assert scene.route(first, "k", headers=waiting) == ["now"]
    assert [held.name for held in scene.router.held] == ["delayed"]
    assert not scene.router.key_only
    assert scene.route(delayed, "k", headers=waiting) == ["later"]
    assert scene.router.held == []
    assert scene.route(first, "k", headers=message({"x-delay": -1000})) == ["later", "now"]


def test_message_that_is_only_held_counts_as_routed() -> None:
    scene = Scene()
    first = scene.exchange("first", "fanout")
    bind(first, scene.exchange("d", "x-delayed-message", arguments={"x-delayed-type": "direct"}))
    assert scene.router.route(first, ["k"], message({"x-delay": 5}), [])


def test_headers_that_cannot_be_decoded_do_not_harm_the_next_routing() -> None:
    scene = Scene()
    first = scene.exchange("first", "fanout")
    for name in ("one", "two"):
        by_headers = scene.exchange(name, "headers")
        bind(first, by_headers)
        bind(by_headers, scene.queue("q"), "", {"a": 1})
        bind(by_headers, scene.queue("always"))
    with pytest.raises(FieldSyntaxError):
        scene.route(first, "k", headers=Headers(b"\x05a", 0, 2))
    assert scene.route(scene.exchange("empty"), "k") == []
    assert scene.route(first, "k", headers=message({"a": 1})) == ["always", "q"]


def test_routing_equals_a_plain_search_of_the_graph(seed: int) -> None:
    """Compare random exchanges, bindings and alternates with a search that uses a set."""
    rng = random.Random(seed)
    routed = 0
    for _ in range(60):
        scene = Scene()
        names = [f"x{number}" for number in range(rng.randrange(1, 9))]
        for name in names:
            alternate = rng.choice([*names, "missing", None, None])
            scene.exchange(name, rng.choice(["direct", "fanout", "topic"]), alternate)
        for _ in range(rng.randrange(25)):
            target: Target = scene.queue(f"q{rng.randrange(6)}")
            if rng.random() < 0.5:
                target = scene.exchanges[rng.choice(names)]
            bind(scene.exchanges[rng.choice(names)], target, rng.choice("abc"))
        for _ in range(20):
            start = scene.exchanges[rng.choice(names)]
            keys = rng.sample("abc", rng.randrange(1, 3))
            expected = search(scene, start, keys)
            assert scene.route(start, *keys) == expected, f"seed {seed}"
            routed += len(expected) > 0
    assert routed > 200, f"seed {seed}: hardly anything was routed"


def search(scene: Scene, start: Exchange, keys: list[str]) -> list[str]:
    seen = {start.name}
    waiting = [start]
    queues: set[str] = set()
    while waiting:
        exchange = waiting.pop(0)
        matching = [
            binding
            for binding in exchange.bindings.values()
            if exchange.kind == "fanout" or binding.routing_key in keys
        ]
        queues |= {binding.target.name for binding in matching if binding.is_queue}
        following = {binding.target.name for binding in matching if not binding.is_queue}
        if not matching and exchange.alternate in scene.exchanges:
            assert exchange.alternate is not None
            following = {exchange.alternate}
        waiting.extend(scene.exchanges[name] for name in sorted(following - seen))
        seen |= following
    return sorted(queues)
