"""Messages as Arrow: every column equals the published message, for any chunks."""

from datetime import UTC, datetime
from random import Random
from typing import Any

import pyarrow as pa
import pytest

from leveret.arrow.requests import COLUMNS
from leveret.arrow.schema import TYPES
from leveret.engine.streams.row_batch import ROWS_MAX
from leveret.errors import CorruptionError
from leveret.wire.properties import Properties, decode_properties
from leveret.wire.tables import Field, field_of, table_of
from tests.unit.arrow.chunks import NUMBER, Sent, chunks, read

TIME = datetime(2023, 11, 14, 22, 13, 20, tzinfo=UTC)


def full_properties() -> Properties:
    properties = Properties()
    properties.content_type = "text/plain"
    properties.content_encoding = "gzip"
    properties.headers = table_of({"tenant": "hare"})
    properties.delivery_mode = 2
    properties.priority = 9
    properties.correlation_id = "c-1"
    properties.reply_to = "answers"
    properties.expiration = "60000"
    properties.message_id = "m-1"
    properties.timestamp = 1_700_000_000
    properties.type = "order"
    properties.user_id = "guest"
    properties.app_id = "shop"
    properties.cluster_id = "c"
    return properties


def row(sent: Sent, **columns: Any) -> dict[str, Any]:
    """Return the only row of a stream with one message."""
    found: dict[str, Any] = read(chunks([sent]), 0, 1).to_pylist()[0]
    return found


def headers_of(**headers: object) -> dict[str, str | None]:
    properties = Properties()
    properties.headers = table_of(headers)
    return dict(row(Sent(properties=properties))["headers"])


def test_types_are_the_ones_that_spark_takes() -> None:
    schema = read(chunks([Sent()]), 0, 1).schema
    assert tuple(schema.names) == COLUMNS == tuple(TYPES)
    plain = {"string", "int64", "int32", "binary", "timestamp[us, tz=UTC]", "map<string, string>"}
    assert {str(field.type) for field in schema if field.name != "x_death"} == plain
    death = schema.field("x_death").type.value_type
    assert [(f.name, str(f.type)) for f in death] == [
        ("queue", "string"),
        ("reason", "string"),
        ("count", "int64"),
        ("exchange", "string"),
        ("routing_keys", "list<element: string>"),
        ("time", "timestamp[us, tz=UTC]"),
        ("original_expiration", "string"),
    ]


def test_every_property_has_its_column() -> None:
    sent = Sent(b"body", full_properties(), "orders", "created")
    assert row(sent) == {
        "stream": "s",
        "offset": 0,
        "timestamp": TIME,
        "broker_id": NUMBER << 40,
        "exchange": "orders",
        "routing_key": "created",
        "content_type": "text/plain",
        "content_encoding": "gzip",
        "headers": [("tenant", "hare")],
        "delivery_mode": 2,
        "priority": 9,
        "correlation_id": "c-1",
        "reply_to": "answers",
        "expiration": "60000",
        "message_id": "m-1",
        "message_timestamp": TIME,
        "type": "order",
        "user_id": "guest",
        "app_id": "shop",
        "x_death": None,
        "properties": sent.header,
        "body": b"body",
    }


def test_message_without_properties_has_nulls() -> None:
    found = row(Sent(b"", exchange="", routing_key=""))
    present = {name for name, value in found.items() if value is not None}
    assert present == {
        "stream", "offset", "timestamp", "broker_id", "exchange", "routing_key", "properties",
        "body",
    }  # fmt: skip


def test_properties_are_the_content_header_as_it_was_sent() -> None:
    sent = [Sent(b"x" * size, full_properties()) for size in (0, 1, 300, 70_000)]
    found = read(chunks(sent[:1], sent[1:]), 0, 4)["properties"].to_pylist()
    assert found == [message.header for message in sent]
    assert decode_properties(found[2]).cluster_id == "c"


