"""Transactions of several statements on one connection, and the errors that end a connection.

The caller closes the connection after every error that PostgreSQL has not answered itself, and
that ends the transaction. So only errors in an answer are followed by a ROLLBACK. After a deadline
it would wait without end for a server that is silent; after a lost connection its own error would
hide the cause.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Final

import asyncpg

DOWN_ERRORS: Final = (
    OSError,
    EOFError,
    TimeoutError,
    asyncpg.InterfaceError,
    asyncpg.InternalClientError,
    asyncpg.PostgresConnectionError,
    asyncpg.OperatorInterventionError,  # also: starting, shutting down
    asyncpg.ConfigurationLimitExceededError,
    asyncpg.OutOfMemoryError,
    asyncpg.TooManyConnectionsError,
    asyncpg.PostgresSystemError,
)


def leaves_connection(error: BaseException) -> bool:
    """Return whether a connection can still be used after an error."""
    if isinstance(error, asyncpg.QueryCanceledError):  # one of OperatorInterventionError
        return True
    return isinstance(error, asyncpg.PostgresError) and not isinstance(error, DOWN_ERRORS)


@asynccontextmanager
async def transaction(connection: Any, *, readonly: bool = False) -> AsyncIterator[None]:
    """Commit at the end of the block; roll back after an error that leaves the connection."""
    running = connection.transaction(readonly=readonly)
    await running.start()
    try:
        yield
    except BaseException as error:
        if leaves_connection(error):
            await running.rollback()
        raise
    await running.commit()
