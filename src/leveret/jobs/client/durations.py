"""Check durations before they are sent.

JSON has no infinity and no NaN: the encoder would write null, which stands for the default.
"""

from leveret.jobs.client.errors import InvalidCallError


def require_seconds(field: str, seconds: float, least_ms: int, most_ms: int) -> None:
    """Raise InvalidCallError if a duration is out of range."""
    if not least_ms <= seconds * 1000 <= most_ms:
        limits = f"from {least_ms / 1000:.12g} to {most_ms / 1000:.12g} seconds"
        raise InvalidCallError(f"{field} must be {limits}, not {seconds:.12g}", 400, None, field)
