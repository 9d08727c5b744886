"""How hard a run is: mild like a real cluster, harsh or rotten like none.

The mild schedule finds faults of normal trouble. The harsh one has more nodes, messages of one
block, many crashes and cuts, and long delays. It finds faults that need several rare events at
once, like the overwritten blocks of Figure 8 in the Raft paper. In the rotten one disks lose synced
blocks again and again, while messages from before the loss are still on their way.
"""

from dataclasses import dataclass
from typing import Final


@dataclass(frozen=True)
class Schedule:
    """Times are in units of the world; a tick takes about ten."""

    name: str
    sizes: tuple[int, ...]  # voters at the start
    duration: int
    drop: float  # of messages lost
    duplicate: float
    delay_max: int
    straggle: float  # of messages that take ten times as long
    tick_min: int
    tick_max: int
    election_ticks: int
    heartbeat_ticks: int
    sync_max: int  # how long a sync may take
    fault_every: int
    weights: dict[str, int]  # of the faults
    append_count_max: int
    publish_every: int
    forget_every: int  # log files are removed about as often


MILD: Final = Schedule(
    name="mild",
    sizes=(1, 3, 3, 5),
    duration=2500,
    drop=0.02,
    duplicate=0.02,
    delay_max=6,
    straggle=0.01,
    tick_min=8,
    tick_max=12,
    election_ticks=10,
    heartbeat_ticks=2,
    sync_max=4,
    fault_every=120,
    weights={
        "cut": 4,
        "heal": 5,
        "crash": 3,
        "pause": 2,
        "slow": 2,
        "hang": 2,
        "unlink": 2,
        "transfer": 3,
        "member": 3,
        "damage": 2,
        "wipe": 1,
        "skew": 1,
    },
    append_count_max=16,
    publish_every=6,
    forget_every=300,
)
HARSH: Final = Schedule(
    name="harsh",
    sizes=(3, 5, 5),
    duration=3500,
    drop=0.08,
    duplicate=0.06,
    delay_max=15,
    straggle=0.06,
    tick_min=5,
    tick_max=16,
    election_ticks=4,
    heartbeat_ticks=1,
    sync_max=12,
    fault_every=35,
    weights={
        "cut": 8,
        "heal": 6,
        "crash": 9,
        "pause": 2,
        "slow": 2,
        "hang": 2,
        "unlink": 3,
        "transfer": 3,
        "member": 4,
        "damage": 2,
        "wipe": 1,
        "skew": 2,
    },
    append_count_max=1,
    publish_every=10,
    forget_every=250,
)
ROTTEN: Final = Schedule(
    name="rotten",
    sizes=(3, 3, 5),
    duration=2500,
    drop=0.03,
    duplicate=0.1,
    delay_max=15,
    straggle=0.15,
    tick_min=8,
    tick_max=12,
    election_ticks=4,
    heartbeat_ticks=1,
    sync_max=12,
    fault_every=30,
    weights={
        "cut": 6,
        "heal": 3,
        "crash": 3,
        "unlink": 2,
        "transfer": 4,
        "damage": 10,
    },
    append_count_max=4,
    publish_every=6,
    forget_every=400,
)
SCHEDULES: Final = {schedule.name: schedule for schedule in (MILD, HARSH, ROTTEN)}
