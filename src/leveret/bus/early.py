"""How long a message that came too early waits before it is given back."""

from random import Random

from leveret.bus.settings import BusSettings


def early_wait_s(now_s: float, due_s: float | None, settings: BusSettings, rng: Random) -> float:
    """Return a random time between the bounds of the settings, which ends at the due time."""
    chosen_s = rng.uniform(settings.early_wait_s_min, settings.early_wait_s_max)
    if due_s is None or due_s <= now_s:
        return chosen_s
    return min(chosen_s, due_s - now_s)
