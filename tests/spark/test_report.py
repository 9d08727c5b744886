"""`report`: all reports of a day on one page, and the days that are kept."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

from pyspark.sql import SparkSession

from leveret.pipeline.flows.report import ReportRequest, report
from tests.spark.test_flows_lake import environment_of
from tests.spark.test_reports_dead_letters import HOSTILE, kill
from tests.spark.timed import timed


def test_a_day_is_one_page_and_days_are_kept(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "reports"
    with timed(tmp_path / "data") as served:
        kill(served)
        environment = environment_of(served, tmp_path)
        now = datetime.fromtimestamp(served.now_s(), UTC)
        done = report(spark, environment, ReportRequest(now.date(), folder, now))
        before = now.date() - timedelta(days=30)
        other = report(spark, environment, ReportRequest(before, folder, now))
    assert set(done.left_out) <= {"jobs"}
    text = done.path.read_text()
    for part in ("Dead letters: By queue", "Latency: By queue, in ms", "Top offenders"):
        assert part in text
    assert f"http://127.0.0.1:{served.server.http_port}/#/trace?id=" in text
    assert HOSTILE not in text and "guest:guest" not in text
    assert "nothing died" in other.path.read_text() or "There is nothing" in other.path.read_text()
    index = (folder / "index.html").read_text()
    for path in (done.path, other.path):
        assert f'href="{path.name}"' in index
