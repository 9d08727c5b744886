"""The checksum equals zlib's, for every implementation."""

import random
import zlib

from leveret.checksum import crc32


def test_it_is_the_number_of_zlib(seed: int) -> None:
    print(f"seed {seed}")
    chance = random.Random(seed)
    for size in (0, 1, 7, 16, 63, 64, 1000, 65_537):
        data = chance.randbytes(size)
        start = chance.getrandbits(32)
        assert crc32(data) == zlib.crc32(data)
        assert crc32(memoryview(data)[1:], start) == zlib.crc32(data[1:], start)
