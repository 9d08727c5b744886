"""Write tables: a task publishes its rows and ends when the broker has confirmed them.

The id of a row is (query, batch, partition, row), without the attempt: a repeated task, or a batch
that is repeated after a restart, publishes the same ids. Published messages cannot be withdrawn, so
`commit` and `abort` do nothing.
"""

import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any, Final

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from pyspark_leveret.messages import Message, MessageBuilder
from pyspark_leveret.options import Options

QUERY_ID: Final = "sql.streaming.queryId"
BATCH_ID: Final = "streaming.sql.batchId"


@dataclass
class Published(WriterCommitMessage):
    """The result of a task."""

    messages: int


class _Writing:
    """The publishing part of both writers."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._options = options
        self._builder = MessageBuilder(options, schema)

    def publish(self, batches: Iterator[Any], prefix: str) -> Published:
        from pyspark_leveret.publisher import publish

        name = f"spark {prefix}"
        return Published(publish(self._options, name, self._messages(batches, prefix)))

    def _messages(self, batches: Iterator[Any], prefix: str) -> Iterator[Message]:
        ids = (f"{prefix}/{row}" for row in count())
        for batch in batches:
            yield from self._builder.messages(batch, ids)


class BatchWriter(DataSourceArrowWriter):
    """Writes the table of a batch query."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._writing = _Writing(options, schema)
        self._write_id = options.write_id or str(uuid.uuid4())

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        return self._writing.publish(iterator, f"{self._write_id}/{_partition()}")


class StreamWriter(DataSourceStreamArrowWriter):
    """Writes the batches of a streaming query."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self._writing = _Writing(options, schema)

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        task = TaskContext.get()
        assert task is not None, "a writer runs in a task"
        query, batch = task.getLocalProperty(QUERY_ID), task.getLocalProperty(BATCH_ID)
        assert query is not None and batch is not None, "a streaming task knows its query and batch"
        return self._writing.publish(iterator, f"{query}/{batch}/{_partition()}")


def _partition() -> int:
    task = TaskContext.get()
    assert task is not None, "a writer runs in a task"
    return task.partitionId()
