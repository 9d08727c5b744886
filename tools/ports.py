"""Ports of the loopback interface for servers that tests and tools start."""

from leveret.testing.ports import HOST, free_port

__all__ = ["HOST", "free_port"]
