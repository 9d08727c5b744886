"""`report`: all reports of one day (UTC) on one page, kept in a folder by date.

A part that does not apply is left out, and the page says why: no queue remembers, there is no queue
for dead letters, or the jobs service does not answer. Jobs have no history, so only the report of
the present day has them.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession

from leveret.charts.charts import Link, Page, Part, Table
from leveret.charts.page import page_html
from leveret.errors import LeveretError
from leveret.lake.layout import replace_file
from leveret.pipeline.environment import Environment, without_login
from leveret.pipeline.flows import deadletters, jobs_report, latency
from leveret.pipeline.jobs_access import JobsAccess
from leveret.pipeline.report_pages import dead_letter_page, jobs_page, latency_page
from leveret.pipeline.snapshot import take_snapshot

TOP: Final = 20  # rows of a table
WINDOW_S: Final = 3600
INDEX: Final = "index.html"


@dataclass(frozen=True)
class ReportRequest:
    """The day of a report, and the folder of all reports."""

    day: date
    folder: Path
    now: datetime  # in UTC
    token: str | None = None  # for the jobs service; None: a token for the login


@dataclass(frozen=True)
class Reported:
    """The result: the page, and the parts that were left out, with the reason."""

    path: Path
    left_out: dict[str, str]


def report(spark: SparkSession, environment: Environment, request: ReportRequest) -> Reported:
    """Write the page of a day, and the list of all days."""
    start = datetime.combine(request.day, datetime.min.time(), request.now.tzinfo)
    since, until = start.isoformat(), (start + timedelta(days=1)).isoformat()
    makers: dict[str, Callable[[], list[Page]]] = {
        "dead letters": lambda: [_dead_letters(spark, environment, since, until)],
        "latency": lambda: _latencies(spark, environment, since, until),
    }
    if request.day == request.now.date():
        makers["jobs"] = lambda: [_jobs(environment, request)]
    pages: list[Page] = []
    left_out: dict[str, str] = {}
    for name, make in makers.items():
        try:
            pages += make()
        except LeveretError as error:
            left_out[name] = str(error)
    path = request.folder / f"{request.day.isoformat()}.html"
    replace_file(path, page_html(one_page(request.day, pages, left_out)))
    replace_file(request.folder / INDEX, page_html(index_page(request.folder)))
    return Reported(path, left_out)


def one_page(day: date, pages: list[Page], left_out: dict[str, str]) -> Page:
    """Return several reports as one page. Their titles begin the titles of the parts."""
    parts: list[Part] = []
    figures: list[tuple[str, str]] = []
    for page in pages:
        figures += page.figures
        parts += [replace(part, title=f"{page.title}: {part.title}") for part in page.parts]
    if left_out:
        rows: list[list[Any]] = [[name, why] for name, why in left_out.items()]
        parts.append(Table("Not in this report", ["part", "reason"], rows))
    return Page(f"Report of {day.isoformat()}", "From 00:00 to 24:00 UTC", figures, parts)


def index_page(folder: Path) -> Page:
    """Return the list of all days, the newest first."""
    names = sorted((path.stem for path in folder.glob("????-??-??.html")), reverse=True)
    rows: list[list[Any]] = [[Link(name, f"{name}.html")] for name in names]
    return Page("Reports", f"{len(names)} days", [], [Table("Days", ["day"], rows)])


def _dead_letters(spark: SparkSession, environment: Environment, since: str, until: str) -> Page:
    sources = deadletters.Sources(deadletters.dead_letter_queues(environment))
    frame = deadletters.read_dead_letters(spark, environment, sources, since, until)
    found = deadletters.report(frame, TOP)
    return dead_letter_page(found, sources.names(), without_login(environment.url))


def _latencies(spark: SparkSession, environment: Environment, since: str, until: str) -> list[Page]:
    """Return a page for each stream of life events."""
    pages = []
    for one in take_snapshot(environment).chronicles:
        asked = latency.LatencyRequest(one.name, WINDOW_S, since=since, until=until)
        durations = latency.read_durations(spark, environment, asked)
        pages.append(latency_page(latency.report(durations, WINDOW_S), one.name))
    return pages


def _jobs(environment: Environment, request: ReportRequest) -> Page:
    access = JobsAccess(environment, request.token, "default")
    try:
        found = jobs_report.report_over_http(access.client(), None, TOP, request.now)
    finally:
        access.close()
    return jobs_page(found, "From the jobs service")
