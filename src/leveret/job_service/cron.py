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
from datetime import date, datetime, timedelta
from typing import Final
from zoneinfo import ZoneInfo

from leveret.errors import JobsInvalidError

TEXT_BYTES_MAX: Final = 200
_DAYS_MAX: Final = 366 * 9  # February 29th may be eight years away
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
        day = datetime.fromtimestamp(after_ms / 1000, self._zone).date()
        for _ in range(_DAYS_MAX):
            if self._fits(day):
                found = [ms for ms in self._times_ms(day) if ms > after_ms]
                if found:
                    return min(found)
            day += timedelta(days=1)
        return None

    def _fits(self, day: date) -> bool:
        if day.month not in self._months:
            return False
        fits_day = day.day in self._days
        fits_weekday = day.isoweekday() % 7 in self._weekdays
        if self._is_any_day or self._is_any_weekday:
            return fits_day and fits_weekday
        return fits_day or fits_weekday

    def _times_ms(self, day: date) -> list[int]:
        """Return every due time of a day. A skipped time gets the offset before the change."""
        return [
            round(
                datetime(day.year, day.month, day.day, hour, minute, tzinfo=self._zone).timestamp()
            )
            * 1000
            for hour in self._hours
            for minute in self._minutes
        ]


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
