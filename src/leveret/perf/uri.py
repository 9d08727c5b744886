"""AMQP URIs, as RabbitMQ's clients write them: amqp://user:password@host:port/vhost."""

from dataclasses import replace
from urllib.parse import unquote, urlsplit

from leveret.errors import ConfigError
from leveret.perf.load import Load

_PORTS = {"amqp": 5672, "amqps": 5671}


def with_uri(load: Load, uri: str) -> Load:
    """Return the load with the broker at `uri`. Raise ConfigError if it is not an AMQP URI.

    A single slash at the end means the vhost `/`, as in most clients.
    """
    parts = urlsplit(uri)
    if parts.scheme not in _PORTS:
        raise ConfigError(f"'{uri}' does not begin with amqp:// or amqps://")
    try:
        port = parts.port or _PORTS[parts.scheme]
    except ValueError as fault:
        raise ConfigError(f"'{uri}': {fault}") from fault
    return replace(
        load,
        host=parts.hostname or load.host,
        port=port,
        user=unquote(parts.username) if parts.username is not None else load.user,
        password=unquote(parts.password) if parts.password is not None else load.password,
        vhost=unquote(parts.path[1:]) if len(parts.path) > 1 else load.vhost,
        tls=parts.scheme == "amqps",
    )
