"""Decode Avro records by a schema, and give the Spark schema of the decoded objects."""

import io
import json
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    LongType,
    MapType,
    StructField,
    StructType,
    TimestampType,
)

from leveret.errors import ConfigError
from leveret.pipeline.json_values import json_value
from leveret.pipeline.transforms.schemas import SCHEMA_DEPTH_MAX, TEXT

AVRO: Final = "avro"
_CONFLUENT_BYTES: Final = 5  # a zero byte and the number of a schema, before the record
_SINGLE_OBJECT: Final = b"\xc3\x01"  # then the fingerprint of the schema, before the record
_SINGLE_OBJECT_BYTES: Final = 10
_AVRO_TYPES: Final[dict[str, DataType]] = {
    "boolean": BooleanType(),
    "int": LongType(),
    "long": LongType(),
    "float": DoubleType(),
    "double": DoubleType(),
}


class AvroCodec:
    """Decodes records of an Avro schema: plain, with Confluent's prefix, or as single objects."""

    kind = AVRO

    def __init__(self, schema_text: str) -> None:
        self._text = schema_text
        self._parsed: Any = None
        try:
            found = self._schema()
        except Exception as error:  # fastavro raises many kinds for an invalid schema
            raise ConfigError(f"the Avro schema cannot be used: {error}") from error
        if not isinstance(found, dict) or found.get("type") != "record":
            raise ConfigError("the Avro schema must be a record")

    def __reduce__(self) -> tuple[type["AvroCodec"], tuple[str]]:
        return (AvroCodec, (self._text,))

    def _schema(self) -> Any:
        if self._parsed is None:
            import fastavro

            self._parsed = fastavro.parse_schema(json.loads(self._text))
        return self._parsed

    def schema(self) -> StructType:
        found = _AvroTypes(self._schema()).spark_type(self._schema(), 0)
        assert isinstance(found, StructType)
        return found

    def text(self, body: bytes) -> str:
        try:
            value = self._record(body)
        except ValueError:
            start = _prefix_bytes(body)
            if not start:
                raise
            value = self._record(body[start:])
        return json.dumps(value, default=json_value)

    def _record(self, data: bytes) -> Any:
        """Return one record that takes all of the bytes; raise ValueError."""
        import fastavro

        stream = io.BytesIO(data)
        try:
            value: Any = fastavro.schemaless_reader(stream, self._schema(), None)
        except Exception as error:  # EOFError, IndexError, struct.error and more
            raise ValueError("not Avro of this schema") from error
        if stream.read(1):
            raise ValueError("not Avro of this schema")
        return value

    def stored(self) -> dict[str, str]:
        return {"kind": self.kind, "schema": self._text}


class _AvroTypes:
    """Spark types of Avro types. Named types may be used by their name later in the schema."""

    def __init__(self, schema: Any) -> None:
        self._named: dict[str, Any] = schema.get("__named_schemas", {})

    def spark_type(self, schema: Any, depth: int) -> DataType:
        if depth > SCHEMA_DEPTH_MAX:  # a recursive record
            return TEXT
        if isinstance(schema, list):
            others = [each for each in schema if each != "null"]
            return self.spark_type(others[0], depth) if len(others) == 1 else TEXT
        if isinstance(schema, str):
            named = self._named.get(schema)
            return self.spark_type(named, depth + 1) if named else _AVRO_TYPES.get(schema, TEXT)
        kind = schema["type"]
        if not isinstance(kind, str):
            return self.spark_type(kind, depth)
        logical = schema.get("logicalType", "")
        if logical == "decimal":
            return DecimalType(schema["precision"], schema.get("scale", 0))
        if logical == "date" or logical.startswith(("timestamp-", "local-timestamp-")):
            return DateType() if logical == "date" else TimestampType()
        match kind:
            case "record":
                fields = schema["fields"]
                return StructType(
                    [StructField(f["name"], self.spark_type(f["type"], depth + 1)) for f in fields]
                )
            case "array":
                return ArrayType(self.spark_type(schema["items"], depth + 1))
            case "map":
                return MapType(TEXT, self.spark_type(schema["values"], depth + 1))
        is_text = logical in ("uuid", "time-millis", "time-micros")
        return TEXT if is_text else _AVRO_TYPES.get(kind, TEXT)


def _prefix_bytes(body: bytes) -> int:
    """Return the length of the prefix of a schema registry, or of a single object; 0 if none."""
    if body[:2] == _SINGLE_OBJECT:
        return _SINGLE_OBJECT_BYTES
    return _CONFLUENT_BYTES if body[:1] == b"\0" else 0
