"""Make exchanges, bindings and messages for the tests of exchanges."""

from leveret.engine.exchanges.binding import Binding
from leveret.engine.exchanges.exchange import Exchange, Headers
from leveret.engine.exchanges.registry import make_exchange
from leveret.engine.target import Target
from leveret.wire.properties import Properties, encode_header, parse_traits
from leveret.wire.tables import table_of

Arguments = dict[str, object]


def exchange(kind: str, arguments: Arguments | None = None, name: str = "x") -> Exchange:
    return make_exchange(kind, name, False, False, False, table_of(arguments or {}), None)


def binding(
    source: Exchange, target: Target, key: str = "", arguments: Arguments | None = None
) -> Binding:
    is_queue = not isinstance(target, Exchange)
    return Binding(source.name, target, is_queue, key, table_of(arguments or {}))


def bind(
    source: Exchange, target: Target, key: str = "", arguments: Arguments | None = None
) -> bool:
    """Bind as the vhost does: check, then add."""
    new = binding(source, target, key, arguments)
    source.check_binding(key, new.arguments)
    return source.add(new)


def unbind(
    source: Exchange, target: Target, key: str = "", arguments: Arguments | None = None
) -> bool:
    return source.remove(target, key, table_of(arguments or {}))


def queues(count: int) -> list[Target]:
    return [Target(f"q{number}") for number in range(count)]


def message(headers: Arguments | None = None, properties: Properties | None = None) -> Headers:
    """Return the headers of a message, from a content header as a client would send it."""
    if properties is None:
        properties = Properties()
    if headers is not None:
        properties.headers = table_of(headers)
    payload = encode_header(properties, 0)
    traits = parse_traits(payload)
    return Headers(payload, traits.headers_at, traits.headers_end)


def matched(source: Exchange, key: str = "", headers: Arguments | None = None) -> list[str]:
    """Return the names of the targets that match, sorted, with repetitions."""
    found: list[Target] = []
    source.match(key, message(headers), found)
    return sorted([target.name for target in found])
