"""Published and handled messages, and the differences between them."""

from collections import Counter
from dataclasses import dataclass, field


@dataclass
class Ledger:
    """The accounts of one kind of loss. A message is its number."""

    confirmed: set[int] = field(default_factory=set)
    handled: Counter[int] = field(default_factory=Counter)
    # Seconds from reachable to handled, by round.
    recoveries_s: list[float] = field(default_factory=list)
    late: int = 0  # rounds that took longer than allowed

    @property
    def lost(self) -> set[int]:
        """Return messages that were confirmed and not handled."""
        return self.confirmed - self.handled.keys()

    @property
    def duplicates(self) -> int:
        """Return the number of deliveries beyond the first."""
        return sum(self.handled.values()) - len(self.handled)

    @property
    def is_good(self) -> bool:
        """Return True if nothing was lost or late."""
        return not self.lost and not self.late

    def row(self) -> dict[str, object]:
        """Return the figures as a table row."""
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
