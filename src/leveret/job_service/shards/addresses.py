"""Check the addresses of Redis and PostgreSQL before they are used."""

import os
from typing import Final
from urllib.parse import SplitResult, parse_qs, urlsplit

from leveret.errors import ConfigError

_REDIS: Final = ("redis", "rediss", "unix")
_POSTGRES: Final = ("postgresql", "postgres")
_FILES: Final = ("ssl_ca_certs", "ssl_certfile", "ssl_keyfile")
_HIDDEN: Final = "…"
_ESCAPES: Final = "in a user name or password, write @ as %40, / as %2F, # as %23 and ? as %3F"
SENTINEL: Final = "Redis Sentinel is not supported: give the address of one Redis server"
CLUSTER: Final = "Redis Cluster is not supported: give the address of one Redis server"


def check_addresses(redis_url: str, dsns: list[str]) -> None:
    """Raise ConfigError if an address is malformed, or of a kind that is not supported."""
    scheme = redis_url.partition(":")[0].lower()
    if "sentinel" in scheme:
        raise ConfigError(f"jobs_redis: {SENTINEL}")
    if "cluster" in scheme or "," in redis_url.partition("?")[0].rpartition("@")[2]:
        raise ConfigError(f"jobs_redis: {CLUSTER}")
    parts = _split("jobs_redis", redis_url)
    _require("jobs_redis", redis_url, parts, _REDIS, "redis://localhost:6379/0")
    database = parts.path.strip("/")
    if parts.scheme != "unix" and database and not database.isdecimal():
        raise ConfigError(f"jobs_redis: {database} is not the number of a database")
    _require_files(parts)
    for dsn in dsns:
        if dsn.count("://") > 1:
            raise ConfigError(
                "jobs_postgres: addresses are separated by spaces, or given by an option each"
            )
        parts = _split("jobs_postgres", dsn)
        if parts.netloc.count("@") > 1:
            raise ConfigError(f"jobs_postgres: {_ESCAPES}")
        _require("jobs_postgres", dsn, parts, _POSTGRES, "postgresql://jobs@localhost/jobs")


def _split(option: str, address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError:  # its text may quote a part of the password
        raise ConfigError(
            f"{option}: the address {_shown(address)} cannot be read: its port is not a number up"
            f" to 65535, or a bracket is missing; {_ESCAPES}"
        ) from None
    return parts


def _require_files(parts: SplitResult) -> None:
    """Raise ConfigError with the name of a missing file, which the errors of TLS do not tell."""
    for name, values in parse_qs(parts.query).items():
        if name in _FILES and not os.path.isfile(values[-1]):
            raise ConfigError(f"jobs_redis: {name}: there is no file {values[-1]}")


def _require(
    option: str, address: str, parts: SplitResult, schemes: tuple[str, ...], example: str
) -> None:
    """Raise ConfigError with an example."""
    if parts.scheme not in schemes:
        raise ConfigError(
            f"{option}: an address begins with {' or '.join(f'{s}://' for s in schemes)},"
            f" as in {example}, but not with {_shown(address)}"
        )


def _shown(address: str) -> str:
    """Return scheme, host and port of an address that may be malformed, without a password.

    A part that may belong to a password is shown as `…`.
    """
    scheme, is_url, rest = address.partition("://")
    before_query = rest.partition("?")[0]
    if not is_url or not scheme.isalnum() or before_query.count("@") < rest.count("@"):
        return _HIDDEN
    place = before_query.rpartition("@")[2].partition("/")[0].partition("#")[0]
    host, colon, port = place.partition(":")
    return f"{scheme}://{host}{colon}{port if port.isdecimal() else colon and _HIDDEN}"
