"""Check the addresses of Redis and PostgreSQL before they are used."""

from typing import Final
from urllib.parse import SplitResult, urlsplit

from leveret.errors import ConfigError

_REDIS: Final = ("redis", "rediss", "unix")
_POSTGRES: Final = ("postgresql", "postgres")
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
    _require("jobs_redis", parts, _REDIS, "redis://localhost:6379/0")
    database = parts.path.strip("/")
    if parts.scheme != "unix" and database and not database.isdecimal():
        raise ConfigError(f"jobs_redis: {database} is not the number of a database")
    for dsn in dsns:
        parts = _split("jobs_postgres", dsn)
        _require("jobs_postgres", parts, _POSTGRES, "postgresql://jobs@localhost/jobs")


def _split(option: str, address: str) -> SplitResult:
    try:
        parts = urlsplit(address)
        _ = parts.port
    except ValueError as error:
        raise ConfigError(f"{option}: the address cannot be read: {error}") from None
    return parts


def _require(option: str, parts: SplitResult, schemes: tuple[str, ...], example: str) -> None:
    """Raise ConfigError with an example. The text omits the address, which may hold a password."""
    if parts.scheme not in schemes:
        raise ConfigError(
            f"{option}: an address begins with {' or '.join(f'{s}://' for s in schemes)},"
            f" as in {example}"
        )
