"""How long a message that came too early is held."""

from random import Random

from leveret.bus.settings import BusSettings


def early_wait_s(now_s: float, due_s: float | None, settings: BusSettings, rng: Random) -> float:
    """Return how long a message that came too early is held before it is requeued.

    The time is random between the bounds of the settings, and ends at the due time.
    """
    chosen_s = rng.uniform(settings.early_wait_s_min, settings.early_wait_s_max)
    if due_s is None or due_s <= now_s:
        return chosen_s
    return min(chosen_s, due_s - now_s)
