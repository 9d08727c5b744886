"""Read a range of a block that is kept in pieces, without joining the pieces."""

from mypy_extensions import i64


def read_pieces(pieces: list[bytes], start: i64, size: i64) -> bytes:
    """Return up to `size` bytes from a place in the joined pieces.

    Only these bytes are copied, and none if they are one whole piece: a block may have a hundred
    megabytes.
    """
    found: list[bytes] = []
    for piece in pieces:
        if size <= 0:
            break
        length: i64 = len(piece)
        if start < length:
            is_whole = start == 0 and length <= size
            part = piece if is_whole else piece[start : start + min(size, length - start)]
            found.append(part)
            size -= len(part)
            start = 0
        else:
            start -= length
    return found[0] if len(found) == 1 else b"".join(found)