def test_headers_of_every_type_are_text() -> None:
    found = headers_of(
        text="ü",
        empty="",
        binary=b"\x00abc",
        byte=Field(ord("b"), -5),
        unsigned_byte=Field(ord("B"), 200),
        short=Field(ord("s"), -300),
        unsigned_short=Field(ord("u"), 60_000),
        signed=Field(ord("I"), -70_000),
        unsigned=Field(ord("i"), 4_000_000_000),
        long=Field(ord("l"), -(1 << 63)),
        yes=True,
        no=False,
        double=0.5,
        float=Field(ord("f"), 0.25),
        decimal=Field(ord("D"), (2, 12_345)),
        small=Field(ord("D"), (3, 7)),
        whole=Field(ord("D"), (0, 7)),
        time=Field(ord("T"), 1_700_000_000),
        nothing=None,
    )
    assert found == {
        "text": "ü",
        "empty": "",
        "binary": "\x00abc",
        "byte": "-5",
        "unsigned_byte": "200",
        "short": "-300",
        "unsigned_short": "60000",
        "signed": "-70000",
        "unsigned": "4000000000",
        "long": "-9223372036854775808",
        "yes": "true",
        "no": "false",
        "double": "0.5",
        "float": "0.25",
        "decimal": "123.45",
        "small": "0.007",
        "whole": "7",
        "time": "1700000000",
        "nothing": None,
    }


def test_tables_and_arrays_in_headers_are_json() -> None:
    inner = {
        "n": 1,
        "b": True,
        "v": None,
        "raw": b"\xff",
        "d": Field(ord("D"), (1, 15)),
        "inf": float("inf"),
        "list": ["ü", {"x": 0.5}],
    }
    found = headers_of(table=inner, array=[1, "two"])
    assert found["array"] == '[1,"two"]'
    assert found["table"] == (
        r'{"n":1,"b":true,"v":null,"raw":"\\xff","d":"1.5","inf":"inf","list":["ü",{"x":0.5}]}'
    )


def test_bytes_that_are_not_utf8_show_as_escapes_and_stay_in_properties() -> None:
    properties = Properties()
    properties.message_id = b"a\xffb".decode("utf-8", "surrogateescape")
    properties.headers = table_of({"k\udcfe": b"\xc3", "l": b"\xa9"})  # whole only side by side
    sent = Sent(properties=properties, routing_key="\udc80")
    found = row(sent)
    assert found["message_id"] == r"a\xffb"
    assert found["headers"] == [(r"k\xfe", r"\xc3"), ("l", r"\xa9")]
    assert found["routing_key"] == r"\x80"
    assert found["properties"] == sent.header


def test_of_two_headers_with_one_name_the_first_counts() -> None:
    properties = Properties()
    properties.headers = table_of({"aa": 1, "ab": 2})
    sent = chunks([Sent(properties=properties)])[0]
    data = sent.replace(b"\x02ab", b"\x02aa")
    fixed = data[:4] + _crc(data) + data[8:]
    assert read([fixed], 0, 1)["headers"].to_pylist() == [[("aa", "1")]]


def _crc(data: bytes) -> bytes:
    from zlib import crc32

    return crc32(data[8:]).to_bytes(4, "little")


def test_deaths_are_structs() -> None:
    death = {
        "count": Field(ord("l"), 3),
        "reason": field_of("expired"),
        "queue": field_of("work"),
        "time": Field(ord("T"), 1_700_000_000),
        "exchange": field_of("orders"),
        "routing-keys": field_of(["a", "b"]),
        "original-expiration": field_of("100"),
    }
    dead, strange, alive = Properties(), Properties(), Properties()
    dead.headers = table_of({"x-death": [death, {}]})
    strange.headers = table_of({"x-death": "not at all"})
    table = read(chunks([Sent(properties=p) for p in (alive, dead, strange, dead)]), 0, 4)
    entry = {
        "queue": "work",
        "reason": "expired",
        "count": 3,
        "exchange": "orders",
        "routing_keys": ["a", "b"],
        "time": TIME,
        "original_expiration": "100",
    }
    empty = dict.fromkeys(entry)
    assert table["x_death"].to_pylist() == [None, [entry, empty], [], [entry, empty]]
    assert '"queue":"work"' in dict(table["headers"].to_pylist()[1])["x-death"]


