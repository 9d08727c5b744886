"""Shovels: move messages from one broker to another, or to an HTTP address.

- `ShovelManager` starts, ends and lists the shovels of a node
- `settings`      parses the value of a runtime parameter `shovel`

A shovel has two ends. Its *source* consumes from this node (`local`) or over AMQP (`remote`). Its
*target* publishes to this node, publishes over AMQP, or posts to HTTP (`webhook`). `shovel` moves
messages between them.
"""

from leveret.shovels.manager import ShovelManager

__all__ = ["ShovelManager"]
