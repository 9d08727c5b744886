"""Shovels: carry messages from one broker to another, or to an HTTP address, for as long as wanted.

- `Shovels`       the shovels of a node: started, ended and shown
- `settings`      what the value of a runtime parameter `shovel` means, checked; and how it is shown

A shovel has two ends. A *source* consumes: from this node (`local`) or over AMQP (`remote`). A
*target* takes: this node, AMQP, or HTTP (`webhook`). `shovel` carries between them.
"""

from leveret.shovels.manager import Shovels

__all__ = ["Shovels"]
