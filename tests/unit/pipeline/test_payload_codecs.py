"""Avro and Protobuf by a schema file, and compressed bodies."""

import gzip
import io
import json
import pickle
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import fastavro
import pyarrow as pa
import pytest
from google.protobuf import descriptor_pb2, timestamp_pb2

from leveret.errors import ConfigError
from leveret.pipeline import payload_codecs
from leveret.pipeline.avro_codec import AvroCodec
from leveret.pipeline.payload_codecs import read_codec, restore_codec, unpack
from leveret.pipeline.protobuf_codec import ProtobufCodec

PRICE = {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2}
ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "note", "type": ["null", "string"]},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {
            "name": "price",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 8, "scale": 2},
        },
        {
            "name": "lines",
            "type": {
                "type": "array",
                "items": {
                    "type": "record",
                    "name": "Line",
                    "fields": [{"name": "sku", "type": "string"}, {"name": "raw", "type": "bytes"}],
                },
            },
        },
        {"name": "tags", "type": {"type": "map", "values": "double"}},
    ],
}
WANTED = (
    "id bigint, note string, at timestamp, price decimal(8,2),"
    " lines array<struct<sku:string,raw:string>>, tags map<string,double>"
)
VALUE = {
    "id": 7,
    "note": None,
    "at": 1_700_000_000_000,
    "price": "12.50",
    "lines": [{"sku": "a", "raw": b"\x00\xff"}],
    "tags": {"x": 0.5},
}


def avro_body() -> bytes:
    stream = io.BytesIO()
    value = {**VALUE, "price": Decimal("12.50"), "at": datetime.fromtimestamp(1_700_000_000, UTC)}
    fastavro.schemaless_writer(stream, fastavro.parse_schema(ORDER), value)
    return stream.getvalue()


def test_an_avro_record_is_decoded_with_and_without_a_prefix(tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    codec = read_codec(file, None)
    assert codec is not None
    for prefix in (b"", b"\x00\x00\x00\x00\x09", b"\xc3\x01" + bytes(8)):
        found = json.loads(codec.text(prefix + avro_body()))
        assert found["id"] == 7 and found["note"] is None and found["price"] == "12.50"
        assert found["at"] == "2023-11-14T22:13:20+00:00"
        assert found["lines"] == [{"sku": "a", "raw": "AP8="}] and found["tags"] == {"x": 0.5}
    assert ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in codec.schema()) == WANTED


@pytest.mark.parametrize("body", [b"", b"\x0e", b"nonsense", avro_body() + b"x", bytes(100)])
def test_a_body_that_is_not_of_the_avro_schema_is_refused(body: bytes) -> None:
    with pytest.raises(ValueError, match="not Avro of this schema"):
        AvroCodec(json.dumps(ORDER)).text(body)


def test_a_recursive_avro_schema_has_an_end() -> None:
    fields = [{"name": "next", "type": ["null", "Node"]}, {"name": "n", "type": "int"}]
    codec = AvroCodec(json.dumps({"type": "record", "name": "Node", "fields": fields}))
    assert codec.schema()["n"].dataType.simpleString() == "bigint"


@pytest.mark.parametrize("text", ["{", '"string"', '{"type": "record"}', '{"type": "none"}'])
def test_an_invalid_avro_schema_is_refused(text: str) -> None:
    with pytest.raises(ConfigError, match="the Avro schema"):
        AvroCodec(text)


