"""Merge schemas: new fields are added, and a type is replaced by a wider one.

The merged schema can read every value of both schemas. The common type of two unrelated types is
string: Spark reads any JSON value as a string of that JSON. `writable` makes a schema of any JSON
one that Spark can write.
"""

from typing import Final

from pyspark.sql.types import (
    ArrayType,
    DataType,
    DoubleType,
    LongType,
    NullType,
    StringType,
    StructField,
    StructType,
)

TEXT: Final = StringType()  # of a value that has no other type
SCHEMA_DEPTH_MAX: Final = 32  # of nested records; deeper ones become text


def parse_schema(ddl: str) -> StructType:
    """Parse a schema such as `id bigint, name string`; needs a Spark session."""
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def merge_schemas(old: StructType, new: StructType) -> StructType:
    """Return the common schema, with the fields of the old one first."""
    later = {field.name: field for field in new.fields}
    fields = []
    for field in old.fields:
        other = later.pop(field.name, None)
        kind = wider_type(field.dataType, other.dataType) if other is not None else field.dataType
        fields.append(StructField(field.name, kind))
    fields += [StructField(field.name, field.dataType) for field in later.values()]
    return StructType(fields)


def wider_type(one: DataType, two: DataType) -> DataType:
    """Return a type that holds the values of both types."""
    if one == two or isinstance(two, NullType):
        return one
    if isinstance(one, NullType):
        return two
    if isinstance(one, StructType) and isinstance(two, StructType):
        return merge_schemas(one, two)
    if isinstance(one, ArrayType) and isinstance(two, ArrayType):
        return ArrayType(wider_type(one.elementType, two.elementType))
    if {type(one), type(two)} == {LongType, DoubleType}:
        return DoubleType()
    return TEXT


def unite_fields(kind: DataType) -> DataType:
    """Merge fields of the same name, which an object with a repeated name gives."""
    if isinstance(kind, ArrayType):
        return ArrayType(unite_fields(kind.elementType))
    if not isinstance(kind, StructType):
        return kind
    found: dict[str, DataType] = {}
    for field in kind.fields:
        other = unite_fields(field.dataType)
        found[field.name] = wider_type(found.get(field.name, other), other)
    return StructType([StructField(name, each) for name, each in found.items()])


def writable(schema: StructType) -> tuple[StructType, list[str]]:
    """Return a schema that Spark can write, and the names of the fields that are left out.

    Spark ignores case. Of fields whose names differ only in case, the first one stays. A nested
    record with such names becomes text, and so does a record that is nested too deep.
    """
    kept: dict[str, StructField] = {}
    left_out = []
    for field in schema.fields:
        if field.name.lower() in kept:
            left_out.append(field.name)
        else:
            kind = _writable_type(field.dataType, 2)
            kept[field.name.lower()] = StructField(field.name, kind)
    return StructType(list(kept.values())), left_out


def _writable_type(kind: DataType, depth: int) -> DataType:
    if isinstance(kind, ArrayType):
        return ArrayType(_writable_type(kind.elementType, depth))
    if not isinstance(kind, StructType):
        return kind
    if depth > SCHEMA_DEPTH_MAX or len({name.lower() for name in kind.names}) < len(kind.names):
        return TEXT
    return StructType(
        [StructField(each.name, _writable_type(each.dataType, depth + 1)) for each in kind.fields]
    )


def only_adds_fields(old: StructType, new: StructType) -> bool:
    """Return True if the new schema only adds fields, so that it can read old files."""
    later = {field.name: field.dataType for field in new.fields}
    return all(_keeps(field.dataType, later.get(field.name)) for field in old.fields)


def _keeps(old: DataType, new: DataType | None) -> bool:
    if isinstance(old, StructType) and isinstance(new, StructType):
        return only_adds_fields(old, new)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return _keeps(old.elementType, new.elementType)
    return old == new
