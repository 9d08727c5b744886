"""Stamps of the databases: which shard of which cluster each of them is.

Topics are found by the position of their shard. A node that was given the same databases in another
order would look for topics in the wrong places and split each of them. So the first node writes its
order into the databases, and a node with another order does not start.

The first shard also holds a digest of the key of tokens. Nodes with different secrets would refuse
each other's tokens. The digest is replaced when no other node runs: then the secret was changed.
"""

import logging
import uuid
from typing import Any

from leveret.errors import ConfigError

NODE_SEEN = "INTERVAL '1 minute'"  # every running node reports to its shards more often than this

log = logging.getLogger(__name__)


class Stamps:
    """The stamps that one node expects."""

    def __init__(self, secret_digest: str) -> None:
        self._secret_digest = secret_digest
        self._cluster: uuid.UUID | None = None
        self._known_by = ""  # the shard from which the id of the cluster was read

    async def check(self, connection: Any, index: int, name: str, origin: uuid.UUID) -> bool:
        """Raise ConfigError if a database is another shard than its place in the options says.

        Stamp a database that has no stamp. Return False if that must wait until the first shard,
        which names the cluster, is known.
        """
        row = await connection.fetchrow("SELECT * FROM stamps")
        if row is None:
            if index and self._cluster is None:
                return False
            await connection.execute(
                "INSERT INTO stamps VALUES ($1, $2) ON CONFLICT DO NOTHING",
                self._cluster or uuid.uuid4(),
                index,
            )
            row = await connection.fetchrow("SELECT * FROM stamps")
        if row["shard"] != index:
            raise ConfigError(
                f"jobs_postgres: {name} is shard {row['shard']} of the other nodes;"
                " give every node the same databases in the same order"
            )
        if self._cluster is None:
            self._cluster, self._known_by = row["cluster"], name
        elif self._cluster != row["cluster"]:
            raise ConfigError(
                f"jobs_postgres: {name} belongs to another cluster than {self._known_by}"
            )
        if index == 0 and self._secret_digest:
            await self._check_secret(connection, row["secret"], origin)
        return True

    async def _check_secret(self, connection: Any, found: str | None, origin: uuid.UUID) -> None:
        if found == self._secret_digest:
            return
        others = await connection.fetchval(
            f"SELECT count(*) FROM origins WHERE origin <> $1 AND seen > now() - {NODE_SEEN}",
            origin,
        )
        if found and others:
            raise ConfigError(
                "jobs_token_secret: the other nodes have another secret, so each would refuse the"
                " tokens of the other; give all nodes the same jobs_token_secret or jobs_token_key"
            )
        if found:
            log.warning("the secret of jobs tokens has changed: older tokens are not valid")
        await connection.execute("UPDATE stamps SET secret = $1", self._secret_digest)
