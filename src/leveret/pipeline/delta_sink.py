"""Write the batches of a streaming query to a Delta table, each message exactly once.

Spark writes the files, delta-rs commits them together with the offsets (`leveret.lake.delta`). The
table itself says where archiving continues, so the checkpoint of the query matters only while it
runs. Each archive begins with a new one.
"""

import shutil
import uuid
from pathlib import Path

import pyarrow as pa
from pyspark.sql import DataFrame

from leveret.arrow.schema import TYPES
from leveret.lake import delta
from leveret.lake.layout import batch_ends
from leveret.lake.partitions import PARTITIONS
from leveret.pipeline.transforms.messages import DATE

SCHEMA = pa.schema([*TYPES.items(), (DATE, pa.date32())])


class DeltaSink:
    """The table of one stream, for one archive at a time."""

    def __init__(self, folder: Path, stream: str, checkpoint: Path) -> None:
        self.checkpoint = checkpoint
        self._folder = folder
        self._stream = stream
        table = delta.prepare_table(folder, SCHEMA)
        delta.recover_staging(folder, stream)
        shutil.rmtree(checkpoint, ignore_errors=True)
        self.position = delta.table_position(table, stream)

    def write(self, frame: DataFrame, batch: int) -> None:
        """Add a batch to the table; do nothing if the table has it already."""
        ends = batch_ends(self.checkpoint, batch)
        after = {**self.position, **ends}
        if after == self.position:
            return  # Spark repeats a batch that is not in the commit log of its checkpoint
        staging = self._folder / delta.STAGING
        shutil.rmtree(staging, ignore_errors=True)
        frame.write.partitionBy(*PARTITIONS).parquet(str(staging))
        found = delta.plan_moves(self._folder, uuid.uuid4().hex, ends)
        delta.move_files(self._folder, found)
        self.commit(found)
        self.position = after

    def commit(self, batch: delta.DeltaBatch) -> None:
        """Make the files of a batch a part of the table."""
        delta.commit_batch(self._folder, self._stream, batch, self.position)