def test_broker_id_comes_from_its_header_where_there_is_one() -> None:
    numbered, wrong = Properties(), Properties()
    numbered.headers = table_of({"x-broker-id": 123_456_789_012})
    wrong.headers = table_of({"x-broker-id": "no number"})
    sent = [Sent(), Sent(properties=numbered), Sent(properties=wrong)]
    base = NUMBER << 40
    assert read(chunks(sent), 0, 3)["broker_id"].to_pylist() == [base, 123_456_789_012, base + 2]


def test_times_that_do_not_fit_are_null() -> None:
    times = [0, (1 << 63) // 1_000_000 - 1, 1 << 62, (1 << 64) - 1]
    sent = []
    for time in times:
        properties = Properties()
        properties.timestamp = time
        sent.append(Sent(properties=properties))
    found = read(chunks(sent), 0, 4)["message_timestamp"].cast(pa.int64()).to_pylist()
    assert found == [0, times[1] * 1_000_000, None, None]


def test_ranges_are_trimmed_exactly() -> None:
    sent = [Sent(b"%d" % n, time_ms=1000 + n) for n in range(20)]
    made = chunks(sent[:3], sent[3:4], sent[4:15], sent[15:], first_offset=100)
    for first in range(100, 121):
        for end in range(first, 121):
            needed = [m for m in made if _end_of(m) > first]
            table = read(needed, first, end, ("offset", "body", "timestamp", "routing_key"))
            assert table["offset"].to_pylist() == list(range(first, end))
            assert table["body"].to_pylist() == [b"%d" % (n - 100) for n in range(first, end)]
            times = table["timestamp"].cast(pa.int64()).to_pylist()
            assert times == [(900 + n) * 1000 for n in range(first, end)]
            assert set(table["routing_key"].to_pylist()) <= {"s"}


def _end_of(chunk: bytes) -> int:
    return int.from_bytes(chunk[8:16], "little") + int.from_bytes(chunk[32:36], "little")


def test_columns_come_in_the_order_asked_for() -> None:
    table = read(chunks([Sent(b"x")]), 0, 1, ("body", "offset"))
    assert table.to_pylist() == [{"body": b"x", "offset": 0}]
    assert table.schema.names == ["body", "offset"]


@pytest.mark.parametrize("column", COLUMNS)
def test_column_alone_is_the_same_as_among_all(column: str) -> None:
    bare, full = Properties(), full_properties()
    full.headers = table_of({"x-broker-id": 9, "tenant": "hare"})
    dead = Properties()
    dead.headers = table_of({"x-death": [{"queue": "q", "reason": "expired", "count": 2}]})
    dead.app_id = "shop"
    sent = [Sent(b"body", each, "e", "k") for each in (bare, full, dead, bare)]
    made = chunks(sent, [Sent(b"", full)])
    assert read(made, 0, 5, (column,)).equals(read(made, 0, 5).select([column]))


def test_bytes_limit_ends_after_the_message_that_reaches_it() -> None:
    made = chunks([Sent(b"x" * 10)] * 4, [Sent(b"x" * 10)] * 4)
    for limit, rows in ((1, 1), (10, 1), (11, 2), (40, 4), (41, 5), (1000, 8)):
        assert read(made, 0, 8, ("body",), limit).num_rows == rows, limit


def test_small_chunks_become_large_batches() -> None:
    table = read(chunks(*[[Sent(b"x")] for _ in range(3000)]), 0, 3000)
    assert table["body"].num_chunks == 1


def test_bodies_that_are_not_wanted_do_not_make_batches_small() -> None:
    group = [Sent(b"x" * 20_000, routing_key=f"a.key.of.some.length.{n}") for n in range(50)]
    table = read(chunks(*[group] * 20), 0, 1000, ("offset", "routing_key"))
    assert [len(part) for part in table["offset"].chunks] == [1000]
    table = read(chunks(*[group] * 20), 0, 1000, ("offset", "body"))
    assert len(table["offset"].chunks) > 2
    group = [Sent(b"x" * 9_000_000)] * 3
    table = read(chunks(*[group] * 6), 0, 18, ("offset", "properties"))
    assert len(table["offset"].chunks) > 1, "they are read all the same, and somebody waits"


def test_large_chunks_become_several_batches() -> None:
    sent = [Sent(b"x" * 9_000_000), Sent(b"y" * 9_000_000), Sent(b"z")]
    table = read(chunks(sent), 0, 3, ("body",))
    assert [len(part) for part in table["body"].chunks] == [1, 1, 1]
    assert table["body"].to_pylist() == [m.body for m in sent]


def test_wide_headers_do_not_multiply_without_limit() -> None:
    properties = Properties()
    properties.headers = table_of({"wide": "w" * 100_000})
    table = read(chunks([Sent(properties=properties)] * 500), 0, 500)
    assert max(batch.nbytes for batch in table.to_batches()) < 40_000_000
    assert table.num_rows == 500


def test_as_many_rows_as_a_chunk_can_have() -> None:
    sent = [Sent()] * ROWS_MAX
    table = read(chunks(sent, sent[:5]), 0, ROWS_MAX + 5, ("offset", "body"))
    assert table["offset"].to_pylist() == list(range(ROWS_MAX + 5))


def test_random_messages_in_random_chunks(seed: int) -> None:
    print(f"seed {seed}")
    random = Random(seed)
    few = [_random_properties(random) for _ in range(4)]
    sent: list[Sent] = []
    groups: list[list[Sent]] = []
    for _ in range(40):
        is_distinct = random.random() < 0.5
        group = []
        for _ in range(random.choice((1, 1, 2, 17, 300))):
            properties = _random_properties(random) if is_distinct else random.choice(few)
            body = random.randbytes(random.randrange(50))
            group.append(Sent(body, properties, random.choice("ab"), random.choice("xy")))
        groups.append(group)
        sent += group
    first = random.randrange(len(groups[0]))
    end = len(sent) - random.randrange(len(groups[-1]))
    table = read(chunks(*groups), first, end)
    wanted = sent[first:end]
    assert table["offset"].to_pylist() == list(range(first, end))
    assert table["body"].to_pylist() == [m.body for m in wanted]
    assert table["properties"].to_pylist() == [m.header for m in wanted]
    assert table["exchange"].to_pylist() == [m.exchange for m in wanted]
    assert table["routing_key"].to_pylist() == [m.routing_key for m in wanted]
    for name in ("message_id", "content_type", "app_id", "priority", "delivery_mode"):
        assert table[name].to_pylist() == [getattr(m.properties, name) for m in wanted]
    some = tuple(random.sample(COLUMNS, random.randrange(1, 5)))
    assert read(chunks(*groups), first, end, some).equals(table.select(some))
    assert [None if h is None else dict(h) for h in table["headers"].to_pylist()] == [
        None if m.properties.headers is None else {
            k: str(f.value) for k, f in m.properties.headers.items()
        }
        for m in wanted
    ]  # fmt: skip


def _random_properties(random: Random) -> Properties:
    properties = Properties()
    if random.random() < 0.5:
        properties.message_id = f"{random.getrandbits(40)}ü"
    if random.random() < 0.3:
        properties.content_type = random.choice(("", "text/plain"))
    if random.random() < 0.3:
        properties.app_id = "app"
    if random.random() < 0.3:
        properties.priority = random.randrange(256)
    if random.random() < 0.3:
        properties.delivery_mode = 2
    if random.random() < 0.5:
        names = random.sample("abcdef", random.randrange(4))
        properties.headers = table_of({name: random.randrange(9) for name in names})
    return properties


def test_changed_chunk_is_never_read() -> None:
    made = chunks([Sent(b"hello")])[0]
    for at in range(len(made)):
        changed = made[:at] + bytes((made[at] ^ 1,)) + made[at + 1 :]
        with pytest.raises(CorruptionError):
            read([changed], 0, 1)


def test_chunk_that_does_not_follow_is_refused() -> None:
    made = chunks([Sent()], [Sent()], [Sent()])
    with pytest.raises(CorruptionError, match="offset 1 is missing or out of order"):
        read([made[0], made[2]], 0, 3)
