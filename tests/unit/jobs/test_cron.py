"""Cron expressions: the next due time."""

import random
from datetime import UTC, datetime, timedelta
from unittest import mock
from zoneinfo import ZoneInfo

import pytest

from leveret.errors import JobsInvalidError
from leveret.job_service.cron import Cron


def ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


@pytest.mark.parametrize(
    ("cron", "after", "due"),
    [
        ("* * * * *", "2024-01-01T00:00:00Z", "2024-01-01T00:01:00Z"),
        ("* * * * *", "2024-01-01T00:00:59.999Z", "2024-01-01T00:01:00Z"),
        ("*/15 * * * *", "2024-01-01T00:46:00Z", "2024-01-01T01:00:00Z"),
        ("5/20 * * * *", "2024-01-01T00:26:00Z", "2024-01-01T00:45:00Z"),
        ("0 3 * * *", "2024-01-01T03:00:00Z", "2024-01-02T03:00:00Z"),
        ("30 9-17/4 * * 1-5", "2024-01-05T17:30:00Z", "2024-01-08T09:30:00Z"),
        ("0 0 * * sun", "2024-01-01T00:00:00Z", "2024-01-07T00:00:00Z"),
        ("0 0 * * 7", "2024-01-01T00:00:00Z", "2024-01-07T00:00:00Z"),
        ("0 0 * * 5-7", "2024-01-06T12:00:00Z", "2024-01-07T00:00:00Z"),
        ("0 0 1 jan,jul *", "2024-01-01T00:00:00Z", "2024-07-01T00:00:00Z"),
        ("0 0 29 2 *", "2024-03-01T00:00:00Z", "2028-02-29T00:00:00Z"),
        ("0 0 13 * 5", "2024-01-01T00:00:00Z", "2024-01-05T00:00:00Z"),
        ("0 0 13 * 5", "2024-01-12T00:00:00Z", "2024-01-13T00:00:00Z"),
        ("0 0 */2 * mon", "2024-01-01T00:00:00Z", "2024-01-15T00:00:00Z"),
        ("0 0 31 * *", "2024-04-01T00:00:00Z", "2024-05-31T00:00:00Z"),
        ("@hourly", "2024-01-01T00:00:01Z", "2024-01-01T01:00:00Z"),
        ("@Weekly", "2024-01-01T00:00:00Z", "2024-01-07T00:00:00Z"),
        ("@yearly", "2024-01-01T00:00:00Z", "2025-01-01T00:00:00Z"),
    ],
)
def test_the_next_time(cron: str, after: str, due: str) -> None:
    assert Cron(cron).next_ms(ms(after)) == ms(due)


def test_times_are_those_of_the_zone() -> None:
    berlin = Cron("0 9 * * *", "Europe/Berlin")
    assert berlin.next_ms(ms("2024-01-10T00:00:00Z")) == ms("2024-01-10T08:00:00Z")
    assert berlin.next_ms(ms("2024-07-10T00:00:00Z")) == ms("2024-07-10T07:00:00Z")


def test_a_time_that_is_left_out_in_spring_is_due_after_the_change() -> None:
    cron = Cron("30 2 * * *", "Europe/Berlin")
    due = cron.next_ms(ms("2024-03-31T00:00:00Z"))
    assert due == ms("2024-03-31T01:30:00Z")  # 03:30 there
    assert due is not None
    assert cron.next_ms(due) == ms("2024-04-01T00:30:00Z")


def test_a_time_that_comes_twice_in_autumn_is_due_once() -> None:
    cron = Cron("30 2 * * *", "Europe/Berlin")
    due = cron.next_ms(ms("2024-10-26T23:00:00Z"))
    assert due == ms("2024-10-27T00:30:00Z")
    assert due is not None
    assert cron.next_ms(due) == ms("2024-10-28T01:30:00Z")


@pytest.mark.parametrize(
    "cron",
    [
        "",
        "* * * *",
        "* * * * * *",
        "60 * * * *",
        "* 24 * * *",
        "* * 0 * *",
        "* * * 13 *",
        "* * * * 8",
        "*/0 * * * *",
        "5-3 * * * *",
        "a * * * *",
        "1,,2 * * * *",
        "*-5 * * * *",
        "1- * * * *",
        "@never",
        "\u0661 * * * *",
        "9" * 500 + " * * * *",
        "00061 * * * *",
    ],
)
def test_what_makes_no_sense_is_refused(cron: str) -> None:
    with pytest.raises(JobsInvalidError) as fault:
        Cron(cron)
    assert fault.value.field == "cron"


