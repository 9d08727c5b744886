"""The steps that bring the database of a shard to its current schema.

Steps are applied in order under an advisory lock, in one transaction, by the node that comes first.
`step_1_tables.sql` describes the tables.

A step that has been released stays as it is, with one exception: when a later step replaces one of
its functions (`CREATE OR REPLACE`), the function is removed from the earlier step. A new database
gets the same functions in the end, and each function is in one file only.
"""

from typing import Any, Final

from leveret.errors import NewerFormatError
from leveret.job_service.shards.sql.loader import load_sql
from leveret.job_service.shards.transaction import transaction

MIGRATION_LOCK: Final = 0x4C56_0001  # advisory lock of the node that migrates
REPLACED: Final = ""  # a step whose functions are all in later steps
STEPS: Final = (
    "step_1_tables",
    "step_2_put",
    "step_3_lease",
    REPLACED,  # settle
    REPLACED,  # nack of jobs that become dead
    "step_6_homes",
    REPLACED,  # claim
    "step_8_time",
    "step_9_stamp",
    "step_10_lease",
    REPLACED,  # settle
    "step_12_lost_logs",
    "step_13_prefetch",
    "step_14_settle",
    "step_15_put_plain",
    "step_16_notes",
    "step_17_ack_nodes",
)


async def migrate(connection: Any) -> None:
    """Apply the missing steps; safe with any number of nodes at once."""
    async with transaction(connection):
        await connection.execute("SELECT pg_advisory_xact_lock($1)", MIGRATION_LOCK)
        await connection.execute(
            "CREATE TABLE IF NOT EXISTS leveret_version (version INT NOT NULL)"
        )
        version = await connection.fetchval("SELECT max(version) FROM leveret_version") or 0
        if version > len(STEPS):
            raise NewerFormatError(f"the database is of a later version ({version})")
        for number in range(version, len(STEPS)):
            if STEPS[number] != REPLACED:
                await connection.execute(load_sql(STEPS[number]))
            await connection.execute("INSERT INTO leveret_version VALUES ($1)", number + 1)
