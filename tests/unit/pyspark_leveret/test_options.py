"""Options and schemas: defaults, and errors."""

import pickle
from typing import Any

import pytest
from pyspark.sql.types import StructType

from pyspark_leveret import DefaultSource
from pyspark_leveret.errors import BrokerError, DataLostError, OptionError
from pyspark_leveret.messages import MessageBuilder
from pyspark_leveret.options import PARTITION_RECORDS, parse_options
from pyspark_leveret.queue import PeekReader, QueueStreamReader
from pyspark_leveret.schema import require_columns


def typed(columns: str) -> StructType:
    """A schema of plain types: `StructType.fromDDL` asks a running Spark."""
    found = StructType()
    for column in columns.split(", "):
        name, kind = column.split()
        found = found.add(name, kind)
    return found


URL = {"url": "http://me:p%40ss@host:8080"}


def test_options_have_defaults_and_any_case() -> None:
    found = parse_options(
        {"URL": "http://me:p%40ss@host:8080", "Stream": "s", "MAXRECORDSPERTRIGGER": "5"}
    )
    assert (found.url.host, found.url.port, found.url.user) == ("host", 8080, "me")
    assert found.url.password == "p@ss"
    assert (found.vhost, found.stream, found.trigger_records) == ("/", "s", 5)
    assert (found.fails_on_loss, found.partition_records) == (True, PARTITION_RECORDS)
    assert "p@ss" not in repr(found)


def test_ports_have_defaults() -> None:
    assert parse_options({"url": "http://host"}).url.port == 15672
    assert parse_options({"url": "https://host"}).url.port == 15671


def test_several_addresses_share_the_login_of_the_first() -> None:
    found = parse_options({"url": "http://me:p,w@a:1, https://b,http://you:x@c:3"})
    assert [(url.shown, url.user, url.password) for url in found.urls] == [
        ("http://a:1", "me", "p,w"),
        ("https://b:15671", "me", "p,w"),
        ("http://c:3", "you", "x"),
    ]
    assert [found.at_address(number).url.host for number in range(4)] == ["a", "b", "c", "a"]
    assert [url.host for url in found.at_address(2).urls] == ["c", "a", "b"]


def test_columns_of_the_options_are_the_schema() -> None:
    source = DefaultSource({**URL, "stream": "s", "columns": "routing_key, offset"})
    assert source.schema() == "`routing_key` string, `offset` bigint"
    with pytest.raises(OptionError, match="no column 'value'"):
        DefaultSource({**URL, "columns": "value"}).schema()
    with pytest.raises(OptionError, match="names 'offset' twice"):
        DefaultSource({**URL, "columns": "offset,offset"}).schema()


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({}, "the option 'url' is missing"),
        ({"url": "nonsense"}, "is not an address such as"),
        ({"url": "http://host:port"}, "is not an address such as"),
        ({**URL, "startingOffset": "5"}, "did you mean 'startingOffsets'"),
        ({**URL, "startingOffsets": "soon"}, "'earliest', 'latest', an offset"),
        ({**URL, "startingOffsets": '{"s": "x"}'}, "'earliest', 'latest', an offset"),
        ({**URL, "startingOffsets": '{"s": -3}'}, "-2 is the earliest, -1 the latest"),
        ({**URL, "startingOffsets": "5", "startingTimestamp": "0"}, "not both"),
        ({**URL, "endingOffsets": "5", "endingTimestamp": "0"}, "'endingTimestamp', not both"),
        ({**URL, "amqpPort": "65536"}, "'amqpPort' is a number from 1 to 65535"),
        ({**URL, "stream": "s", "queue": "q"}, "give one of the options"),
        ({**URL, "minPartitions": "0"}, "a number from 1 on"),
        ({**URL, "failOnDataLoss": "maybe"}, "true or false"),
        ({**URL, "mode": "destroy"}, "'mode' is 'peek' or 'lease'"),
        ({**URL, "retrySeconds": "-1"}, "a number of seconds"),
        ({**URL, "queue": "q", "lake": "/lake"}, "'lake' needs the option 'stream'"),
        ({**URL, "stream": "s", "lake": "/lake", "endingOffsets": "5"}, r"use where\(\) on offset"),
    ],
)
def test_wrong_options_say_what_is_wrong(options: dict[str, str], text: str) -> None:
    with pytest.raises(OptionError, match=text):
        parse_options(options)


def test_unknown_options_are_left_to_spark() -> None:
    parse_options({**URL, "checkpointLocation": "/somewhere", "path": "/lake", "queryName": "q"})


def test_schema_of_the_caller_is_some_of_our_columns() -> None:
    assert require_columns(typed("body binary, offset long")) == ["body", "offset"]
    with pytest.raises(OptionError, match="is of type bigint, not int"):
        require_columns(typed("offset integer"))
    with pytest.raises(OptionError, match="no column 'value'"):
        require_columns(typed("value binary"))


@pytest.mark.parametrize(
    ("options", "columns", "text"),
    [
        ({"queue": "q"}, "id integer", "needs a column 'body'"),
        ({"queue": "q"}, "body string, id integer", "no column 'id' can be written"),
        ({"queue": "q"}, "body string, headers string", "is of type map<string,string>"),
        ({"queue": "q", "deduplicationColumn": "id"}, "body string", "there is no such column"),
        ({"exchange": "e"}, "body string", "give the option 'routing_key'"),
        ({}, "body string, routing_key string", "give one of 'queue', 'stream', 'exchange'"),
    ],
)
def test_table_that_cannot_be_written_is_refused(
    options: dict[str, str], columns: str, text: str
) -> None:
    with pytest.raises(OptionError, match=text):
        MessageBuilder(parse_options({**URL, **options}), typed(columns))


def test_streaming_queries_lease_queues_and_batches_peek() -> None:
    with pytest.raises(OptionError, match="give the option 'reader'"):
        QueueStreamReader(parse_options({**URL, "queue": "q"}), [])
    with pytest.raises(OptionError, match=r"'peek' is for spark\.read"):
        QueueStreamReader(parse_options({**URL, "queue": "q", "reader": "r", "mode": "peek"}), [])
    with pytest.raises(OptionError, match=r"use spark\.readStream"):
        PeekReader(parse_options({**URL, "queue": "q", "mode": "lease"}), [])


def test_streaming_queries_do_not_read_the_lake() -> None:
    source = DefaultSource({**URL, "stream": "s", "lake": "/lake"})
    with pytest.raises(OptionError, match=r"'lake' is for spark\.read"):
        source.streamReader(typed("body binary"))


def test_overwrite_is_refused() -> None:
    source = DefaultSource({**URL, "queue": "q"})
    with pytest.raises(OptionError, match=r"Use mode\('append'\)"):
        source.writer(typed("body binary"), overwrite=True)


def copied(thing: object) -> Any:
    return pickle.loads(pickle.dumps(thing))  # noqa: S301


def test_readers_and_errors_can_be_sent_to_executors() -> None:
    schema = typed("body binary")
    for options in ({"stream": "s"}, {"queue": "q"}):
        source = DefaultSource({**URL, **options})
        assert copied(source.reader(schema)) is not None
    for fault in (BrokerError("text", 404), DataLostError("text", 5)):
        again = copied(fault)
        assert (str(again), vars(again)) == (str(fault), vars(fault))