def order_descriptors() -> bytes:
    """Descriptors as `protoc --include_imports --descriptor_set_out` writes them."""
    file = descriptor_pb2.FileDescriptorProto(name="o.proto", package="shop", syntax="proto3")
    file.dependency.append("google/protobuf/timestamp.proto")
    kind = descriptor_pb2.FieldDescriptorProto
    state = file.enum_type.add(name="State")
    state.value.add(name="NEW", number=0)
    state.value.add(name="PAID", number=1)
    line = file.message_type.add(name="Line")
    line.field.add(name="sku", number=1, type=kind.TYPE_STRING, label=kind.LABEL_OPTIONAL)
    order = file.message_type.add(name="Order")
    for number, (name, of, more) in enumerate(
        (
            ("id", kind.TYPE_INT64, {}),
            ("big", kind.TYPE_UINT64, {}),
            ("state", kind.TYPE_ENUM, {"type_name": ".shop.State"}),
            ("at", kind.TYPE_MESSAGE, {"type_name": ".google.protobuf.Timestamp"}),
            ("line", kind.TYPE_MESSAGE, {"type_name": ".shop.Line"}),
            ("raw", kind.TYPE_BYTES, {}),
        ),
        start=1,
    ):
        order.field.add(name=name, number=number, type=of, label=kind.LABEL_OPTIONAL, **more)
    order.field[4].label = kind.LABEL_REPEATED
    found = descriptor_pb2.FileDescriptorSet()
    timestamp_pb2.DESCRIPTOR.CopyToProto(found.file.add())
    found.file.append(file)
    data: bytes = found.SerializeToString()
    return data


def test_a_protobuf_message_is_decoded(tmp_path: Path) -> None:
    file = tmp_path / "order.desc"
    file.write_bytes(order_descriptors())
    codec = read_codec(None, f"{file}:shop.Order")
    assert isinstance(codec, ProtobufCodec)
    codec = pickle.loads(pickle.dumps(codec))  # noqa: S301  as Spark sends it to executors
    assert codec.stored() == (restore_codec(codec.stored()) or codec).stored()
    order = codec._class()(id=-5, big=2**64 - 1, state=1, raw=b"\x01", line=[{"sku": "a"}])
    order.at.FromSeconds(1_700_000_000)
    assert json.loads(codec.text(order.SerializeToString())) == {
        "id": -5,
        "big": 2**64 - 1,
        "state": "PAID",
        "at": "2023-11-14T22:13:20Z",
        "line": [{"sku": "a"}],
        "raw": "AQ==",
    }
    shown = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in codec.schema())
    assert shown == (
        "id bigint, big decimal(20,0), state string, at timestamp,"
        " line array<struct<sku:string>>, raw string"
    )
    with pytest.raises(ValueError, match="not Protobuf of this message"):
        codec.text(b"\xff\xff\xff")


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ("order.desc", "--protobuf is FILE:MESSAGE"),
        ("order.desc:Order", "there are google.protobuf.Timestamp, shop.Line, shop.Order"),
        ("text.desc:Order", "is not a set of descriptors"),
    ],
)
def test_a_wrong_protobuf_file_is_explained(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str, text: str
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("order.desc").write_bytes(order_descriptors())
    Path("text.desc").write_text('syntax = "proto3";')
    with pytest.raises(ConfigError, match=text):
        read_codec(None, given)


def test_bodies_are_unpacked_up_to_a_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    assert unpack(gzip.compress(b"hello"), "GZIP ") == b"hello"
    assert unpack(packed_zstd(b"hello"), "zstd") == b"hello"
    for body in (b"", b"hello", gzip.compress(b"hello" * 100)[:-10]):
        with pytest.raises(ValueError, match="not gzip"):
            unpack(body, "gzip")
    assert unpack(gzip.compress(b"hel") + gzip.compress(b"lo"), "x-gzip") == b"hello"
    for body in (b"hello", packed_zstd(b"hello" * 100)[:-6]):
        with pytest.raises(ValueError, match="not zstd"):
            unpack(body, "zstd")
    monkeypatch.setattr(payload_codecs, "UNPACKED_BYTES_MAX", 1000)
    with pytest.raises(ValueError, match="more than 1000 bytes"):
        unpack(gzip.compress(bytes(100_000)), "gzip")


def packed_zstd(body: bytes) -> bytes:
    sink = pa.BufferOutputStream()
    with pa.CompressedOutputStream(sink, "zstd") as stream:
        stream.write(body)
    return bytes(sink.getvalue())
