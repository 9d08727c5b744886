"""Decode Avro and Protobuf bodies by a schema file, and unpack compressed bodies.

A codec turns a body into the text of a JSON object, so that binary and JSON bodies go the same way
afterwards. It also gives the Spark schema of these objects. Bytes become base64 text, as in JSON
generally. A codec can be stored in the lake as JSON, and can be sent to executors.
"""

import base64
import importlib.util
import zlib
from pathlib import Path
from typing import Final, Protocol

import pyarrow as pa
from pyspark.sql.types import StructType

from leveret.errors import ConfigError
from leveret.pipeline.avro_codec import AVRO, AvroCodec
from leveret.pipeline.protobuf_codec import PROTOBUF, ProtobufCodec

GZIP: Final = "gzip"
ZSTD: Final = "zstd"
ENCODINGS: Final = {"gzip": GZIP, "x-gzip": GZIP, "zstd": ZSTD}  # content encodings
_GZIP_WBITS: Final = 31  # the largest window, with the header of gzip
UNPACKED_BYTES_MAX: Final = 64 * 1024 * 1024  # of one body; a small body can unpack to gigabytes
_INSTALL: Final = "pip install 'leveret[payloads]'"


class Codec(Protocol):
    """Decodes bodies of one schema."""

    kind: str

    def schema(self) -> StructType:
        """Return the Spark schema of the decoded objects."""

    def text(self, body: bytes) -> str:
        """Return a body as a JSON object; raise ValueError if it does not fit the schema."""

    def stored(self) -> dict[str, str]:
        """Return the codec as JSON values, for `restore_codec`."""


def unpack(body: bytes, encoding: str) -> bytes:
    """Return a compressed body unpacked; raise ValueError if it is damaged or too large."""
    is_gzip = ENCODINGS[encoding.strip().lower()] == GZIP
    found = _gunzip(body) if is_gzip else _unzstd(body)
    if len(found) > UNPACKED_BYTES_MAX:
        raise ValueError(f"more than {UNPACKED_BYTES_MAX} bytes unpacked")
    return found


def _gunzip(body: bytes) -> bytes:
    """Unpack all members of a gzip file. Arrow's reader takes a file that breaks off as whole."""
    found, rest = b"", body
    while len(found) <= UNPACKED_BYTES_MAX:
        member = zlib.decompressobj(wbits=_GZIP_WBITS)
        try:
            found += member.decompress(rest, UNPACKED_BYTES_MAX + 1 - len(found))
        except zlib.error:
            raise ValueError("not gzip") from None
        rest = member.unused_data
        if member.eof and not rest:
            break
        if not member.eof and len(found) <= UNPACKED_BYTES_MAX:
            raise ValueError("not gzip")
    return found


def _unzstd(body: bytes) -> bytes:
    try:
        with pa.CompressedInputStream(pa.BufferReader(body), ZSTD) as stream:
            found: bytes = stream.read(UNPACKED_BYTES_MAX + 1)
    except (OSError, pa.ArrowException):
        raise ValueError("not zstd") from None
    return found


def read_codec(avro: Path | None, protobuf: str | None) -> Codec | None:
    """Return the codec of a schema file that a command names; raise ConfigError if it is wrong.

    `protobuf` is FILE:MESSAGE, with a file that `protoc --descriptor_set_out` has written.
    """
    if avro is not None:
        _require("fastavro", "Avro")
        return AvroCodec(avro.read_text())
    if protobuf is not None:
        _require("google.protobuf", "Protobuf")
        file, _, message = protobuf.rpartition(":")
        if not file or not message:
            raise ConfigError("--protobuf is FILE:MESSAGE, such as orders.desc:shop.Order")
        return ProtobufCodec(base64.b64encode(Path(file).read_bytes()).decode(), message)
    return None


def restore_codec(stored: dict[str, str]) -> Codec | None:
    """Return the codec that the lake has stored for a table."""
    kind = stored.get("kind")
    if kind == AVRO:
        _require("fastavro", "Avro")
        return AvroCodec(stored["schema"])
    if kind == PROTOBUF:
        _require("google.protobuf", "Protobuf")
        return ProtobufCodec(stored["schema"], stored["message"])
    return None


def _require(package: str, name: str) -> None:
    try:
        found = importlib.util.find_spec(package)
    except ModuleNotFoundError:  # of the package above it
        found = None
    if found is None:
        raise ConfigError(f"{name} needs a package that is not installed: {_INSTALL}")
