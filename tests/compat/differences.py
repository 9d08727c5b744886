"""Reads docs/differences.md and checks it against the cases.

The page's tables have the columns id, RabbitMQ, Leveret, reason and test; the last says `yes` for
an entry that a case shows, and anything else for one that none can show. The page and the cases
must agree both ways: every key a case names is an entry marked `yes`, and every such entry has a
case.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Final, NamedTuple

from tests.compat.brokers import ROOT
from tests.compat.case import Case

PAGE: Final = ROOT / "docs" / "differences.md"
_ROW: Final = re.compile(r"^\| `([a-z0-9-]+)` \|(.*)\|$")


class Entry(NamedTuple):
    """One row of the page."""

    key: str
    is_tested: bool


def read_page() -> list[Entry]:
    """The rows of every table of the page."""
    rows = (_ROW.match(line) for line in PAGE.read_text().splitlines())
    return [Entry(row[1], row[2].split("|")[-1].strip() == "yes") for row in rows if row]


def faults(cases: Iterable[Case], entries: list[Entry]) -> list[str]:
    """What the page and the cases do not agree about, one sentence each."""
    cases = list(cases)
    used = {case.difference for case in cases if case.difference is not None}
    keys = [entry.key for entry in entries]
    found = [f"entry {key} stands twice" for key in sorted({k for k in keys if keys.count(k) > 1})]
    found += [
        f"{case.id} names {case.difference}, which is no entry"
        for case in cases
        if case.difference is not None and case.difference not in keys
    ]
    for entry in entries:
        if entry.is_tested and entry.key not in used:
            found.append(f"entry {entry.key} claims a test, but no case names it")
        if not entry.is_tested and entry.key in used:
            found.append(f"entry {entry.key} has a case, but does not say so")
    found += [
        f"{case.id} names a difference, but expects the same of both brokers"
        for case in cases
        if case.rabbitmq is not None and case.rabbitmq == case.expected
    ]
    return found
