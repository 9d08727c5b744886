"""Decode Protobuf messages by their descriptors, and give the Spark schema of the objects."""

import base64
import json
from typing import Any, Final

from pyspark.sql.types import (
    ArrayType,
    BooleanType,
    DataType,
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

PROTOBUF: Final = "protobuf"
_TIMESTAMP: Final = "google.protobuf.Timestamp"


class ProtobufCodec:
    """Decodes messages of one Protobuf type."""

    kind = PROTOBUF

    def __init__(self, descriptors: str, message: str) -> None:
        self._descriptors = descriptors  # a FileDescriptorSet in base64
        self._message = message
        self._type: Any = None
        self._class()

    def __reduce__(self) -> tuple[type["ProtobufCodec"], tuple[str, str]]:
        return (ProtobufCodec, (self._descriptors, self._message))

    def _class(self) -> Any:
        """Return the class of the message type; raise ConfigError if the file does not have it."""
        if self._type is None:
            from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

            files = descriptor_pb2.FileDescriptorSet()
            try:
                files.ParseFromString(base64.b64decode(self._descriptors))
            except message.DecodeError:
                text = "it is not a set of descriptors, as protoc --descriptor_set_out writes it"
                raise ConfigError(f"the Protobuf file cannot be used: {text}") from None
            pool = descriptor_pool.DescriptorPool()
            try:
                for file in files.file:
                    pool.Add(file)
                found = pool.FindMessageTypeByName(self._message)
            except (KeyError, TypeError):
                names = ", ".join(
                    f"{file.package}.{each.name}".lstrip(".")
                    for file in files.file
                    for each in file.message_type
                )
                text = f"no message '{self._message}' in the Protobuf file: there are {names}"
                raise ConfigError(f"{text}; add --include_imports if it imports others") from None
            self._type = message_factory.GetMessageClass(found)
        return self._type

    def schema(self) -> StructType:
        return _protobuf_struct(self._class().DESCRIPTOR, 0)

    def text(self, body: bytes) -> str:
        from google.protobuf import message

        found = self._class()()
        try:
            found.ParseFromString(body)
        except message.DecodeError as error:
            raise ValueError("not Protobuf of this message") from error
        return json.dumps(_protobuf_object(found), default=json_value)

    def stored(self) -> dict[str, str]:
        return {"kind": self.kind, "schema": self._descriptors, "message": self._message}


def _protobuf_struct(descriptor: Any, depth: int) -> StructType:
    return StructType([StructField(f.name, _protobuf_type(f, depth)) for f in descriptor.fields])


def _protobuf_type(field: Any, depth: int) -> DataType:
    nested = field.message_type
    if nested is not None and nested.GetOptions().map_entry:
        return MapType(TEXT, _protobuf_value_type(nested.fields_by_name["value"], depth + 1))
    one = _protobuf_value_type(field, depth)
    return ArrayType(one) if field.is_repeated else one


def _protobuf_value_type(field: Any, depth: int) -> DataType:
    """Return the type of one value of a field."""
    nested = field.message_type
    if nested is not None:
        if nested.full_name == _TIMESTAMP:
            return TimestampType()
        is_deep = depth > SCHEMA_DEPTH_MAX  # a recursive message
        return TEXT if is_deep else _protobuf_struct(nested, depth + 1)
    kinds: dict[int, DataType] = {
        field.CPPTYPE_BOOL: BooleanType(),
        field.CPPTYPE_INT32: LongType(),
        field.CPPTYPE_INT64: LongType(),
        field.CPPTYPE_UINT32: LongType(),
        field.CPPTYPE_UINT64: DecimalType(20, 0),
        field.CPPTYPE_FLOAT: DoubleType(),
        field.CPPTYPE_DOUBLE: DoubleType(),
    }
    return kinds.get(field.cpp_type, TEXT)


def _protobuf_object(message: Any) -> dict[str, Any]:
    """Return the fields of a message; a field that can be absent, and is, is left out."""
    found: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value, nested = getattr(message, field.name), field.message_type
        if nested is not None and nested.GetOptions().map_entry:
            inner = nested.fields_by_name["value"]
            found[field.name] = {str(key): _protobuf_value(inner, value[key]) for key in value}
        elif field.is_repeated:
            found[field.name] = [_protobuf_value(field, each) for each in value]
        else:
            found[field.name] = _protobuf_value(field, value)
    return found


def _protobuf_value(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        if field.message_type.full_name == _TIMESTAMP:
            return value.ToJsonString()
        return _protobuf_object(value)
    if field.enum_type is not None:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known is not None else str(value)
    return value
