"""`sql`: query the lake, streams and queues with SQL.

    stream.orders, orders       a stream: what is archived from the lake, the rest from the broker
    queue.billing               the ready messages of a queue, which stay there
    bronze.orders, silver.orders, bad.orders, gold.orders     tables of the lake

A view is made when a query names its table. Put names with characters other than letters, digits
and `_` in backticks. A name without a prefix is a stream; if the broker has no such stream, it is a
bronze table. If the broker does not answer, it is what the lake has, and a notice says so. Spark
resolves all other names, such as those of a WITH clause.
"""

import re
from collections.abc import Callable, Iterable
from typing import Any, Final

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, Row, SparkSession

from leveret.errors import ConfigError
from leveret.lake.layout import BRONZE, LAYERS, Lake, table_name
from leveret.pipeline.environment import Environment
from leveret.pipeline.lake_tables import read_bronze, read_files, read_table
from leveret.pipeline.transforms.messages import DATE
from leveret.pipeline.union_read import read_broker, union_read
from pyspark_leveret.client import BAD_REQUEST, NOT_FOUND, Broker, named
from pyspark_leveret.errors import BrokerError, LoginRefusedError
from pyspark_leveret.options import parse_options
from pyspark_leveret.schema import TYPES

_STREAM: Final = "stream"
_QUEUE: Final = "queue"
_WORD: Final = r"(?:`[^`]+`|\w++)"  # possessive: whole words only
# Parts of a query to skip: string literals, names in backticks, comments.
_QUOTED: Final = r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*"|`[^`]*`|--[^\n]*|/\*.*?\*/"""
# DESCRIBE at the start of a statement; not DESCRIBE of a query, function, database or catalog.
_DESCRIBE: Final = (
    r"\A(?:describe|desc)(?:\s+table)?(?:\s+extended)?"
    r"(?=\s)(?!\s+(?:table|extended|query|select|with|from|function|database|schema|catalog)\b)"
)
# A table name: after FROM, JOIN or DESCRIBE.
_TABLE: Final = re.compile(
    rf"{_QUOTED}|({_DESCRIBE}|\b(?:from|join))(\s+)({_WORD}(?:\.{_WORD})?)(?!\s*\()",
    re.IGNORECASE | re.DOTALL,
)
_IS_DESCRIBE: Final = re.compile(_DESCRIBE, re.IGNORECASE)
_STAR: Final = re.compile(r"(?<!count\()\*", re.IGNORECASE)
_COLUMNS: Final = [*TYPES, DATE]
# Conditions of Spark's errors.
_NO_TABLE: Final = "TABLE_OR_VIEW_NOT_FOUND"
_NO_COLUMN: Final = "UNRESOLVED_COLUMN"
_LIST_TABLES: Final = "`leveret pipeline sql -q '\\d'` lists all"


