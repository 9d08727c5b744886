"""Cron expressions: the next time at which a schedule is due. Pure: the caller passes the time.

    minute hour day month weekday        0-59 0-23 1-31 1-12 0-7 (0 and 7 are Sunday)

Each field is `*`, a number, a range `a-b`, either with a step `/n`, or several of these separated
by commas. Months and weekdays may have English names. Where both day and weekday are given, a day
that fits one of them is enough, as in other crons. `@hourly`, `@daily`, `@weekly`, `@monthly` and
`@yearly` are abbreviations.

Times are local times of the timezone. A time that the change to summer time skips is due right
after the change. A time that the change back repeats is due the first time.
"""

import re
from bisect import bisect_right
from calendar import monthrange
from collections.abc import Iterator
from datetime import date, datetime
from typing import Final
from zoneinfo import ZoneInfo

from leveret.errors import JobsInvalidError

TEXT_BYTES_MAX: Final = 200
_MONTHS_MAX: Final = 12 * 9  # February 29th may be eight years away
_MINUTE_MS: Final = 60_000
_NAMED: Final = {
    "@hourly": "0 * * * *",
    "@daily": "0 0 * * *",
    "@midnight": "0 0 * * *",
    "@weekly": "0 0 * * 0",
    "@monthly": "0 0 1 * *",
    "@yearly": "0 0 1 1 *",
    "@annually": "0 0 1 1 *",
}
_MONTHS: Final = (
    "jan",
    "feb",
    "mar",
    "apr",
    "may",
    "jun",
    "jul",
    "aug",
    "sep",
    "oct",
    "nov",
    "dec",
)
_WEEKDAYS: Final = ("sun", "mon", "tue", "wed", "thu", "fri", "sat")
_FIELDS: Final = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("weekday", 0, 7, _WEEKDAYS),
)
_PART: Final = re.compile(r"(\*|\w+)(?:-(\w+))?(?:/(\d+))?", re.ASCII)


class Cron:
    """One expression in one timezone; JobsInvalidError where it cannot be read."""

    def __init__(self, text: str, timezone: str = "UTC") -> None:
        if len(text.encode("utf-8", "replace")) > TEXT_BYTES_MAX:
            raise JobsInvalidError(f"cron can have at most {TEXT_BYTES_MAX} bytes", "cron")
        fields = _NAMED.get(text.strip().lower(), text).lower().split()
        if len(fields) != len(_FIELDS):
            raise JobsInvalidError(
                "cron must have five fields: minute hour day month weekday", "cron"
            )
        sets = [_values(f, *rule) for f, rule in zip(fields, _FIELDS, strict=True)]
        self._minutes, self._hours = sorted(sets[0]), sorted(sets[1])
        self._days, self._months = sets[2], sets[3]
        self._weekdays = {day % 7 for day in sets[4]}
        self._is_any_day = fields[2].startswith("*")
        self._is_any_weekday = fields[4].startswith("*")
        self._zone = _zone(timezone)

    def next_ms(self, after_ms: int) -> int | None:
        """Return the first due time after `after_ms`; None where there is none."""
        start = datetime.fromtimestamp(after_ms / 1000, self._zone).date()
        for day in self._days_from(start):
            found = [self._first_ms(day, hour, after_ms) for hour in self._hours]
            due = [ms for ms in found if ms is not None]
            if due:
                return min(due)
        return None

    def _days_from(self, start: date) -> Iterator[date]:
        """Return the days that fit, from a day on. The months that do not fit cost nothing."""
        for number in range(_MONTHS_MAX):
            year, month = divmod(start.year * 12 + start.month - 1 + number, 12)
            if month + 1 in self._months:
                for day in self._days_of(year, month + 1):
                    if day >= start:
                        yield day

    def _days_of(self, year: int, month: int) -> Iterator[date]:
        """Return the days of a month that fit."""
        is_one_enough = not (self._is_any_day or self._is_any_weekday)
        first_weekday, count = monthrange(year, month)
        for day in range(1, count + 1):
            fits_day = day in self._days
            fits_weekday = (first_weekday + day) % 7 in self._weekdays
            if (fits_day or fits_weekday) if is_one_enough else (fits_day and fits_weekday):
                yield date(year, month, day)

    def _first_ms(self, day: date, hour: int, after_ms: int) -> int | None:
        """Return the first due time in an hour after `after_ms`; None if there is none."""
        minutes = self._minutes
        first_ms = self._ms(day, hour, minutes[0])
        last_ms = self._ms(day, hour, minutes[-1])
        if last_ms - first_ms != (minutes[-1] - minutes[0]) * _MINUTE_MS:
            # The clock is changed inside the hour, as on Lord Howe Island.
            each = [self._ms(day, hour, minute) for minute in minutes]
            return min((ms for ms in each if ms > after_ms), default=None)
        if last_ms <= after_ms:
            return None
        # A schedule may have all minutes and hours, and a list may have many schedules.
        index = bisect_right(minutes, minutes[0] + (after_ms - first_ms) // _MINUTE_MS)
        return first_ms + (minutes[index] - minutes[0]) * _MINUTE_MS

    def _ms(self, day: date, hour: int, minute: int) -> int:
        """Return a local time. A skipped time gets the offset before the change."""
        local = datetime(day.year, day.month, day.day, hour, minute, tzinfo=self._zone)
        return round(local.timestamp()) * 1000


def _zone(name: str) -> ZoneInfo:
    try:
        return ZoneInfo(name)
    except (ValueError, OSError, LookupError) as fault:
        raise JobsInvalidError(f"there is no timezone {name}", "timezone") from fault


def _values(field: str, name: str, least: int, most: int, names: tuple[str, ...]) -> set[int]:
    found: set[int] = set()
    for part in field.split(","):
        found.update(_part(part, name, least, most, names))
    return found


def _part(part: str, name: str, least: int, most: int, names: tuple[str, ...]) -> range:
    match = _PART.fullmatch(part)
    if match is None:
        raise JobsInvalidError(f"cron: {part!r} is no {name}", "cron")
    first, last, step = match.groups()
    if first == "*":
        low, high = least, most - (name == "weekday")
        if last is not None:
            raise JobsInvalidError(f"cron: {part!r} is no {name}", "cron")
    else:
        low = _number(first, name, least, most, names)
        high = _number(last, name, least, most, names) if last is not None else low
        if last is None and step is not None:
            high = most
    if low > high or step == "0" or (step is not None and int(step) == 0):
        raise JobsInvalidError(f"cron: {part!r} is empty", "cron")
    return range(low, high + 1, int(step or 1))


def _number(text: str, name: str, least: int, most: int, names: tuple[str, ...]) -> int:
    if text in names:
        return names.index(text) + (1 if name == "month" else 0)
    if not text.isdecimal() or not least <= int(text) <= most:
        raise JobsInvalidError(f"cron: {name} must be from {least} to {most}, not {text}", "cron")
    return int(text)
