"""How long a message that came too early waits before it is given back."""

from random import Random

from leveret.bus.settings import BusSettings


def wait_ms(now_ms: int, due_ms: int | None, settings: BusSettings, rng: Random) -> int:
    """Between the bounds of the settings, by chance, and never beyond the due time."""
    chosen_ms = rng.randint(settings.early_wait_ms_min, settings.early_wait_ms_max)
    if due_ms is None or due_ms <= now_ms:
        return chosen_ms
    return min(chosen_ms, due_ms - now_ms)
