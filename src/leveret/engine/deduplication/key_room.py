"""The room for the deduplication keys of a vhost: all its queues and exchanges share it.

An object remembers at most its own `size` of keys, but there may be any number of objects, and a
key takes about 34 bytes of memory and 24 bytes of each checkpoint. So a vhost has room for
`KEYS_MAX` keys. If it has none left, a message with a new key is refused. To forget another key
early would let a duplicate through, which the object promises not to do.

One object must not take the room of all others. So an object with less than an equal share of the
room still takes new keys, until the vhost remembers twice `KEYS_MAX`. Shares alone would be no
limit: an object that took its share keeps it when further objects make the shares smaller.

A start loads all keys that the log has, whatever the limit: they were accepted.
"""

from typing import Final

from mypy_extensions import i64

KEYS_MAX: Final = 10_000_000  # of one vhost


class KeyRoom:
    """Counts the keys that a vhost remembers."""

    def __init__(self, vhost: str) -> None:
        self._vhost = vhost
        self.keys_max: i64 = KEYS_MAX
        self.keys: i64 = 0  # of all objects
        self.objects: i64 = 0  # queues and exchanges with deduplication
        self._is_told = False  # the log says that there is no room

    def takes(self, own: i64) -> bool:
        """Return True if an object that has this many keys may remember one more."""
        if self.keys < self.keys_max:
            return True
        return own * self.objects < self.keys_max and self.keys < 2 * self.keys_max

    def add(self, count: i64) -> None:
        """Count keys that were remembered; a negative number was forgotten."""
        self.keys += count
        if self.keys < self.keys_max:
            self._is_told = False

    def must_tell(self) -> bool:
        """Return True for the first refusal since there was room."""
        is_new = not self._is_told
        self._is_told = True
        return is_new

    def refusal(self) -> str:
        """Return why a message with a new key is refused."""
        return (
            f"cannot remember another deduplication key in vhost '{self._vhost}': its queues and "
            f"exchanges remember {self.keys} keys; the limit is {self.keys_max}"
        )
