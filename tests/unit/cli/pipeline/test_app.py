"""`leveret pipeline …` with wrong options: one sentence and a code, before Spark is started."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest
import typer
from py4j.protocol import Py4JNetworkError  # type: ignore[import-untyped]
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from leveret.cli.app import make_app
from leveret.cli.pipeline.options import one_line_on_failure
from leveret.errors import LeveretError
from leveret.pipeline import session
from leveret.pipeline.environment import NO_SPARK
from leveret.testing.broker import RunningBroker, broker
from tests.http.management import Api, add_user
from tools.ports import free_port

APP = make_app("pipeline")


@pytest.fixture(scope="module")
def served() -> Iterator[RunningBroker]:
    """A broker with a stream `s` and a queue `q`."""
    with broker(http=True) as server:
        connection = pika.BlockingConnection(pika.URLParameters(server.url))
        channel = connection.channel()
        channel.queue_declare("s", durable=True, arguments={"x-queue-type": "stream"})
        channel.queue_declare("q", durable=True)
        connection.close()
        yield server


def refusal(url: str, words: str, lake: Path | None = None, **options: str) -> str:
    """Run a command that fails and return its one line."""
    given = ["--url", url, *([] if lake is None else ["--lake", str(lake)])]
    for name, value in options.items():
        given += [f"--{name}", value]
    done: Any = CliRunner().invoke(APP, ["pipeline", *words.split(), *given])
    assert done.exit_code == 1, done.output
    assert SparkSession.getActiveSession() is None, "Spark was started for nothing"
    assert done.stdout == ""
    assert done.stderr.startswith("leveret pipeline: ")
    assert done.stderr.count("\n") == 1, done.stderr
    return str(done.stderr).removeprefix("leveret pipeline: ").rstrip()


def http(served: RunningBroker, login: str = "guest:guest") -> str:
    return f"http://{login}@127.0.0.1:{served.http_port}"


class SparkFailure(PySparkException):
    """An error of the JVM, whose stack trace has the reason."""

    _stackTrace = "Job aborted\nCaused by: java.io.IOException: No space left on device"  # noqa: N815


@pytest.mark.parametrize(
    ("fault", "line"),
    [
        (
            OSError("LocalFileSystem error\n  \x1b[31m↳\x1b[0m No space left on device\n"),
            "LocalFileSystem error: No space left on device",
        ),
        (
            SparkFailure("[TASK_WRITE_FAILED] Task failed while writing rows to file:/lake."),
            "No space left on device; a file of the lake or of Spark could not be written",
        ),
    ],
)
def test_a_full_disk_is_one_sentence(
    fault: Exception, line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit), one_line_on_failure():
        raise fault
    assert capsys.readouterr().err == f"leveret pipeline: {line}\n"


@pytest.mark.parametrize("after", [Py4JNetworkError, LeveretError, OSError])
def test_ctrl_c_is_an_interrupt_even_if_cleanup_fails(
    after: type[Exception], capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(typer.Exit) as ended, one_line_on_failure():
        try:
            raise KeyboardInterrupt
        finally:
            raise after("Answer from Java side is empty")
    assert ended.value.exit_code == 130
    assert capsys.readouterr().err == "leveret pipeline: interrupted\n"


COMMANDS = (
    "sql -q x",
    "archive s --once",
    "replay s --to-queue q",
    "load FILE --to-queue q",
    "load FILE --jobs a/b",
    "audit",
    "deadletters",
    "jobs-report",
    "latency s",
)


@pytest.mark.parametrize("words", COMMANDS)
def test_a_broker_error_is_one_sentence(served: RunningBroker, words: str, tmp_path: Path) -> None:
    (tmp_path / "rows.csv").write_text("a\n1\n")
    words = words.replace("FILE", str(tmp_path / "rows.csv"))
    lake = tmp_path if words.startswith("archive") else None
    assert refusal("nonsense", words, lake).startswith("'url' is not an address")
    port = free_port()
    away = refusal(f"http://127.0.0.1:{port}", words, lake)
    assert away.startswith(f"the broker at http://127.0.0.1:{port} does not answer")
    assert "401" in refusal(http(served, "guest:wrong"), words, lake)


def test_an_invalid_address_is_one_sentence_also_with_a_separate_user() -> None:
    assert refusal("http://[::1", "sql -q x", user="me").startswith("--url is not an address")


def test_a_missing_queue_or_stream_is_named(served: RunningBroker, tmp_path: Path) -> None:
    url = http(served)
    assert "no stream 'none'" in refusal(url, "archive none --once", tmp_path)
    assert "no stream 'none'" in refusal(url, "replay none --to-queue q")
    assert "there is no queue 'none' in vhost '/'" in refusal(url, "replay s --to-queue none")
    assert "no exchange 'none'" in refusal(url, "replay s --to-exchange none")
    assert "remembers nothing" in refusal(url, "archive --queue q", tmp_path)
    for words in ("archive --queue none", "latency --queue none", "deadletters none"):
        assert "there is no queue 'none' in vhost '/'" in refusal(url, words, tmp_path)
    (tmp_path / "rows.csv").write_text("a\n1\n")
    load = f"load {tmp_path / 'rows.csv'}"
    assert "there is no queue 'none' in vhost '/'" in refusal(url, f"{load} --to-queue none")
    assert "is not a stream" in refusal(url, f"{load} --to-stream q")
    assert "no exchange 'none'" in refusal(url, f"{load} --to-exchange none")
    assert "no stream 'none'" in refusal(url, "latency none")
    assert "vhost 'none'" in refusal(url, "archive s --once", tmp_path, vhost="none")


@pytest.mark.parametrize(
    "words", ["replay s --to-queue q --since", "deadletters q --until", "latency s --since"]
)
def test_an_invalid_time_is_named(served: RunningBroker, words: str) -> None:
    for text in ("yesterday", "2026-13-01", "soon"):
        option = words.rpartition(" ")[2]
        assert refusal(http(served), f"{words} {text}").startswith(f"{option} is a time, such as")


def test_a_user_without_tags_is_not_refused_for_looking(served: RunningBroker) -> None:
    add_user(Api(served), "reader", read=".*", write=".*")
    found = refusal(http(served, "reader:reader"), "replay s --to-queue q", master="nonsense")
    assert found.startswith("--master ")


def test_a_user_who_may_read_one_stream_only_is_not_refused(served: RunningBroker) -> None:
    add_user(Api(served), "little", read="^s$", write="^q$")
    url = http(served, "little:little")
    assert refusal(url, "replay s --to-queue q", master="nonsense").startswith("--master ")
    assert "the user 'little' may not read the stream 'x'" in refusal(url, "latency x")


def test_a_missing_lake_table_is_named(served: RunningBroker, tmp_path: Path) -> None:
    url = http(served)
    for words in ("compact none", "refine none", "replay none --from-lake --to-queue q"):
        assert "no bronze table 'none'" in refusal(url, words, tmp_path)
        assert "there is no lake" in refusal(url, words, tmp_path / "none")
    assert refusal(url, "archive s --once") == "give --lake DIR: the directory of the lake"
    assert refusal(url, f"load {tmp_path / 'none.csv'} --to-queue q").endswith("no such file")


def test_a_lake_that_cannot_be_written_is_named(served: RunningBroker, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    found = refusal(http(served), "archive s --once", tmp_path / "file" / "lake")
    assert found.endswith(f"cannot be the lake: {tmp_path / 'file'} is not a directory")


def test_an_unreachable_master_is_named(
    served: RunningBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HADOOP_CONF_DIR", raising=False)
    monkeypatch.delenv("YARN_CONF_DIR", raising=False)
    for master in ("nonsense", "local[0]", "spark://here", "yarn"):
        assert refusal(http(served), "sql -q x", master=master).startswith("--master ")
    master = f"spark://127.0.0.1:{free_port()}"
    found = refusal(http(served), "sql -q x", master=master)
    assert found.startswith(f"no Spark master answers at {master}: ")


def test_commands_that_start_no_spark_have_no_master() -> None:
    for words in ("status", "files s"):
        done: Any = CliRunner().invoke(APP, ["pipeline", *words.split(), "--master", "local[1]"])
        assert done.exit_code == 2
        assert "--master" in done.stderr


# Runs a command where neither PySpark nor pyarrow is installed.
WITHOUT_SPARK = """
import importlib.util, sys
find_spec = importlib.util.find_spec
missing = "pyspark", "pyarrow"
sys.modules.update(dict.fromkeys(missing))
importlib.util.find_spec = lambda name: None if name in missing else find_spec(name)
from leveret.cli.main import main
sys.exit(main(["pipeline", "status", "--lake", "lake"]))
"""


def test_without_pyspark_one_sentence_says_how_to_get_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPARK], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stderr) == (1, f"leveret pipeline: {NO_SPARK}\n")


def test_without_java_one_sentence_says_so(
    served: RunningBroker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(session, "_FOLDERS", ())
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert refusal(http(served), "sql -q x") == session.NO_JAVA
