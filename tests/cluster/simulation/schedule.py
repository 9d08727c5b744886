"""How hard a run is: mild like a real cluster, or harsh like none.

The mild schedule finds faults of normal trouble. The harsh one has more nodes, single-entry
messages, many crashes and cuts, and long delays. It finds faults that need several rare events at
once, like the overwritten entries of Figure 8 in the Raft paper.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Schedule:
    """Times are in units of the world; a tick takes about ten."""

    name: str
    sizes: tuple[int, ...]  # voters of a group at the start
    groups: tuple[int, ...]  # how many there are
    duration: int
    drop: float  # of messages lost
    duplicate: float
    delay_max: int
    straggle: float  # of messages that take ten times as long
    tick_min: int
    tick_max: int
    election_ticks: int
    sleep_ticks: int
    quiet_every: int  # clients leave a group alone for a while, about as often
    quiet_max: int
    sync_max: int  # how long a sync may take
    fault_every: int
    weights: dict[str, int]  # of the faults
    append_count_max: int
    chunk_bytes: int
    publishers: int
    publish_every: int
    snapshot_every: int


MILD: Final = Schedule(
    name="mild",
    sizes=(1, 3, 3, 5),
    groups=(1, 1, 3),
    duration=2000,
    drop=0.02,
    duplicate=0.02,
    delay_max=6,
    straggle=0.01,
    tick_min=8,
    tick_max=12,
    election_ticks=10,
    sleep_ticks=6,
    quiet_every=400,
    quiet_max=500,
    sync_max=4,
    fault_every=150,
    weights={
        "cut": 4,
        "heal": 5,
        "crash": 3,
        "pause": 2,
        "slow": 2,
        "transfer": 2,
        "member": 2,
        "corrupt": 1,
        "skew": 1,
        "purge": 1,
        "configure": 1,
    },
    append_count_max=16,
    chunk_bytes=300,
    publishers=2,
    publish_every=12,
    snapshot_every=300,
)
HARSH: Final = Schedule(
    name="harsh",
    sizes=(3, 5, 5),
    groups=(1, 1, 3),
    duration=3000,
    drop=0.08,
    duplicate=0.06,
    delay_max=15,
    straggle=0.06,
    tick_min=5,
    tick_max=16,
    election_ticks=4,
    sleep_ticks=3,
    quiet_every=500,
    quiet_max=400,
    sync_max=12,
    fault_every=40,
    weights={
        "cut": 8,
        "heal": 6,
        "crash": 9,
        "pause": 2,
        "slow": 2,
        "transfer": 3,
        "member": 4,
        "corrupt": 1,
        "skew": 2,
        "purge": 1,
        "configure": 1,
    },
    append_count_max=1,
    chunk_bytes=100,
    publishers=2,
    publish_every=16,
    snapshot_every=250,
)
SCHEDULES: Final = {schedule.name: schedule for schedule in (MILD, HARSH)}
