"""Schemas that grow: a field that is new is added, and a type gives way to a wider one.

Every value of both schemas can be read with the merged one. Where two types have nothing in common
that is text: JSON read as a string is the JSON itself.
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

_TEXT: Final = StringType()


def struct_of(ddl: str) -> StructType:
    """The schema that a text such as `id bigint, name string` means; needs a session."""
    found = StructType.fromDDL(ddl)
    assert isinstance(found, StructType)
    return found


def merged(old: StructType, new: StructType) -> StructType:
    """The schema of both, with the fields of the old one first."""
    later = {field.name: field for field in new.fields}
    fields = []
    for field in old.fields:
        other = later.pop(field.name, None)
        kind = wider(field.dataType, other.dataType) if other is not None else field.dataType
        fields.append(StructField(field.name, kind))
    fields += [StructField(field.name, field.dataType) for field in later.values()]
    return StructType(fields)


def wider(one: DataType, two: DataType) -> DataType:
    """A type that holds the values of both."""
    if one == two or isinstance(two, NullType):
        return one
    if isinstance(one, NullType):
        return two
    if isinstance(one, StructType) and isinstance(two, StructType):
        return merged(one, two)
    if isinstance(one, ArrayType) and isinstance(two, ArrayType):
        return ArrayType(wider(one.elementType, two.elementType))
    if {type(one), type(two)} == {LongType, DoubleType}:
        return DoubleType()
    return _TEXT


def keeps_values(old: StructType, new: StructType) -> bool:
    """Whether files with the old schema can be read with the new one: it only adds fields."""
    later = {field.name: field.dataType for field in new.fields}
    return all(_keeps(field.dataType, later.get(field.name)) for field in old.fields)


def _keeps(old: DataType, new: DataType | None) -> bool:
    if isinstance(old, StructType) and isinstance(new, StructType):
        return keeps_values(old, new)
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return _keeps(old.elementType, new.elementType)
    return old == new
