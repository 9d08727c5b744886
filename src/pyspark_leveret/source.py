"""The Spark data source: chooses a reader or writer by the options of a query."""

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from pyspark_leveret import schema as columns
from pyspark_leveret.errors import OptionError
from pyspark_leveret.options import Options, parse_options


class DefaultSource(DataSource):
    """Streams and queues of a Leveret broker. Spark looks for a class of this name."""

    @classmethod
    def name(cls) -> str:
        return "leveret"

    def schema(self) -> str:
        return columns.ddl_of(self.options.get("columns"))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = self._options()
        wanted = columns.require_columns(schema)
        if options.queue is not None:
            from pyspark_leveret.queue import PeekReader

            return PeekReader(options, wanted)
        if options.lake is not None:
            from pyspark_leveret.history import UnionReader

            return UnionReader(options, wanted)
        from pyspark_leveret.batch import FilteringBatchReader, StreamBatchReader

        kind = FilteringBatchReader if options.pushes_filters else StreamBatchReader
        return kind(options, wanted)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802
        options = self._options()
        if options.lake is not None:
            raise OptionError("'lake' is for spark.read: a streaming query follows the broker")
        wanted = columns.require_columns(schema)
        if options.queue is not None:
            from pyspark_leveret.queue import QueueStreamReader

            return QueueStreamReader(options, wanted)
        from pyspark_leveret.stream import StreamReader

        return StreamReader(options, wanted)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        if overwrite:
            raise OptionError(
                "mode('overwrite') is refused: a write publishes messages, and deletes none of the"
                " target's. Use mode('append'); purge the queue first if it should be empty"
            )
        from pyspark_leveret.sink import BatchWriter
        from pyspark_leveret.targets import require_target

        found = BatchWriter(self._options(), schema)
        require_target(self._options())
        return found

    def streamWriter(  # noqa: N802
        self, schema: StructType, overwrite: bool
    ) -> DataSourceStreamWriter:
        from pyspark_leveret.sink import StreamWriter
        from pyspark_leveret.targets import require_target

        found = StreamWriter(self._options(), schema)
        require_target(self._options())
        return found

    def _options(self) -> Options:
        return parse_options(self.options)
