"""Opens connections to a PostgreSQL database, with the settings of their sessions."""

from typing import Any, Final
from urllib.parse import urlsplit

import asyncpg

from leveret.errors import ConfigError
from leveret.job_service.shards import keepalive

# A plan is made once for a connection, and must be good for a full table although it may be made
# while the table is empty: rows are found by an index, one by one.
SERVER_SETTINGS: Final = {
    "application_name": "leveret jobs",
    "enable_bitmapscan": "off",
    "enable_hashjoin": "off",
    "enable_mergejoin": "off",
    "enable_seqscan": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}
KEEPALIVE_S: Final = 60  # of silence, after which PostgreSQL asks whether a node is still there
KEEPALIVE_RETRY_S: Final = 10
KEEPALIVE_RETRIES: Final = 3


async def connect(dsn: str, name: str, deadline_s: float) -> Any:
    """Return a new connection; ConfigError if a pooler answers. `name` is the name of the shard."""
    try:
        connection: Any = await asyncpg.connect(
            dsn, server_settings=_session_settings(deadline_s), timeout=deadline_s
        )
    except asyncpg.ProtocolViolationError as error:
        if "startup parameter" in str(error):  # so PgBouncer refuses the settings
            raise pooler_error(name) from error
        raise
    keepalive.keep_alive(connection._transport)
    return connection


def pooler_error(name: str) -> ConfigError:
    return ConfigError(
        f"jobs_postgres: {name} drops the settings of a session, as poolers do;"
        " give the address of PostgreSQL itself"
    )


def _session_settings(deadline_s: float) -> dict[str, str]:
    """Return the settings of a session.

    A node may freeze or lose its network at any moment, also in a transaction, and its locks would
    stop the other nodes. So PostgreSQL ends its statements and transactions after its deadline.
    """
    deadline = f"{round(deadline_s * 1000)}ms"
    return {
        **SERVER_SETTINGS,
        "idle_in_transaction_session_timeout": deadline,
        "statement_timeout": deadline,
        "tcp_keepalives_count": str(KEEPALIVE_RETRIES),
        "tcp_keepalives_idle": str(KEEPALIVE_S),
        "tcp_keepalives_interval": str(KEEPALIVE_RETRY_S),
    }


def shown_address(dsn: str) -> str:
    """Return the address of a database without its password."""
    parts = urlsplit(dsn)
    return f"{parts.hostname or 'local'}:{parts.port or 5432}{parts.path}"
