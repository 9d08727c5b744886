"""Tells what happened to a job, and which servers and nodes failed meanwhile.

Times are seconds since the run began to do harm.
"""

from collections import Counter
from typing import Final

from tools.chaos_jobs.ledger import Event

BEFORE_S: Final = 5.0  # faults so long before the first event of a job are told too


def story(events: list[Event], id: int) -> list[str]:
    """Return a line for each event of a job, and for each fault from shortly before to its end."""
    begin = _begin_of(events)
    names = {event["name"] for event in events if event.get("id") == id and "name" in event}
    own = [e for e in events if e.get("id") == id or names.intersection(e.get("names", ()))]
    if not own:
        return []
    first, last = float(own[0]["at"]) - BEFORE_S, float(own[-1]["at"])
    around = [e for e in events if e["kind"] == "fault" and first <= e["at"] <= last]
    told = sorted([*own, *around], key=lambda event: float(event["at"]))
    return [f"{event['at'] - begin:9.3f} {_line(event, begin)}" for event in told]


def _begin_of(events: list[Event]) -> float:
    return next((float(event["at"]) for event in events if event["kind"] == "begin"), 0.0)


def _line(event: Event, begin: float) -> str:
    kind, by = event["kind"], event["by"]
    if kind == "fault":
        return f"    {event['what']}"
    if kind == "put":
        return f"{by} enqueues it"
    if kind == "told":
        return f"the enqueue of {by} is answered by {event['status']}"
    if kind == "got":
        asked = event["asked"] - begin
        of = f"{event['topic']}, attempt {event['attempt']}, token {event['token']}"
        return f"handed out to {by}, asked at {asked:.3f}: {of}"
    if kind == "quick":
        return f"Redis alone takes the ack at {by}"
    if kind == "acking":
        return f"{by} acks"
    word = "ack" if kind == "acked" else "nack"
    return f"the {word} of {by} is answered by {event['status']}"


def outages_of(events: list[Event]) -> list[str]:
    """Return a line for each outage: its faults, and what was wrong from its begin on."""
    begin = _begin_of(events)
    lines: list[str] = []
    acked: dict[int, float] = {}
    name, steps, found = "before the first outage", "", Counter[str]()

    def tell() -> None:
        counts = ", ".join(f"{count} {what}" for what, count in sorted((+found).items()))
        lines.append(f"{name}{steps}: {counts or 'no job handed out'}")

    for event in events:
        if event["kind"] == "outage":
            tell()
            name, steps, found = f"{event['at'] - begin:9.3f} {event['what']}", "", Counter()
        elif event["kind"] == "got":
            is_back = event["asked"] > acked.get(event["id"], event["asked"])
            found["handed out"] += 1
            found["HANDED OUT AFTER THEIR ACK"] += is_back
        elif event["kind"] == "acked" and event["status"] == 200:
            acked.setdefault(event["id"], event["at"])
            found["acked"] += 1
        elif event["kind"] == "quick":
            found["acked by Redis alone"] += 1
    tell()
    return lines
