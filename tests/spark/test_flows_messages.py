"""The flows replay, load and sql, and their commands."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pika
import pytest
from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from leveret.cli.app import make_app
from leveret.pipeline.environment import Environment
from leveret.pipeline.flows.load import LoadTarget, load
from leveret.pipeline.flows.replay import (
    Selection,
    Target,
    drops_duplicates,
    replay,
    select_messages,
    summarize,
)
from leveret.pipeline.flows.sql import Tables
from pyspark_leveret.client import Broker
from pyspark_leveret.errors import BrokerError
from pyspark_leveret.options import parse_options
from pyspark_leveret.schema import TYPES
from tests.spark.lake import Served
from tests.spark.test_flows_lake import archived, environment_of
from tools.ports import free_port

APP = make_app("pipeline")


ONCE = {"x-deduplication": {"size": 1000}}


def run(environment: Environment, *words: str) -> Any:
    given = ["--url", environment.url, "--lake", str(environment.lake_path), "--json"]
    return CliRunner().invoke(APP, ["pipeline", *words, *given])


def test_replay_from_stream_and_lake_sends_each_message_once(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    environment = environment_of(served, tmp_path)
    served.fill("s", 0, 20)
    archived(spark, environment)
    with served.channel() as opened:
        opened.queue_declare("q", durable=True, arguments=ONCE)
    target = Target(queue="q", rate=100_000)
    assert drops_duplicates(environment, target)
    for is_from_lake in (False, True):
        choice = Selection("s", is_from_lake, key="s", where="offset >= 5 and body <> '7'")
        frame = select_messages(spark, environment, choice)
        assert summarize(frame)["messages"] == 14
        replay(frame, environment, target, "again")
    assert [int(body) for body in served.take_all("q")] == [5, 6, *range(8, 20)]


def test_replay_without_yes_only_counts(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    environment = environment_of(served, tmp_path)
    served.fill("s", 0, 3)
    with served.channel() as opened:
        opened.queue_declare("q", durable=True)
    done = run(environment, "replay", "s", "--to-queue", "q")
    assert done.exit_code == 0, done.output
    found = json.loads(done.stdout)
    assert (found["messages"], found["replayed"], found["deduplicated"]) == (3, False, False)
    assert served.count("q") == 0
    assert (
        run(environment, "replay", "s", "--to-queue", "q", "--yes", "--rate", "1000").exit_code == 0
    )
    with served.channel() as opened:
        _, properties, _ = opened.basic_get("q", auto_ack=True)
    assert properties.headers["x-replayed-from"] == "s"
    assert properties.headers["x-replayed-offset"] == 0


def test_load_publishes_rows_in_their_order_and_once(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    with served.channel() as opened:
        opened.queue_declare("q", durable=True, arguments=ONCE)
    first, second = tmp_path / "a.csv", tmp_path / "b.jsonl"
    first.write_text("id,name\n" + "".join(f"{n:03},x\n" for n in range(50)))
    second.write_text('{"id": 50, "name": "y"}\n')
    environment = environment_of(served, tmp_path)
    for known in (0, 51):
        done = load(spark, environment, [first, second], None, LoadTarget(queue="q"))
        assert (done.messages, done.known) == (51, known)
    found = [json.loads(body) for body in served.take_all("q")]
    assert found[0] == {"id": "000", "name": "x"}, "leading zeros survive"
    assert [int(one["id"]) for one in found] == list(range(51))
    assert found[50] == {"id": 50, "name": "y"}


def test_load_tells_what_it_skips_and_what_it_published(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    with served.channel() as opened:
        opened.queue_declare("q", durable=True, arguments=ONCE)
    file = tmp_path / "messages.csv"
    file.write_text("offset,body,priority\n7,one,3\n8,two,\n")
    environment = environment_of(served, tmp_path)
    found = []
    for _ in range(2):
        done = run(environment, "load", str(file), "--to-queue", "q", "--id", "march")
        assert done.exit_code == 0, done.output
        assert done.stderr == f"{file}: 2 rows; skips the columns offset\n"
        found.append(json.loads(done.stdout))
    assert found == [
        {"messages": 2, "new": 2, "known": 0, "id": "march"},
        {"messages": 2, "new": 0, "known": 2, "id": "march"},
    ]
    with served.channel() as opened:
        _, properties, body = opened.basic_get("q", auto_ack=True)
    assert (properties.priority, body) == (3, b"one")


def test_load_guesses_types_only_if_asked(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    with served.channel() as opened:
        opened.queue_declare("q", durable=True)
    file = tmp_path / "a.csv"
    file.write_text("zip,n\n01234,5\n")
    environment = environment_of(served, tmp_path)
    for more in ([], ["--infer-types"]):
        done = run(environment, "load", str(file), "--to-queue", "q", *more)
        assert done.exit_code == 0, done.output
        assert "no x-deduplication" in done.stderr
    found = [json.loads(body) for body in served.take_all("q")]
    assert found == [{"zip": "01234", "n": "5"}, {"zip": 1234, "n": 5}]


@pytest.mark.parametrize(
    ("name", "text"),
    [("a.jsonl", '{"id": 1}\n{"id": \n'), ("b.csv", "id\n1\n2,lost\n"), ("c.parquet", "none")],
)
def test_a_file_with_a_broken_row_sends_nothing(
    spark: SparkSession, served: Served, tmp_path: Path, name: str, text: str
) -> None:
    with served.channel() as opened:
        opened.queue_declare("q", durable=True)
    (tmp_path / name).write_text(text)
    done = run(environment_of(served, tmp_path), "load", str(tmp_path / name), "--to-queue", "q")
    assert done.exit_code == 1
    assert f"{name} cannot be loaded: " in done.stderr and done.stderr.count("\n") == 1
    assert served.count("q") == 0


def test_sql_ignores_string_literals_and_distinguishes_similar_names(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    served.fill("a.b", 0, 1)
    served.fill("a_b", 0, 2)
    tables = Tables(spark, Environment(served.http))
    query = "select 'from a_b' as x -- from a_b\nfrom stream.`a.b`"
    assert tables.rows(query, 10) == [{"x": "from a_b"}]
    both = "select count(*) as n from stream.`a.b` union all select count(*) from stream.a_b"
    assert [row["n"] for row in tables.rows(both, 10)] == [1, 2]
    assert tables.rows("select 1 as n, 2 as n, 3 as N", 10) == [{"n": 1, "n_2": 2, "N_3": 3}]
    with pytest.raises(AnalysisException, match=r"Did you mean.*`routing_key`"):
        tables.run("select rooting_key from stream.a_b")


def test_sql_asks_streams_queues_and_lake(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    environment = environment_of(served, tmp_path)
    served.fill("s", 0, 12)
    served.fill("work.todo", 0, 3, "classic")
    archived(spark, environment)
    served.fill("s", 12, 15)
    tables = Tables(spark, environment)
    both = "select count(*) as n from s union all select count(*) from bronze.s"
    assert [row["n"] for row in tables.rows(both, 10)] == [15, 12]
    joined = (
        "select cast(q.body as string) as text from queue.`work.todo` q"
        " join stream.s on q.body = stream_s.body order by 1 desc"
    )
    assert tables.rows(joined, 10) == [{"text": "2"}, {"text": "1"}, {"text": "0"}]
    assert served.count("work.todo") == 3
    star = tables.rows("select * from s where offset = 14;", 10)[0]
    assert (star["stream"], star["body"], star["date"]) == ("s", "14", star["timestamp"][:10])
    assert tables.names() == ["bronze.s", "stream.s", "queue.work.todo"]


def test_commands_archive_and_answer(spark: SparkSession, served: Served, tmp_path: Path) -> None:
    environment = environment_of(served, tmp_path)
    with served.channel() as opened:
        opened.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        kind = pika.BasicProperties(content_type="application/json")
        for number in range(4):
            opened.basic_publish("", "s", b'{"amount": %d}' % number, kind)
    done = run(environment, "archive", "s", "--once")
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)["rows"] == 4
    assert run(environment, "refine", "s").exit_code == 0
    done = run(environment, "sql", "-q", "select sum(payload.amount) as total from silver.s")
    assert json.loads(done.stdout) == [{"total": 6}]
    assert len(json.loads(run(environment, "files", "s").stdout)) == 1
    shown = json.loads(run(environment, "refine", "s", "--show-schema").stdout)
    assert shown == [{"field": "amount", "type": "bigint"}]
    tables = Tables(spark, environment)
    for name in tables.names():
        columns = [row["col_name"] for row in tables.rows(f"describe {name}", 50)]
        assert "stream" in columns and "date" in columns, name
    described = [row["col_name"] for row in tables.rows("DESC TABLE stream.s;", 50)]
    assert described == [*TYPES, "date"]
    require_notices(replace(environment, url=f"http://127.0.0.1:{free_port()}"))


def require_notices(away: Environment) -> None:
    """Ask for a stream of four archived messages while the broker does not answer."""
    query = (
        "select count(*) as n, max(one.offset) as last from s one join s on one.offset = s.offset"
    )
    done = run(away, "sql", "-q", query)
    assert json.loads(done.stdout) == [{"n": 4, "last": 3}]
    assert "does not answer" in done.stderr and done.stderr.count("\n") == 1
    assert "; only archived messages are in the answer: s before offset 4\n" in done.stderr
    done = run(away, "sql", "-q", "\\d")
    assert {"table": "bronze.s"} in json.loads(done.stdout)
    assert done.stderr.endswith("; only tables of the lake are listed\n")
    whole = run(
        away, "sql", "-q", "with x as (select 1 as n) select n from x join bronze.s limit 1"
    )
    assert (json.loads(whole.stdout), whole.stderr) == ([{"n": 1}], "")
    done = run(away, "sql", "-q", "select count(*) from nothing")
    assert (done.exit_code, done.stderr.count("\n")) == (1, 1)
    unknown = "the lake has no such table, and whether 'nothing' is a stream is not known: "
    assert unknown in done.stderr and "does not answer" in done.stderr


def test_sql_names_a_stream_that_the_user_may_not_read_but_lets_spark_resolve_its_own_names(
    spark: SparkSession, served: Served, tmp_path: Path
) -> None:
    served.fill("s", 0, 3)
    served.fill("q", 0, 1, "classic")
    broker = Broker(parse_options({"url": served.http}))
    broker.ask("PUT", "/api/users/ann", {"password": "secret", "tags": ""})
    rights = {"configure": "", "write": "", "read": "^(s|q)$"}
    broker.ask("PUT", "/api/permissions/%2F/ann", rights)
    url = served.http.replace("guest:guest", "ann:secret")
    tables = Tables(spark, Environment(url))
    query = "with last as (select max(offset) as n from s) select n from last"
    assert tables.rows(query, 10) == [{"n": 2}]
    with pytest.raises(BrokerError, match="the user 'ann' may not read the stream 'other'"):
        tables.run("select * from other")
    with pytest.raises(BrokerError, match=r"'q' is a queue, and no stream: write queue\.`q`"):
        tables.run("select * from q")


@pytest.mark.parametrize(
    ("words", "text"),
    [
        (["archive", "nothing", "--once"], "there is no stream 'nothing'"),
        (["compact", "nothing"], "there is no lake: "),
        (["sql", "-q", "select * from queue.nothing"], "there is no queue 'nothing' in vhost '/'"),
        (
            ["sql", "-q", "select no_such_column from bronze"],
            "there is no stream and no table bronze: ",
        ),
        (["sql", "-q", "select 1 / 0"], "DIVIDE_BY_ZERO"),
        (["sql", "-q", "selec 1"], "PARSE_SYNTAX_ERROR"),
        (["load", "no.csv", "--to-queue", "q"], "no.csv: no such file"),
    ],
)
def test_errors_are_one_line(
    spark: SparkSession, served: Served, tmp_path: Path, words: list[str], text: str
) -> None:
    done = run(environment_of(served, tmp_path), *words)
    assert done.exit_code == 1
    assert text in done.stderr and done.stderr.count("\n") == 1
