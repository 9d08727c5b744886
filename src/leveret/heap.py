"""The memory that the C library keeps for later use."""

import ctypes
import sys


def give_back_memory() -> None:
    """Give free memory back to the operating system.

    The C library keeps what is freed between memory in use. Call this after work that has freed
    much, such as a recovery. It takes milliseconds, without Python's lock.
    """
    if sys.platform == "linux":
        trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
        if trim is not None:  # glibc has it, musl has not
            trim(0)
