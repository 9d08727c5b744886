"""Checks the files of all actors: these rules hold for every job, whatever was killed.

- A job whose enqueue was answered by 200 is done. A job whose enqueue was refused is never handed
  out. A job whose call was cut off may or may not be done.
- Each job has one id and is done once: one ack is answered by 200, unless the answer was cut off.
- A dequeue that began after a job's ack was answered does not hand out the job.
- Tokens rise with every lease. An ack with an older token is refused once a newer one was handed
  out. The answer to an older dequeue may arrive late, if the network has held it.
"""

import json
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

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
    for id, own in by_id.items():
        _check_one(account, id, own)
    _check_all_done(account, names, by_id)
    return account


def _check_names(account: Account, events: list[Event]) -> dict[int, str]:
    """Confirmed ids with the names of their jobs; refused ones must not be handed out."""
    confirmed: dict[int, str] = {}
    refused: set[str] = set()
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
    ids: dict[str, int] = {}
    for event in events:
        if event["kind"] == "got":
            name = event["name"]
            if name in refused:
                account.faults.append(f"{name} was refused and handed out")
            if ids.setdefault(name, event["id"]) != event["id"]:
                account.faults.append(f"{name} is there twice")
            if confirmed.get(event["id"], name) != name:
                account.faults.append(f"{event['id']} was told for another job")
    account.confirmed, account.refused = len(confirmed), len(refused)
    account.unknown = len(cut_off)
    return confirmed


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
                account.faults.append(
                    f"{id} came back {event['at'] - acked_at:.3f} s after its ack"
                )
        elif event["kind"] == "acking":
            continue
        elif event["status"] == 200:
            _check_settled(account, id, event, events)
            if event["kind"] == "acked":
                if acked_at is not None:
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
        kinds = Counter((event["kind"], event.get("status")) for event in by_id.get(id, ()))
        if id not in by_id:
            account.faults.append(f"{name} ({id}) was confirmed and never handed out")
        elif kinds["acked", 200]:
            account.done += 1
        elif kinds["acked", 0] or kinds["acking", None] > sum(
            count for (kind, _), count in kinds.items() if kind == "acked"
        ):
            account.cut_off += 1  # the worker or the node was killed in its ack
        else:
            account.faults.append(f"{name} ({id}) was handed out and is not done")