class Tables:
    """The tables that a SQL query can name."""

    def __init__(
        self,
        spark: SparkSession,
        environment: Environment,
        on_notice: Callable[[str], None] = lambda text: None,
    ) -> None:
        self._spark = spark
        self._environment = environment
        self._on_notice = on_notice  # called if an answer is not all that was asked for
        self._lake = Lake(environment.lake_path) if environment.lake_dir is not None else None
        # Names of the last query that may be streams, and why the broker did not say.
        self._unknown: dict[str, BrokerError] = {}

    def run(self, query: str) -> DataFrame:
        """Return the lazy result of a query. Raise Spark's errors.

        For a name that is no table, raise ConfigError, or BrokerError if the broker did not answer.
        """
        text = query.strip().rstrip(";")
        self._unknown.clear()
        try:
            return self._run(text, _columns(text))
        except AnalysisException as fault:
            if (fault.getCondition() or "").startswith(_NO_COLUMN):
                return self._run(text, _COLUMNS)  # Spark's error names similar columns of all
            missing = _missing_table(fault)
            if not missing:
                raise
            text = f"there is no stream and no table {missing.replace('`', '')}: {_LIST_TABLES}"
            raise self._unknown.get(missing, ConfigError(text)) from fault

    def _run(self, query: str, columns: list[str]) -> DataFrame:
        """Return the result of a query whose streams and queues have these columns."""
        views: dict[tuple[str, str], str] = {}
        return self._spark.sql(_TABLE.sub(lambda found: self._view(found, columns, views), query))

    def rows(self, query: str, limit: int) -> list[dict[str, Any]]:
        r"""Return the first rows of the result as JSON values; `\d` lists the tables.

        Of columns with the same name, the second is `name_2`, and so on.
        """
        if query.strip() == "\\d":
            return [{"table": name} for name in self.names()]
        found = self.run(query).limit(limit)
        names: list[str] = []
        for name in found.columns:
            names.append(_unique(name, names))
        rows = found.collect()
        return [dict(zip(names, map(json_value, row), strict=True)) for row in rows]

    def names(self) -> list[str]:
        """Return the names of all tables."""
        found = [f"{layer}.{name}" for layer in LAYERS for name in self._in_lake(layer)]
        try:
            broker = Broker(parse_options(self._environment.options(retrySeconds=1)))
            vhost = broker.path("queues", "x").rpartition("/")[0]
            for queue in broker.ask("GET", vhost):
                kind = _STREAM if queue.get("type") == _STREAM else _QUEUE
                found.append(f"{kind}.{queue['name']}")
        except BrokerError as fault:
            if self._lake is None:
                raise
            self._on_notice(f"{fault}; only tables of the lake are listed")
        return found

    def _in_lake(self, layer: str) -> list[str]:
        return self._lake.tables(layer) if self._lake is not None else []

    def _view(
        self, found: "re.Match[str]", columns: list[str], views: dict[tuple[str, str], str]
    ) -> str:
        """Return the match with a view in place of the table. Spark resolves unknown names."""
        if found[3] is None:
            return found[0]
        words = [word.strip("`") for word in re.findall(_WORD, found[3])]
        kind, name = words if len(words) == 2 else ("", words[0])
        table = kind.lower(), name
        if table not in views:
            frame = self._frame(*table, columns)
            if frame is None:
                return found[0]
            views[table] = _view_name(*table, views.values())
            frame.createOrReplaceTempView(views[table])
        return f"{found[1]}{found[2]}`{views[table]}`"

    def _frame(self, kind: str, name: str, columns: list[str]) -> DataFrame | None:
        if kind == _QUEUE:
            return self._of_broker(columns, queue=name)
        if kind == _STREAM:
            return self._stream(name, columns)
        if not kind:
            return self._without_prefix(name, columns)
        return self._lake_table(kind, name) if kind in LAYERS else None

    def _without_prefix(self, name: str, columns: list[str]) -> DataFrame | None:
        """Return a stream, or what the lake has of it; None if Spark has to know the name."""
        try:
            if self._is_stream(name):
                return self._stream(name, columns)
        except LoginRefusedError:
            raise
        except BrokerError as fault:
            if fault.status == 0 and self._is_archived(name):
                return self._archived(name, fault)
            self._unknown[name] = self._unknown_stream(name, fault)
            return None
        return self._lake_table(BRONZE, name) if self._is_archived(name) else None

    def _unknown_stream(self, name: str, fault: BrokerError) -> BrokerError:
        """Return the error for a name that is not in the lake, and of no stream we may read."""
        if fault.status == BAD_REQUEST:
            return BrokerError(f"'{name}' is a queue, and no stream: write queue.`{name}`")
        if fault.status:
            return named(fault, parse_options(self._environment.options()), _STREAM, name)
        where = "the lake has no such table, and " if self._lake is not None else ""
        return BrokerError(f"{where}whether '{name}' is a stream is not known: {fault}")

    def _stream(self, name: str, columns: list[str]) -> DataFrame:
        if self._is_archived(name):
            return union_read(self._spark, self._environment, name, columns)
        return self._of_broker(columns, stream=name, pushFilters=True)

    def _lake_table(self, layer: str, name: str) -> DataFrame:
        if self._lake is None:
            raise ConfigError(f"give --lake DIR: {layer}.{name} is a table of the lake")
        if layer == BRONZE:
            return read_bronze(self._spark, self._lake, self._table(name))
        return read_table(self._spark, self._lake, layer, self._table(name))

    def _is_archived(self, name: str) -> bool:
        return self._table(name) in self._in_lake(BRONZE)

    def _table(self, name: str) -> str:
        return table_name(self._environment.vhost, name)

    def _of_broker(self, columns: list[str], **options: object) -> DataFrame:
        own = [name for name in columns if name in TYPES] or ["offset"]
        return read_broker(self._spark, self._environment, own, **options)

    def _is_stream(self, name: str) -> bool:
        """Return True if the broker has a stream or super stream. Raise BrokerError."""
        broker = Broker(parse_options(self._environment.options(retrySeconds=1)))
        for each in (name, f"{name}-0"):
            try:
                broker.ask("GET", broker.path("streams", each))
                return True
            except BrokerError as error:
                if error.status != NOT_FOUND:
                    raise
        return False

    def _archived(self, name: str, fault: BrokerError) -> DataFrame:
        """Return the messages of a stream that the lake has, and give notice of the others."""
        assert self._lake is not None
        table = self._table(name)
        history = self._lake.history(table)
        ends = ", ".join(f"{each} before offset {end}" for each, end in history.position.items())
        self._on_notice(f"{fault}; only archived messages are in the answer: {ends or 'none'}")
        files = [str(path) for path in history.files]
        return read_files(self._spark, self._lake.folder(BRONZE, table), files)


def _missing_table(fault: AnalysisException) -> str:
    """Return the name that Spark does not know; empty if that is not the error."""
    if fault.getCondition() != _NO_TABLE:
        return ""
    return (fault.getMessageParameters() or {}).get("relationName", "").strip("`")


def _view_name(kind: str, name: str, others: Iterable[str]) -> str:
    """Return a view name that is unique in the query."""
    return _unique(re.sub(r"\W", "_", f"{kind}_{name}" if kind else name), others)


def _unique(name: str, others: Iterable[str]) -> str:
    """Return the name, or the name with a number if there is one like it. Spark ignores case."""
    taken = {other.lower() for other in others}
    found, number = name, 1
    while found.lower() in taken:
        number += 1
        found = f"{name}_{number}"
    return found


def _columns(query: str) -> list[str]:
    """Return the columns that a query may need. Spark does not prune them, and bodies are large."""
    if _STAR.search(query) or _IS_DESCRIBE.match(query):
        return _COLUMNS
    named = [name for name in _COLUMNS if re.search(rf"\b{name}\b", query, re.IGNORECASE)]
    return named or ["offset"]


def json_value(value: object) -> object:
    """Return a value of a row as a JSON value."""
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode("utf-8", "backslashreplace")
    if isinstance(value, Row):
        return {name: json_value(each) for name, each in value.asDict().items()}
    if isinstance(value, dict):
        return {str(name): json_value(each) for name, each in value.items()}
    if isinstance(value, list):
        return [json_value(each) for each in value]
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)
