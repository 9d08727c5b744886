"""The unacked messages of one session, by delivery tag.

Delivery tags ascend, so a list indexed by `tag - base - 1` finds a message without hashing. The
order of the list is also the order of delivery times. A delivery with no_ack uses a tag too and
leaves an empty slot.

A message that is never acked must not make the list grow without end. When most slots of a long
list are empty, the messages in its front half move to `stragglers`, a dict by tag.

Invariant: every unacked tag is either in `stragglers` (then it is <= base) or in `ring`.
"""

from typing import Final

from mypy_extensions import i64

from leveret.engine.message import Message

_COMPACT_AT: Final = 1024  # empty slots at the front before the list is cut
_SPARSE_AT: Final = 16384  # length from which a mostly empty list is thinned


class Unacked:
    """The messages that a session holds, by delivery tag."""

    def __init__(self) -> None:
        self.count: i64 = 0
        self.base: i64 = 0  # tag of ring[i] is base + i + 1
        self.head: i64 = 0  # slots before this one are empty
        self.ring: list[Message | None] = []
        self.stragglers: dict[int, Message] = {}

    def add(self, message: Message) -> None:
        """Add a message under its tag, which must be the next one."""
        assert message.tag == self.base + len(self.ring) + 1
        self.ring.append(message)
        self.count += 1

    def skip(self, tag: i64) -> None:
        """Use up a tag without a message."""
        if not self.ring:
            self.base = tag
            return
        self.ring.append(None)
        if len(self.ring) >= _SPARSE_AT:
            self._thin()

    def find(self, tag: i64) -> Message | None:
        """Return the message under a tag without taking it."""
        index = tag - self.base - 1
        if index >= 0:
            return self.ring[index] if index < len(self.ring) else None
        return self.stragglers.get(tag)

    def take(self, tag: i64) -> Message | None:
        """Take the message under a tag; None if there is none."""
        index = tag - self.base - 1
        if index < 0:
            message = self.stragglers.pop(tag, None)
            if message is not None:
                self.count -= 1
            return message
        ring = self.ring
        end: i64 = len(ring)
        if index >= end:
            return None
        message = ring[index]
        if message is not None:
            ring[index] = None
            self.count -= 1
            head = index + 1
            if index == self.head and head < end and head < _COMPACT_AT and ring[head] is not None:
                self.head = head  # most acks end here
                return message
            try:
                if index == self.head:
                    self._advance(head)
                elif end >= _SPARSE_AT:
                    self._thin()
            except Exception:
                self.restore(message)
                raise
        return message

    def restore(self, message: Message) -> None:
        """Put back a message that was taken, under the same tag."""
        index = message.tag - self.base - 1
        self.count += 1
        if 0 <= index < len(self.ring):
            assert self.ring[index] is None
            self.ring[index] = message
            self.head = min(self.head, index)
        else:
            self.stragglers[message.tag] = message

    def replace(self, tag: i64, message: Message) -> None:
        """Replace the message under a tag that is in use."""
        assert self.find(tag) is not None
        index = tag - self.base - 1
        if index >= 0:
            self.ring[index] = message
        else:
            self.stragglers[tag] = message

    def take_through(self, tag: i64) -> list[Message]:
        """Take all messages up to and including a tag, in order of delivery."""
        taken: list[Message] = []
        if self.stragglers:
            taken = [self.stragglers.pop(old) for old in list(self.stragglers) if old <= tag]
        ring = self.ring
        index = self.head
        end: i64 = tag - self.base
        if end > len(ring):
            end = len(ring)
        while index < end:
            message = ring[index]
            if message is not None:
                taken.append(message)
                ring[index] = None
            index += 1
        self.count -= len(taken)
        if index > self.head:
            try:
                self._advance(index)
            except Exception:
                for message in taken:
                    self.restore(message)
                raise
        return taken

    def take_all(self) -> list[Message]:
        """Take all messages, in order of delivery."""
        return self.take_through(self.base + len(self.ring))

    def messages(self) -> list[Message]:
        """Return all messages in order of delivery, without taking them."""
        held = list(self.stragglers.values())
        held.extend([m for m in self.ring[self.head :] if m is not None])
        return held

    def oldest(self, most: i64) -> list[Message]:
        """Return up to `most` of the messages that are held longest, without taking them."""
        found: list[Message] = []
        for message in self.stragglers.values():
            if len(found) >= most:
                return found
            found.append(message)
        ring = self.ring
        index = self.head
        while index < len(ring) and len(found) < most:
            held = ring[index]
            if held is not None:
                found.append(held)
            index += 1
        return found

    def tag_within(self, last: i64, most: i64) -> i64:
        """Return the tag of the message at place `most` from the oldest, at most `last`."""
        left = most
        for tag in self.stragglers:
            if tag <= last:
                left -= 1
                if left == 0:
                    return tag
        ring = self.ring
        index = self.head
        end: i64 = last - self.base
        while index < end:
            if ring[index] is not None:
                left -= 1
                if left == 0:
                    return self.base + index + 1
            index += 1
        return last

    def last_tag(self) -> i64:
        """Return the highest unacked tag; 0 if there is none."""
        ring = self.ring
        index: i64 = len(ring) - 1
        while index >= self.head:
            if ring[index] is not None:
                return self.base + index + 1
            index -= 1
        last: i64 = 0
        for tag in self.stragglers:
            if tag > last:
                last = tag
        return last

    def _advance(self, head: i64) -> None:
        """Move the front over empty slots, and free them when there are many."""
        ring = self.ring
        end: i64 = len(ring)
        while head < end and ring[head] is None:
            head += 1
        if head == end:
            self.base += end
            ring.clear()
            head = 0
        elif head >= _COMPACT_AT and head * 2 > end:
            del ring[:head]
            self.base += head
            head = 0
        self.head = head

    def _thin(self) -> None:
        """Move the messages of the front half to `stragglers` if most slots are empty."""
        ring = self.ring
        if (self.count - len(self.stragglers)) * 8 > len(ring):
            return
        half: i64 = len(ring) // 2
        index = self.head
        while index < half:
            message = ring[index]
            if message is not None:
                # Not `message.tag`: a placeholder that `replace` put here has no tag.
                self.stragglers[self.base + index + 1] = message
            index += 1
        del ring[:half]
        self.base += half
        self.head = 0
        self._advance(0)