def test_what_is_never_due_has_no_next_time() -> None:
    assert Cron("0 0 30 2 *").next_ms(ms("2024-01-01T00:00:00Z")) is None


def test_random_expressions_agree_with_trying_every_minute(seed: int) -> None:
    chance = random.Random(seed)
    zone = ZoneInfo("UTC")
    for _ in range(150):
        minutes = sorted(chance.sample(range(60), chance.randint(1, 4)))
        hours = sorted(chance.sample(range(24), chance.randint(1, 4)))
        weekdays = sorted(chance.sample(range(7), chance.randint(1, 7)))
        fields = [",".join(map(str, some)) for some in (minutes, hours, weekdays)]
        start = datetime(2024, 1, 1, tzinfo=UTC) + timedelta(minutes=chance.randrange(500_000))
        wanted = start.replace(second=0) + timedelta(minutes=1)
        while not (
            wanted.minute in minutes
            and wanted.hour in hours
            and wanted.isoweekday() % 7 in weekdays
        ):
            wanted += timedelta(minutes=1)
        cron = Cron(f"{fields[0]} {fields[1]} * * {fields[2]}")
        found = cron.next_ms(round(start.timestamp() * 1000))
        assert found == round(wanted.astimezone(zone).timestamp() * 1000), (fields, start, seed)


CHANGES = (  # moments near a change of the clock
    ("Europe/Berlin", "2024-03-30T22:00:00Z"),
    ("Europe/Berlin", "2024-10-26T22:00:00Z"),
    ("Australia/Lord_Howe", "2024-04-06T13:00:00Z"),  # by half an hour
    ("Australia/Lord_Howe", "2024-10-05T14:00:00Z"),
    ("America/New_York", "2024-11-03T04:00:00Z"),
)


@pytest.mark.parametrize(("zone", "near"), CHANGES)
def test_near_a_change_of_the_clock_every_local_time_counts_once(
    zone: str, near: str, seed: int
) -> None:
    chance = random.Random(seed)
    start_ms = ms(near)
    first = datetime.fromtimestamp(start_ms / 1000, ZoneInfo(zone)).date()
    for _ in range(20):
        minutes = sorted(chance.sample(range(60), chance.randint(1, 30)))
        hours = sorted(chance.sample(range(5), chance.randint(1, 5)))
        cron = Cron(f"{','.join(map(str, minutes))} {','.join(map(str, hours))} * * *", zone)
        after_ms = start_ms + chance.randrange(6 * 60) * 60_000
        times = [
            datetime(*day.timetuple()[:3], hour, minute, tzinfo=ZoneInfo(zone)).timestamp() * 1000
            for day in (first + timedelta(days=number) for number in range(3))
            for hour in hours
            for minute in minutes
        ]
        # The days follow each other, and the times of a day may not, at a change of the clock.
        of_day = len(hours) * len(minutes)
        days = [times[at : at + of_day] for at in range(0, len(times), of_day)]
        later = [round(min(left)) for day in days if (left := [t for t in day if t > after_ms])]
        assert cron.next_ms(after_ms) == later[0], (minutes, hours, after_ms, seed)


class CountingZone(ZoneInfo):
    """A zone that counts how often a local time is converted."""

    conversions = 0

    def utcoffset(self, moment: datetime | None) -> timedelta | None:
        CountingZone.conversions += 1
        return super().utcoffset(moment)


@pytest.mark.parametrize("cron", ["* * * * *", "0 0 29 2 *", "*/7 * 31 3,10 0"])
def test_the_next_time_needs_few_conversions(cron: str) -> None:
    CountingZone.conversions = 0
    with mock.patch("leveret.job_service.cron.ZoneInfo", CountingZone):
        assert Cron(cron, "Europe/Berlin").next_ms(ms("2024-03-30T22:30:00Z")) is not None
    assert CountingZone.conversions <= 200, "a list has a thousand schedules"
