"""For any input, feed raises nothing, sends only protocol errors, and others are still served."""

from __future__ import annotations

import os
import struct

import pytest

from tests.compat import wire
from tests.fuzz.driver import SERVED_EVERY, Fuzz

# Corrupted frames in one run; fewer in the interpreted form, which is slower. `make fuzz` sends
# more.
FRAMES = {True: 30_000, False: 20_000}


@pytest.mark.timeout(3600)
def test_corrupted_conversations_end_in_protocol_errors(seed: int, compiled: bool) -> None:
    seed = int(os.environ.get("LEVERET_FUZZ_SEED") or seed)
    frames = int(os.environ.get("LEVERET_FUZZ_FRAMES") or FRAMES[compiled])
    print(f"LEVERET_FUZZ_SEED={seed} LEVERET_FUZZ_FRAMES={frames}")
    fuzz = Fuzz(seed)
    fuzz.run(frames)
    print(f"{fuzz.connections} connections; closes: {sorted(fuzz.closes.items())}")
    assert fuzz.steady.served >= frames // SERVED_EVERY
    missed = [
        name
        for name, (class_id, method_id, *_) in wire.METHODS.items()
        if struct.pack("!HH", class_id, method_id) not in fuzz.reached
    ]
    assert missed == []
    # The error codes that corrupted frames must cause; each occurs often enough not to be luck.
    for close in (("channel", 404), ("channel", 406), ("connection", 501), ("connection", 505)):
        assert fuzz.closes[close] > 0
