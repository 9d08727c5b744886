"""Shovels: carry messages from one broker to another, or to an HTTP address, for as long as wanted.

- `Shovels`       the shovels of a node: started, ended and shown
- `settings_of`   what the value of a runtime parameter `shovel` means, checked
- `obfuscated`    the same value as it may be shown: without passwords

A shovel has two ends. A *source* consumes: from this node (`local`) or over AMQP (`remote`). A
*target* takes: this node, AMQP, or HTTP (`webhook`). `shovel` carries between them.
"""

from leveret.shovels.manager import Shovels
from leveret.shovels.settings import obfuscated, settings_of

__all__ = ["Shovels", "obfuscated", "settings_of"]
