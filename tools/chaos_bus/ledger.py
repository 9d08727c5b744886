"""Compare the messages that were published with those that were handled."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """Published and handled messages of one kind of loss, by number."""

    confirmed: set[int] = field(default_factory=set)
    handled: Counter[int] = field(default_factory=Counter)
    # For each round: time from the broker being reachable to a message being handled.
    recoveries_s: list[float] = field(default_factory=list)
    late: int = 0  # rounds that took longer than allowed

    @property
    def lost(self) -> set[int]:
        """Messages that were confirmed and not handled."""
        return self.confirmed - self.handled.keys()

    @property
    def duplicates(self) -> int:
        """Deliveries beyond the first."""
        return sum(self.handled.values()) - len(self.handled)

    @property
    def is_good(self) -> bool:
        """True if no message was lost and no round was late."""
        return not self.lost and not self.late

    def row(self) -> dict[str, object]:
        """Return the figures."""
        times = sorted(self.recoveries_s)
        return {
            "rounds": len(times),
            "published": len(self.confirmed),
            "handled": len(self.handled),
            "duplicates": self.duplicates,
            "lost": len(self.lost),
            "late": self.late,
            "again_s_median": round(times[len(times) // 2], 2) if times else None,
            "again_s_max": round(times[-1], 2) if times else None,
        }
