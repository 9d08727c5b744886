"""Checks the files of all actors: these rules hold for every job, whatever was killed.

- A job whose enqueue was answered by 200 is done. A job whose enqueue was refused is never handed
  out, unless neither Redis nor a shard answered then. A job whose call was cut off may or may not
  be done.
- Each job has one id and is done once: one ack is answered by 200, unless the answer was cut off.
- A dequeue that began after a job's ack was answered does not hand out the job.
- Tokens rise with every lease. An ack with an older token is refused once a newer one was handed
  out. The answer to an older dequeue may arrive late, if the network has held it.

A server or a node that is frozen may do later what a call has asked for. So nobody knows what
became of an ack that was answered by 5xx, as if its answer had been cut off.
"""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

CALL_S: Final = 6.0  # the deadline of a call to a server, and a second for the answer

Event = dict[str, Any]


@dataclass
class Account:
    """Counts and faults found in the files of all actors."""

    faults: list[str] = field(default_factory=list)
    confirmed: int = 0
    refused: int = 0
    unknown: int = 0
    done: int = 0
    cut_off: int = 0  # acks whose answer nobody got
    again: int = 0  # handed out more than once
    stale: int = 0  # acks refused by their token
    quick: int = 0  # acks that Redis alone has taken
    came_back: int = 0  # handed out after their ack
    twice: int = 0  # acked twice
    lost: int = 0  # confirmed and not done
    late: int = 0  # refused while neither Redis nor a shard answered, and handed out
    wrong: list[int] = field(default_factory=list)  # ids of the jobs with faults
    outages: list[str] = field(default_factory=list)  # each with what jobs did since
    stories: list[list[str]] = field(default_factory=list)  # the events of some jobs with faults


def read(folder: Path) -> list[Event]:
    """Every line of every book, by time; a torn last line is no line."""
    events: list[Event] = []
    for path in folder.iterdir():
        lines = path.read_bytes().splitlines(keepends=True)
        events += [json.loads(line) for line in lines if line.endswith(b"\n")]
    return sorted(events, key=lambda event: float(event["at"]))


def balance(events: list[Event]) -> Account:
    account = Account()
    by_id: dict[int, list[Event]] = defaultdict(list)
    for event in events:
        if "id" in event:
            by_id[event["id"]].append(event)
    names = _check_names(account, events)
    refused, account.wrong = account.wrong, []  # the jobs that were confirmed come first
    account.quick = sum(event["kind"] == "quick" for event in events)
    for id, own in by_id.items():
        before = len(account.faults)
        _check_one(account, id, own)
        if len(account.faults) > before:
            account.wrong.append(id)
    _check_all_done(account, names, by_id)
    account.wrong += refused
    return account


def _check_names(account: Account, events: list[Event]) -> dict[int, str]:
    """Confirmed ids with the names of their jobs; refused ones must not be handed out."""
    confirmed: dict[int, str] = {}
    refused: set[str] = set()
    excused: set[str] = set()  # the refused ones that may be handed out
    silent = _silent_times(events)
    cut_off = {name for event in events if event["kind"] == "put" for name in event["names"]}
    for event in events:
        if event["kind"] == "told":
            cut_off -= set(event["names"])
            if event["status"] == 200:
                confirmed.update(zip(event["ids"], event["names"], strict=True))
            elif event["status"] == 0:
                cut_off |= set(event["names"])
            else:
                refused |= set(event["names"])
                if any(begin <= event["at"] <= end for begin, end in silent):
                    excused |= set(event["names"])
    ids: dict[str, int] = {}
    for event in events:
        if event["kind"] == "got":
            name = event["name"]
            if name in excused:
                account.late += 1
            elif name in refused:
                account.wrong.append(event["id"])
                account.faults.append(f"{name} was refused and handed out")
            if ids.setdefault(name, event["id"]) != event["id"]:
                account.faults.append(f"{name} is there twice")
            if confirmed.get(event["id"], name) != name:
                account.faults.append(f"{event['id']} was told for another job")
    account.confirmed, account.refused = len(confirmed), len(refused)
    account.unknown = len(cut_off)
    return confirmed


def _silent_times(events: list[Event]) -> list[tuple[float, float]]:
    """Return the times in which calls end to which neither Redis nor a shard has answered."""
    found: list[tuple[float, float]] = []
    frozen: set[str] = set()
    begin = 0.0
    for event in events:
        step, _, what = event.get("what", "").partition(" ")
        if event["kind"] != "fault" or step not in ("freeze", "resume"):
            continue
        were_silent = len(frozen) > 1
        frozen = frozen | {what} if step == "freeze" else frozen - {what}
        frozen = {each for each in frozen if not each.startswith("node")}
        if len(frozen) > 1 and not were_silent:
            begin = event["at"]
        elif were_silent and len(frozen) < 2:
            found.append((begin, event["at"] + CALL_S))
    return found


def _check_one(account: Account, id: int, events: list[Event]) -> None:
    newest, newest_at = 0, 0.0
    acked_at: float | None = None
    for event in events:
        if event["kind"] == "got":
            account.again += newest > 0
            token = event["token"]
            if token == newest or (token < newest and event["asked"] > newest_at):
                account.faults.append(f"{id}: token {token} after {newest}")
            if token > newest:
                newest, newest_at = token, event["at"]
            if acked_at is not None and event["asked"] > acked_at:
                account.came_back += 1
                account.faults.append(
                    f"{id} came back {event['at'] - acked_at:.3f} s after its ack"
                )
        elif event["kind"] in ("acking", "quick"):
            continue
        elif event["status"] == 200:
            _check_settled(account, id, event, events)
            if event["kind"] == "acked":
                if acked_at is not None:
                    account.twice += 1
                    account.faults.append(f"{id} was done twice")
                acked_at = event["at"]
        elif event["status"] == 409:
            account.stale += 1


def _check_settled(account: Account, id: int, event: Event, events: list[Event]) -> None:
    """No newer lease was handed out before a settlement that was taken was asked for."""
    for other in events:
        is_newer = other["kind"] == "got" and other["token"] > event["token"]
        if is_newer and other["at"] < event["asked"]:
            account.faults.append(f"{id}: a stale token was taken by {event['kind']}")


def _check_all_done(account: Account, names: dict[int, str], by_id: dict[int, list[Event]]) -> None:
    for id, name in names.items():
        acks = Counter(e["status"] for e in by_id.get(id, ()) if e["kind"] == "acked")
        begun = sum(event["kind"] == "acking" for event in by_id.get(id, ()))
        if acks[200]:
            account.done += 1
        elif any(status == 0 or status >= 500 for status in acks) or begun > acks.total():
            account.cut_off += 1  # the worker or the node was killed in its ack
        else:
            account.lost += 1
            account.wrong.append(id)
            fate = "was handed out and is not done"
            if id not in by_id:
                fate = "was confirmed and never handed out"
            account.faults.append(f"{name} ({id}) {fate}")
